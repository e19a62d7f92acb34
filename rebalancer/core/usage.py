"""Who had which GPUs, to the millisecond of event time: every change of a node is booked to its pool and its loan.

Topics have no order among each other, so what is told waits for a short while and is then counted in the order in
which it happened; what comes later than that counts from the node's last change on. A change costs what its node
costs, whatever the size of the fleet. After a restart accounting goes on from the last totals told: changes since
then are told once more and count from when they happened, and while nobody told anything what was last known goes
on. Nothing is decided here, nor decided upon.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias

from rebalancer.core.account import NOBODY, Account
from rebalancer.core.charges import Charge, LoanMove, UsageMemory
from rebalancer.core.courses import Course
from rebalancer.core.facts import Node, Pod
from rebalancer.core.inventory import Inventory
from rebalancer.core.loans import Loan
from rebalancer.core.meters import ms_of
from rebalancer.core.plan import Member, Outcome
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity, GangId, LoanId, NodeUid, PodUid, PoolName
from rebalancer.core.uses import Use, use_of

HOLD = 30_000
"""Milliseconds for which what happened waits for what happened before it: longer than one topic lags behind another
while none of them is late, and over before an hour is told."""


class Lost(NamedTuple):
    """A gang was evicted, and its members' work undone."""

    told: Outcome
    members: Sequence[Member]


Change: TypeAlias = Node | Pod | str | Verdict | Lost | None
"""What is otherwise on a node: a uid is gone from it; None: a loan of it."""


@dataclass(slots=True)
class Place:
    """A node by its name, as it was when it was last counted (ms)."""

    node: Node | None = None
    pods: dict[PodUid, Pod] = field(default_factory=dict)
    pool: PoolName = ""
    use: Use = field(default_factory=dict)
    at: int = 0


