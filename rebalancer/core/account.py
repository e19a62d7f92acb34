"""One pool's account by the hour: its GPUs, its loans, what was told of them, and corrections of it.

An hour, or the last part of a loan, is told once it has been over for a short while. What comes later than that
changes an hour that was told: the new numbers are told once more and name the record that they replace. Nothing
here knows nodes or pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rebalancer.core.charges import Charge, LoanMove, LoanUsage, PoolUsage, UsageMemory, UsageRow
from rebalancer.core.loans import Loan
from rebalancer.core.meters import HOUR, Meter, moment_of, ms_of, seconds_of
from rebalancer.core.plan import stable_id
from rebalancer.core.units import GangId, LoanId, PoolName
from rebalancer.core.uses import LOAN_FIELDS, POOL_FIELDS, Key

SETTLE = 60_000
"""Milliseconds after its end at which a part is told: what is under way at its end is still counted, so that
corrections stay rare."""
KEPT = 3
"""Hours that may still be corrected; what is later than that counts from the oldest of them on."""

NOBODY = ("", "")
"""Namespace and queue of a gang of which no pod was seen."""


class Line(NamedTuple):
    """One line of the account: a pool's hour (``loan`` "") or a loan's and gang's."""

    loan: LoanId
    gang: GangId
    hour: int


class Told(NamedTuple):
    """What was last said of a line, up to when (ms), and how often."""

    values: tuple[int, ...]
    until: int
    revisions: int


