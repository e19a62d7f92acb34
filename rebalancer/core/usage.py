"""Who had which GPUs, to the millisecond of event time: every change of a node is booked to its pool and its loan.

A change costs what its node costs, whatever the size of the fleet. A node's changes count in the order in which they
are told, never before its last one; what is told ahead of the clock waits until the clock gets there. After a restart
accounting goes on from the last totals told: changes since then are told once more and count from when they happened,
and while nobody told anything what was last known goes on. Nothing is decided here, nor decided upon.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from rebalancer.core.account import NOBODY, Account
from rebalancer.core.charges import Charge, UsageMemory
from rebalancer.core.facts import Pod
from rebalancer.core.inventory import Inventory
from rebalancer.core.loans import Loan
from rebalancer.core.meters import ms_of
from rebalancer.core.plan import Member, Outcome
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity, LoanId, NodeUid, PoolName
from rebalancer.core.uses import Use, out, use_of


class _Seen(NamedTuple):
    """What a node was last counted as, and since when (ms)."""

    pool: PoolName
    use: Use
    at: int


_NOT_SEEN = _Seen("", {}, 0)


class Usage:
    """The accounts of all pools of a cluster."""

    def __init__(self, cluster: str) -> None:
        """Nothing is known and nothing has been counted."""
        self._cluster = cluster
        self._now = 0
        self._accounts: dict[PoolName, Account] = {}
        self._seen: dict[NodeUid, _Seen] = {}
        self._loans: dict[NodeUid, dict[LoanId, Loan]] = {}
        self._stirred: dict[NodeUid, None] = {}
        self._waiting: list[tuple[int, NodeUid]] = []
        self._unsaid: dict[PoolName, None] = {}

    def account(self, pool: PoolName) -> Account:
        """A pool's account; it begins when it is first asked for."""
        found = self._accounts.get(pool)
        if found is None:
            found = self._accounts[pool] = Account(self._cluster, pool, self._now)
        return found

    # -- what happens ----------------------------------------------------------------------------------------------

    def clock(self, now: datetime) -> None:
        """The engine's time."""
        self._now = max(self._now, ms_of(now))

    def stir(self, node: NodeUid) -> None:
        """Something about a node changed that no fact tells."""
        self._stirred[node] = None

    def loan_changed(self, loan: Loan) -> None:
        """A loan's latest form: its node is counted anew at each of its moments."""
        if loan.virtual:
            return
        account, held = self.account(loan.lender), self._loans.setdefault(loan.node, {})
        before = account.loans.get(loan.id)
        account.keep(loan)
        if loan.id not in account.loans:
            return
        held[loan.id] = loan
        self.stir(loan.node)
        seen = self._seen.get(loan.node)
        known = max(account.floor, seen.at if seen is not None else 0)
        for moment in (loan.opened_at, loan.lent_at, loan.closing_at, loan.closed_at):
            if moment is not None and ms_of(moment) > known:
                heapq.heappush(self._waiting, (ms_of(moment), loan.node))
        if before is not None and _unsaid_by(before, loan):
            self._unsaid[loan.lender] = None

    def evicted(self, told: Outcome, members: Iterable[Member]) -> None:
        """Work lost with a gang, shared out over the loans that its members were on by their GPUs."""
        lost = told.numbers.get("lost_gpu_seconds")
        account = self._accounts.get(told.pool)
        if account is None or not isinstance(lost, int | float) or lost <= 0:
            return
        at, gpus = ms_of(told.at), dict[LoanId, int]()
        for member in members:
            loan = account.out_on(member.node, at)
            if loan is not None:
                gpus[loan.id] = gpus.get(loan.id, 0) + member.gpus
        if not any(gpus.values()):
            gpus = {loan.id: loan.gpus for loan in account.loans.values() if told.target in account.gangs[loan.id]}
        account.lose(told.id, told.target, _shared(round(lost * 1000), gpus), at)
        self._unsaid[told.pool] = None  # outcomes are not kept for as long as accounts are

    def settle(self, inventory: Inventory, verdicts: Mapping[NodeUid, Verdict], at: datetime) -> None:
        """Count every node that something happened to at ``at``, after what waited for an earlier moment."""
        moment = ms_of(at)
        upto = min(moment, self._now)
        while self._waiting and self._waiting[0][0] <= upto:
            due, uid = heapq.heappop(self._waiting)
            self._count(uid, inventory, verdicts, due)
        if inventory.stirred or self._stirred:
            for uid in (*inventory.stirred, *(uid for uid in self._stirred if uid not in inventory.stirred)):
                self._count(uid, inventory, verdicts, moment)
            inventory.stirred.clear()
            self._stirred.clear()

    def on_loan(self, node: NodeUid) -> bool:
        """Whether a verdict on this node matters to anybody's account."""
        return node in self._loans

    def _count(self, uid: NodeUid, inventory: Inventory, verdicts: Mapping[NodeUid, Verdict], at: int) -> None:
        if at > self._now:
            heapq.heappush(self._waiting, (at, uid))
            return
        node, seen = inventory.nodes.get(uid), self._seen.pop(uid, _NOT_SEEN)
        pool = node.pool if node is not None else ""
        at = max(at, seen.at, *(self.account(name).floor for name in (pool, seen.pool) if name))
        use: Use = {}
        if node is not None and pool:
            loan, verdict = self._loan_on(uid, at), verdicts.get(uid)
            busy = verdict is not None and verdict.activity is Activity.BUSY
            guests = list(inventory.guests(node.name))
            use = use_of(node, guests, loan, at, busy=busy)
            if loan is not None:
                self._name_gangs(loan, guests, inventory)
            self._seen[uid] = _Seen(pool, use, at)
        if seen.pool == pool:
            self._book(pool, seen.use, use, at)
        else:
            self._book(seen.pool, seen.use, {}, at)
            self._book(pool, {}, use, at)

    def _name_gangs(self, loan: Loan, guests: Iterable[Pod], inventory: Inventory) -> None:
        """Remember whose the gangs are that use a loan, or for which it was made: they may be gone when it is told."""
        gangs = self.account(loan.lender).gangs[loan.id]
        gangs.update((pod.gang, (pod.namespace, pod.queue)) for pod in guests if pod.held)
        if gangs[loan.gang] == NOBODY:
            asked = (inventory.pods[uid] for uid in inventory.gangs.get(loan.gang, ()))
            gangs.update((pod.gang, (pod.namespace, pod.queue)) for pod in asked)

    def _loan_on(self, uid: NodeUid, at: int) -> Loan | None:
        held = self._loans.get(uid)
        if held is None:
            return None
        found = [loan for loan in held.values() if out(loan, at)]
        return max(found, key=lambda loan: (loan.opened_at, loan.id), default=None)

    def _book(self, pool: PoolName, before: Use, use: Use, at: int) -> None:
        if before == use:
            return
        account = self.account(pool)
        for key in {**before, **use}:
            change = use.get(key, 0) - before.get(key, 0)
            if change:
                account.move(key, change, at)

    # -- telling and remembering -----------------------------------------------------------------------------------

    def tell(self, pool: PoolName, model: str, *, behind: bool) -> tuple[list[Charge], bool]:
        """What is to be told of a pool now, and whether its totals should be told for a restart.

        While the streams are behind, what happened before an hour's end may still be on its way.
        """
        account = self._accounts.get(pool)
        if account is None:
            return [], False
        charges = [] if behind else account.tell(self._now, model)
        while account.over:
            over = account.over.pop()
            held = self._loans.get(over.node, {})
            held.pop(over.id, None)
            if not held:
                self._loans.pop(over.node, None)
        unsaid = pool in self._unsaid
        self._unsaid.pop(pool, None)
        return charges, unsaid or bool(charges)

    def memory(self, pool: PoolName) -> UsageMemory | None:
        """A pool's running totals up to now."""
        account = self._accounts.get(pool)
        return account.memory(self._now) if account is not None else None

    def recall(self, pool: PoolName, memory: UsageMemory | None, made_at: datetime) -> None:
        """Go on from totals that an earlier engine told, before anything else of the pool is known."""
        if memory is not None:
            self.account(pool).recall(memory, ms_of(made_at))


def _unsaid_by(before: Loan, after: Loan) -> bool:
    """Whether a moment of a loan that counted is gone from its record: after a restart nobody could tell it."""
    pairs = ((before.closing_at, after.closing_at), (before.closed_at, after.closed_at))
    return any(known is not None and known != now for known, now in pairs)


def _shared(amount: int, gpus: Mapping[LoanId, int]) -> dict[LoanId, int]:
    """An amount by weight, to the last unit."""
    shares: dict[LoanId, int] = {}
    left, weight = amount, sum(gpus.values())
    for loan in sorted(gpus):
        shares[loan] = left * gpus[loan] // weight if weight else 0
        left, weight = left - shares[loan], weight - gpus[loan]
    return shares