class Usage:
    """The accounts of all pools of a cluster."""

    def __init__(self, cluster: str) -> None:
        """Nothing is known and nothing has been counted."""
        self._cluster = cluster
        self._born = self._now = self._moment = self._told = 0
        self._accounts: dict[PoolName, Account] = {}
        self._places: dict[str, Place] = {}
        self._courses: dict[NodeUid, dict[LoanId, Course]] = {}
        self._waiting: list[tuple[int, int, str, Change]] = []
        self._unsaid: dict[PoolName, None] = {}
        self._recalled: dict[LoanId, list[LoanMove]] = {}
        self._busy: dict[NodeUid, bool] = {}  # what telemetry had said by what is counted so far
        self._unnamed: dict[GangId, dict[LoanId, PoolName]] = {}  # loans whose gang's namespace is not known yet
        self._to_name: list[GangId] = []  # those of them that may be known by now

    def account(self, pool: PoolName) -> Account:
        """A pool's account; it begins when the engine did."""
        found = self._accounts.get(pool)
        if found is None:
            found = self._accounts[pool] = Account(self._cluster, pool, self._born)
        return found

    # -- what happens ----------------------------------------------------------------------------------------------

    def clock(self, now: datetime, at: datetime) -> None:
        """The engine's time, and when what is told next happened."""
        self._now, self._moment = max(self._now, ms_of(now)), ms_of(at)
        self._born = self._born or self._now

    def take(self, inventory: Inventory) -> None:
        """Nodes and pods that came, went or changed by what was just told."""
        for name, change in inventory.stirred.read():
            self._wait(self._moment, name, change)
        for pod in inventory.stirred.joined():
            self._name(pod)
        while self._to_name:
            for uid in inventory.gangs.get(self._to_name.pop(), ()):
                self._name(inventory.pods[uid])

    def judged(self, node: Node, verdict: Verdict) -> None:
        """Telemetry says whether a node is busy otherwise than before."""
        self._wait(self._moment, node.name, verdict)

    def loan_changed(self, loan: Loan) -> None:
        """A loan's latest form: its node is counted anew at each of its moments."""
        if loan.virtual:
            return
        account = self.account(loan.lender)
        account.keep(loan)
        if loan.id not in account.loans:
            return
        if account.gangs[loan.id][loan.gang] == NOBODY:
            self._unnamed.setdefault(loan.gang, {})[loan.id] = loan.lender
            self._to_name.append(loan.gang)
        course = self._courses.setdefault(loan.node, {}).setdefault(loan.id, Course(loan))
        course.recall(self._recalled.pop(loan.id, ()))
        if course.follow(loan, self._moment):
            self._unsaid[loan.lender] = None
        for moment, _ in course.moves:
            if moment > account.floor:
                self._wait(moment, loan.node_name, None)

    def evicted(self, told: Outcome, members: Sequence[Member]) -> None:
        """Work was lost with a gang."""
        lost = told.numbers.get("lost_gpu_seconds")
        if told.pool in self._accounts and isinstance(lost, int | float) and lost > 0:
            self._wait(ms_of(told.at), "", Lost(told, members))

    def settle(self, verdicts: Mapping[NodeUid, Verdict]) -> None:
        """Count everything that has waited for long enough."""
        while self._waiting and self._waiting[0][0] <= self._now - HOLD:
            at, _, name, change = heapq.heappop(self._waiting)
            if isinstance(change, Lost):
                self._lose(change, at)
            else:
                self._count(name, change, at, verdicts)

    def _wait(self, at: int, name: str, change: Change) -> None:
        self._told += 1
        heapq.heappush(self._waiting, (at, self._told, name, change))

    # -- counting --------------------------------------------------------------------------------------------------

    def _count(self, name: str, change: Change, at: int, verdicts: Mapping[NodeUid, Verdict]) -> None:
        place = self._places.setdefault(name, Place())
        if isinstance(change, Verdict) and change.node in verdicts:
            self._busy[change.node] = change.activity is Activity.BUSY
        elif isinstance(change, str):
            self._busy.pop(change, None)
        elif isinstance(change, Node) and (place.node is None or place.node.uid != change.uid):
            self._recall_verdict(change, at, verdicts)
        _put(place, change)
        node = place.node
        pool = node.pool if node is not None else ""
        at = max(at, place.at, *(self.account(one).floor for one in (pool, place.pool) if one))
        use: Use = {}
        if node is not None and pool:
            course = self._course_on(node.uid, at)
            loan = course.loan if course is not None else None
            if loan is not None:  # names are kept now: the gang may be gone when the loan is told
                used = {pod.gang: (pod.namespace, pod.queue) for pod in place.pods.values() if pod.held}
                self.account(loan.lender).gangs[loan.id].update(used)
            moving = course is not None and course.at(at) == "moving"
            use = use_of(node, place.pods.values(), loan, moving=moving, busy=self._busy.get(node.uid, False))
        if place.pool == pool:
            self._book(pool, place.use, use, at)
        else:
            self._book(place.pool, place.use, {}, at)
            self._book(pool, {}, use, at)
        place.pool, place.use, place.at = pool, use, at
        if node is None and not place.pods:
            del self._places[name]

    def _recall_verdict(self, node: Node, at: int, verdicts: Mapping[NodeUid, Verdict]) -> None:
        """What telemetry said while nothing was counted of a node; what it says of later counts from then on."""
        known = verdicts.get(node.uid)
        if node.uid in self._busy or known is None or known.activity is not Activity.BUSY:
            return
        since = ms_of(known.since)
        if since <= at:
            self._busy[node.uid] = True
        else:  # it may have been told before its node was known
            self._wait(since, node.name, known)

    def _course_on(self, node: NodeUid, at: int) -> Course | None:
        found = [course for course in self._courses.get(node, {}).values() if course.at(at)]
        return max(found, key=lambda course: (course.loan.opened_at, course.loan.id), default=None)

    def _name(self, pod: Pod) -> None:
        """Remember whose a gang is for which loans were made: it may be gone when they are told."""
        for loan, pool in self._unnamed.pop(pod.gang, {}).items():
            if loan in self._accounts[pool].gangs:
                self._accounts[pool].gangs[loan][pod.gang] = (pod.namespace, pod.queue)

    def _book(self, pool: PoolName, before: Use, use: Use, at: int) -> None:
        if before == use:
            return
        account = self.account(pool)
        for key in {**before, **use}:
            change = use.get(key, 0) - before.get(key, 0)
            if change:
                account.move(key, change, at)

    def _lose(self, lost: Lost, at: int) -> None:
        """Share an eviction's lost work out over the loans that its members were on, by their GPUs."""
        told, account, gpus = lost.told, self.account(lost.told.pool), dict[LoanId, int]()
        for member in lost.members:
            loan = account.last_on(member.node, at)
            if loan is not None:
                gpus[loan.id] = gpus.get(loan.id, 0) + member.gpus
        if not any(gpus.values()):
            gpus = {loan.id: loan.gpus for loan in account.loans.values() if told.target in account.gangs[loan.id]}
        amount = round(float(told.numbers["lost_gpu_seconds"]) * 1000)
        account.lose(told.id, told.target, _shared(amount, gpus), at)
        self._unsaid[told.pool] = None  # outcomes are not kept for as long as accounts are

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
            self._let_go(account.over.pop())
        unsaid = pool in self._unsaid
        self._unsaid.pop(pool, None)
        return charges, unsaid or bool(charges)

    def _let_go(self, loan: Loan) -> None:
        unnamed = self._unnamed.get(loan.gang, {})
        unnamed.pop(loan.id, None)
        if not unnamed:
            self._unnamed.pop(loan.gang, None)
        held = self._courses.get(loan.node, {})
        held.pop(loan.id, None)
        if not held:
            self._courses.pop(loan.node, None)

    def memory(self, pool: PoolName) -> UsageMemory:
        """A pool's running totals, as far as everything is counted."""
        account = self.account(pool)
        mine = [course for held in self._courses.values() for course in held.values() if course.loan.lender == pool]
        moves = [move for course in mine if course.called_off for move in course.memory()]
        return account.memory(max(self._now - HOLD, account.floor), tuple(moves))

    def recall(self, pool: PoolName, memory: UsageMemory | None) -> None:
        """Go on from totals that an earlier engine told, before anything else of the pool is known."""
        if memory is None:
            return
        self.account(pool).recall(memory)
        for move in memory.moves:
            self._recalled.setdefault(move.loan, []).append(move)


def _put(place: Place, change: Change) -> None:
    """Take a change in."""
    match change:
        case Node():
            place.node = change
        case Pod():
            place.pods[change.uid] = change
        case str():
            place.pods.pop(change, None)
            if place.node is not None and place.node.uid == change:
                place.node = None


def _shared(amount: int, gpus: Mapping[LoanId, int]) -> dict[LoanId, int]:
    """An amount by weight, to the last unit."""
    shares: dict[LoanId, int] = {}
    left, weight = amount, sum(gpus.values())
    for loan in sorted(gpus):
        shares[loan] = left * gpus[loan] // weight if weight else 0
        left, weight = left - shares[loan], weight - gpus[loan]
    return shares