class Account:
    """Since ``began`` (ms). ``floor``: nothing that comes counts from earlier than that."""

    def __init__(self, cluster: str, pool: PoolName, began: int) -> None:
        """Begin with nothing."""
        self.began = self.floor = began
        self.told_until = began // HOUR * HOUR
        self.late = False
        self.over: list[Loan] = []
        """Loans that were let go."""
        self.loans: dict[LoanId, Loan] = {}
        self.gangs: dict[LoanId, dict[GangId, tuple[str, str]]] = {}
        """Gangs that used a loan, with their namespace and queue."""
        self._cluster, self._pool = cluster, pool
        self._meters: dict[Key, Meter] = {}
        self._told: dict[Line, Told] = {}
        self._heard: dict[str, int] = {}
        self._wake = 0

    def move(self, key: Key, change: int, at: int) -> None:
        """From ``at`` (ms) on so many more GPUs count as this."""
        self._meter(key).move(change, at)
        self.late = self.late or at < self.told_until

    def keep(self, loan: Loan) -> None:
        """A loan's latest form; one that was over before everything that may still be told is let go."""
        if loan.closed_at is not None and ms_of(loan.closed_at) // HOUR < self.floor // HOUR - KEPT:
            return
        self.loans[loan.id] = loan
        self.gangs.setdefault(loan.id, {}).setdefault(loan.gang, NOBODY)
        if loan.closed_at is not None:
            self._wake = min(self._wake, ms_of(loan.closed_at) + SETTLE)

    def lose(self, told: str, gang: GangId, shares: dict[LoanId, int], at: int) -> None:
        """Work lost with an eviction, by loan in GPU-milliseconds; the same eviction counts once."""
        if told in self._heard or at < self.began:
            return
        self._heard[told] = at
        for loan, amount in shares.items():
            self.gangs[loan].setdefault(gang, NOBODY)
            self._meter(Key(loan, gang, "lost")).add(amount, max(at, self.floor) // HOUR)
        self.late = True

    def values(self, line: Line) -> tuple[int, ...]:
        """GPU-milliseconds of a line by field."""
        return tuple(self._total(key, line.hour) for key in _keys(line))

    # -- telling -------------------------------------------------------------------------------------------------

    def tell(self, now: int, model: str) -> list[Charge]:
        """What is to be told by ``now`` (ms): what ended, and what is otherwise than was told."""
        if now < self._wake and not self.late:
            return []
        told = [charge for line, until in self._due(now) for charge in self._say(line, until, model)]
        self.told_until = max(self.told_until, (now - SETTLE) // HOUR * HOUR)
        self.late = False
        self._forget(now)
        ends = [ms_of(loan.closed_at) for loan in self.loans.values() if loan.closed_at is not None]
        self._wake = min([self.told_until + HOUR, *(end for end in ends if end > now - SETTLE)]) + SETTLE
        return told

    def _due(self, now: int) -> Iterator[tuple[Line, int]]:
        """Lines whose end is over for long enough, with their end; those told before may have changed."""
        first = max(self.began // HOUR, min(now // HOUR - KEPT, self.told_until // HOUR))
        for hour in range(first, (now - SETTLE) // HOUR):
            yield Line("", "", hour), (hour + 1) * HOUR
        for loan in self.loans.values():
            closed = ms_of(loan.closed_at) if loan.closed_at is not None else now
            for hour in range(max(first, ms_of(loan.opened_at) // HOUR), closed // HOUR + 1):
                until = (hour + 1) * HOUR if loan.closed_at is None else min((hour + 1) * HOUR, closed)
                if until + SETTLE <= now:
                    yield from ((Line(loan.id, gang, hour), until) for gang in sorted(self.gangs[loan.id]))

    def _say(self, line: Line, until: int, model: str) -> Iterator[Charge]:
        before = self._told.get(line)
        if before is not None and before.until == until and not self.late:
            return
        values = self.values(line)
        if before is None and not any(values):
            return
        if before is not None and (before.values, before.until) == (values, until):
            return
        revisions = before.revisions if before is not None else 0
        self._told[line] = Told(values, until, revisions + 1)
        yield self._charge(line, until, revisions, model)

    def _charge(self, line: Line, until: int, revision: int, model: str) -> Charge:
        loan, end = self.loans.get(line.loan), moment_of(until)
        mine, before = self._id(line, revision), self._id(line, revision - 1) if revision else ""
        spent = seconds_of(self._told[line].values)
        since = max(line.hour * HOUR, self.began)
        if loan is None:
            capacity, own, lent, transit, idle, unhealthy = spent
            return PoolUsage(
                mine, self._pool, moment_of(since), end, capacity, own, lent, transit, idle, unhealthy, before
            )
        allocated, busy, transit, lost, unused = spent
        namespace, queue = self.gangs[loan.id][line.gang]
        since = max(since, ms_of(loan.opened_at))
        return LoanUsage(
            id=mine, loan=loan.id, since=moment_of(since), until=end, lender=loan.lender,
            borrower_namespace=namespace, borrower_queue=queue, gang=line.gang, model=model,
            allocated_gpu_seconds=allocated, busy_gpu_seconds=busy, transit_gpu_seconds=transit,
            lost_gpu_seconds=lost, unused_gpu_seconds=unused, node=loan.node, node_name=loan.node_name,
            corrects=before,
        )  # fmt: skip

    def _id(self, line: Line, revision: int) -> str:
        hour = moment_of(line.hour * HOUR).isoformat()
        return stable_id(self._cluster, self._pool, line.loan, line.gang, hour, str(revision))

    def _forget(self, now: int) -> None:
        oldest = min(now // HOUR - KEPT, self.told_until // HOUR)
        self.floor = max(self.floor, oldest * HOUR)
        for meter in self._meters.values():
            meter.forget(oldest)
        over = [loan for loan in self.loans.values() if loan.closed_at and ms_of(loan.closed_at) < oldest * HOUR]
        for loan in over:
            for gang in self.gangs.pop(loan.id):
                for field in LOAN_FIELDS:
                    self._meters.pop(Key(loan.id, gang, field), None)
            del self.loans[loan.id]
        self.over += over
        self._told = {line: told for line, told in self._told.items() if line.hour >= oldest}
        self._heard = {told: at for told, at in self._heard.items() if at >= oldest * HOUR}

    # -- remembering ---------------------------------------------------------------------------------------------

    def memory(self, now: int, moves: tuple[LoanMove, ...] = ()) -> UsageMemory:
        """All that may still be told, accounted up to ``now`` (ms)."""
        first = max(self.began // HOUR, min(now // HOUR - KEPT, self.told_until // HOUR))
        hours = range(first, now // HOUR + 1)
        rows = [row for hour in hours for line in self._lines(hour) if (row := self._row(line, now)) is not None]
        began, upto, told = map(moment_of, (self.began, now, self.told_until))
        return UsageMemory(began, upto, told, tuple(rows), tuple(self._heard), moves)

    def _lines(self, hour: int) -> Iterator[Line]:
        yield Line("", "", hour)
        for loan in self.loans:
            yield from (Line(loan, gang, hour) for gang in self.gangs[loan])

    def _row(self, line: Line, now: int) -> UsageRow | None:
        values = tuple(self._until(key, line.hour, now) for key in _keys(line))
        told = self._told.get(line)
        namespace, queue = self.gangs[line.loan][line.gang] if line.loan else NOBODY
        named = (namespace, queue) != NOBODY and line.hour == now // HOUR  # its pods may be gone at the next start
        if told is None and not any(values) and not named:
            return None
        hour = moment_of(line.hour * HOUR)
        if told is None:
            return UsageRow(line.loan, line.gang, hour, values, namespace=namespace, queue=queue)
        said, until = told.values, moment_of(told.until)
        return UsageRow(line.loan, line.gang, hour, values, said, until, told.revisions, namespace, queue)

    def recall(self, memory: UsageMemory) -> None:
        """Go on from what was accounted; GPUs count anew from there on."""
        at = self.floor = ms_of(memory.upto)
        self.began, self.told_until = ms_of(memory.began), ms_of(memory.told_until)
        self._heard = dict.fromkeys(memory.heard, at)
        for row in memory.rows:
            line = Line(row.loan, row.gang, ms_of(row.hour) // HOUR)
            for key, amount in zip(_keys(line), row.values, strict=True):
                if amount:
                    self._meter(key).add(amount, line.hour)
            if row.loan:
                self.gangs.setdefault(row.loan, {})[row.gang] = (row.namespace, row.queue)
            if row.until is not None:
                self._told[line] = Told(row.told, ms_of(row.until), row.revisions)

    def last_on(self, node_name: str, at: int) -> Loan | None:
        """The last loan that a node served by ``at`` (ms), if it was not over for long: members may outlast it."""
        mine = [loan for loan in self.loans.values() if loan.node_name == node_name and ms_of(loan.opened_at) <= at]
        held = [loan for loan in mine if loan.closed_at is None or ms_of(loan.closed_at) >= at - HOUR]
        return max(held, key=lambda loan: loan.opened_at, default=None)

    def _meter(self, key: Key) -> Meter:
        return self._meters.setdefault(key, Meter())

    def _total(self, key: Key, hour: int) -> int:
        meter = self._meters.get(key)
        return meter.total(hour) if meter is not None else 0

    def _until(self, key: Key, hour: int, at: int) -> int:
        meter = self._meters.get(key)
        return meter.until(hour, at) if meter is not None else 0


def _keys(line: Line) -> list[Key]:
    return [Key(line.loan, line.gang, field) for field in (LOAN_FIELDS if line.loan else POOL_FIELDS)]
