"""Everything the engine remembers, in one place that methods read and only the engine's handlers write.

Nothing here decides; the small questions answered here are the ones that several methods ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rebalancer.core.arrivals import Arrivals, emptying
from rebalancer.core.books import Books, batched_starts, due_soon_after, order, reserve_of
from rebalancer.core.demand import PoolWatch, ready_gpus
from rebalancer.core.facts import Node, Pod
from rebalancer.core.gangs import Borrower
from rebalancer.core.headroom import return_seconds
from rebalancer.core.instructions import ClearAlert, RaiseAlert, WorkloadRecord
from rebalancer.core.inventory import Inventory
from rebalancer.core.keeping import Keeping
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.plan import EvictGang, Method, Outcome, Plan
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.reasons import Because
from rebalancer.core.telemetry import Verdict
from rebalancer.core.underway import OpenPlan
from rebalancer.core.units import (
    Activity,
    GangId,
    LoanId,
    Mode,
    NodeUid,
    OwnerClass,
    PlanId,
    PodUid,
    PoolName,
    WorkloadId,
)
from rebalancer.core.usage import Usage

RETURNS_KEPT = 32
"""Measured return times remembered per pool."""


@dataclass(frozen=True, slots=True)
class Stray:
    """Since when a node bears something of ours without a mark, and from when that is worth telling."""

    since: datetime
    telling: datetime


class State:
    """The engine's memory. Collections are insertion-ordered; sort before a decision depends on order."""

    def __init__(self, cluster: str, policy: Policy) -> None:
        """Start empty under a policy."""
        self.cluster = cluster
        self.policy = policy
        self.inventory, self.usage = Inventory(), Usage(cluster)
        self.verdicts: dict[NodeUid, Verdict] = {}
        self.heartbeats: dict[int, datetime] = {}
        self.loans: dict[LoanId, Loan] = {}
        self.loan_of: dict[NodeUid, LoanId] = {}
        self.away: dict[PoolName, dict[LoanId, None]] = {}
        self.virtual: dict[PoolName, dict[LoanId, None]] = {}
        self.lost: dict[LoanId, None] = {}
        self.expiring: list[tuple[datetime, PlanId]] = []
        self.turns: dict[PoolName, int] = {}
        self.changes = self.hands = self.records = self.revived = 0
        """How often loans and plans, busy hands, records of workloads, and telemetry heard of again have changed."""
        self.gangs: dict[tuple[OwnerClass, ...], tuple[tuple[object, ...], tuple[Borrower, ...]]] = {}
        self.refusals: tuple[tuple[object, ...], dict[GangId, Because | None]] = ((), {})
        """Whole gangs that wait, and why they may not borrow: the same for every pool, asked once a moment."""
        self.elsewhere: tuple[tuple[int, int], tuple[NodeUid, ...]] = ((-1, -1), ())
        self._books: dict[PoolName, tuple[tuple[object, ...], Books]] = {}
        self.workloads: dict[WorkloadId, WorkloadRecord] = {}
        self.plans: dict[PlanId, OpenPlan] = {}
        self.busy_nodes: dict[NodeUid, PlanId] = {}
        self.busy_gangs: dict[GangId, PlanId] = {}
        self.finished: dict[PlanId, OpenPlan] = {}
        self.complaints: dict[tuple[PlanId, int], Outcome] = {}
        self.unmarked: dict[NodeUid, datetime] = {}
        self.strays: dict[NodeUid, Stray] = {}
        self.unrenewed: dict[LoanId, datetime] = {}
        self.refused_policy = ""
        self.blocked_gangs: dict[GangId, tuple[datetime, Because]] = {}
        self.home_since: dict[NodeUid, datetime] = {}
        self.watches: dict[PoolName, PoolWatch] = {}
        self.returns: dict[PoolName, deque[float]] = {}
        self.learnt_until: dict[PoolName, datetime] = {}
        self.touched: deque[tuple[datetime, PoolName, int]] = deque()
        self.namespace_evictions: dict[str, deque[datetime]] = {}
        self.recalls: dict[NodeUid, Because] = {}
        self.alerts: dict[str, RaiseAlert] = {}
        self.keeping, self.arrivals = Keeping(), Arrivals()
        self.synced: dict[str, bool] = {}
        self.snapshots: dict[str, tuple[str, dict[str, None]]] = {}
        self.listing_since: dict[str, datetime] = {}  # begin of the first list that came to no end since
        self.behind, self.lag_seconds = False, 0.0
        self.term = -1  # none yet: terms are offsets, and the first offset is 0

    # -- policy and brakes -----------------------------------------------------------------------------------

    def pool_policy(self, pool: PoolName) -> PoolPolicy | None:
        """The pool's policy, None for a pool that only nodes name."""
        return self.policy.pools.get(pool)

    def mode(self, pool: PoolName) -> Mode:
        """The mode in force: the control object's override, else the policy's, else shadow."""
        override = self.inventory.control.modes.get(pool)
        if override is not None:
            return override
        policy = self.pool_policy(pool)
        return policy.mode if policy else Mode.SHADOW

    def paused(self, pool: PoolName) -> bool:
        """Whether an operator has put lending of this pool on hold."""
        control = self.inventory.control
        return control.paused or control.retired or pool in control.paused_pools

    def complete(self, now: datetime) -> bool:
        """Whether nodes and pods are known completely, the streams are up to date, and no list hangs for too long."""
        return all(self.synced.get(of) and not self._blind(of, now) for of in ("node", "pod")) and not self.behind

    def _blind(self, of: str, now: datetime) -> bool:
        """Whether a list of this kind is under way for longer than anything may be believed unseen."""
        since = self.listing_since.get(of)
        return since is not None and now - since > self.policy.activities.freshness

    def recall_alerts(self, standing: Sequence[RaiseAlert], cleared: Sequence[ClearAlert]) -> None:
        """Alerts as they were before a restart."""
        self.alerts.update((alert.id, alert) for alert in standing)
        for alert in cleared:
            self.keeping.alert_cleared(alert.id, alert.at)

    def seen(self, of: str, uid: str) -> None:
        """Remember that a running snapshot of this kind contains the object."""
        running = self.snapshots.get(of)
        if running is not None:
            running[1][uid] = None

    # -- telemetry -------------------------------------------------------------------------------------------

    def heard(self, partition: int, at: datetime) -> None:
        """A sample partition was judged up to ``at`` (event time)."""
        before = self.heartbeats.get(partition)
        if before is None or at - before > self.policy.activities.freshness:
            self.revived += 1
        self.heartbeats[partition] = max(at, before or at)

    def fresh(self, verdict: Verdict, now: datetime) -> bool:
        """Whether a verdict, or a heartbeat that covers it, is within the freshness bound of event time."""
        heard = self.heartbeats.get(verdict.partition, verdict.at)
        return now - max(heard, verdict.at) <= self.policy.activities.freshness

    def activity(self, node: NodeUid, now: datetime) -> Activity:
        """Busy, idle or unknown; a stale verdict is unknown."""
        verdict = self.verdicts.get(node)
        return verdict.activity if verdict is not None and self.fresh(verdict, now) else Activity.UNKNOWN

    # -- loans and plans -------------------------------------------------------------------------------------

    def turned(self, *pools: PoolName) -> None:
        """A loan or a plan of these pools changed: what was reckoned for them no longer holds."""
        self.changes += 1
        for pool in pools:
            self.turns[pool] = self.turns.get(pool, 0) + 1

    def books(self, lender: PoolName) -> Books:
        """What the ledger adds up to for a lender."""
        turns = (self.turns.get(lender, 0), self.inventory.population, self.inventory.turns.get(lender, 0))
        known = self._books.get(lender)
        key = (*turns, self.policy)
        if known is None or known[0][:3] != turns or known[0][3] is not self.policy:
            known = self._books[lender] = (key, self._reckoned(lender))
        return known[1]

    def _reckoned(self, lender: PoolName) -> Books:
        loans = sorted((self.loans[uid] for uid in self.away.get(lender, ())), key=order)
        acting = (LoanPhase.ON_LOAN, LoanPhase.RECALLING)
        nodes, hands = self.inventory.nodes, self.busy_nodes
        free = [loan for loan in loans if loan.phase in acting and loan.node in nodes and loan.node not in hands]
        later = due_soon_after(free, self.policy.pace.per)
        busy = [uid for uid in self.busy_nodes if uid in nodes and nodes[uid].pool == lender]
        changing = {uid for uid in busy if uid not in self.loan_of} | {loan.node for loan in loans if not loan.virtual}
        arriving = self.arrivals.of(lender)
        coming = [loan.node for loan in (*arriving, *(loan for loan in free if emptying(self.inventory, loan)))]
        coming += [uid for uid in busy if uid in self.loan_of and self.in_return(uid)]
        return Books(
            loans=tuple(loans),
            reserve=reserve_of(loans),
            dues=tuple(loan.due for loan in loans),
            gpus=sum(loan.gpus for loan in loans),
            virtual=sum(loan.gpus for loan in loans if loan.virtual),
            returning=sum(
                loan.gpus for loan in loans if loan.phase is LoanPhase.RECALLING or self.in_return(loan.node)
            ),
            arriving=sum(loan.gpus for loan in arriving),
            ready=ready_gpus(self.inventory, lender, changing),
            free_to_act=tuple(free),
            later=later,
            starts=batched_starts(free, later, self.policy.pace),
            unfinished=any(loan.phase is LoanPhase.RECALLING for loan in free),
            coming=tuple(sorted(coming, key=lambda uid: nodes[uid].name)),
            plans=tuple(sorted(uid for uid, item in self.plans.items() if item.plan.pool == lender)),
        )

    def open_loans(self, lender: PoolName | None = None) -> Sequence[Loan]:
        """Loans whose node is away, or about to be, in due and name order."""
        if lender is not None:
            return self.books(lender).loans
        return sorted((loan for pool in self.away for loan in self.books(pool).loans), key=order)

    def virtually_away(self, lender: PoolName) -> int:
        """GPUs that only the shadow ledger has lent."""
        return self.books(lender).virtual

    def away_gpus(self, lender: PoolName) -> int:
        """GPUs of a lender's open loans."""
        return self.books(lender).gpus

    def in_return(self, node: NodeUid) -> bool:
        """Whether an open plan brings this node home."""
        plan = self.plans.get(self.busy_nodes.get(node, ""))
        stays = (Method.LEND, Method.RENEW)
        return plan is not None and plan.plan.method not in stays and not plan.plan.awaits_approval

    def at_home(self, node: Node) -> bool:
        """Whether the owner has the node for itself: no mark, no open loan, no plan that takes it away."""
        return node.loan is None and node.uid not in self.loan_of and node.uid not in self.busy_nodes

    def quarantined(self, uid: NodeUid) -> bool:
        """Whether a node bears something of ours that neither a plan nor the ledger accounts for."""
        loan = self.loans.get(self.loan_of.get(uid, ""))
        return uid in self.strays and uid not in self.busy_nodes and (loan is None or loan.virtual)

    def at_hand(self, node: Node) -> bool:
        """Whether the owner's pods may land there: as at home, or lent in the shadow ledger only."""
        loan = self.loans.get(self.loan_of.get(node.uid, ""))
        return self.at_home(node) or (loan is not None and loan.virtual and node.loan is None)

    def return_time(self, lender: PoolName) -> timedelta:
        """Closing to restored: learnt from this pool's returns, the lead time until then."""
        measured = self.returns.get(lender, ())
        return timedelta(seconds=return_seconds(tuple(measured), self.policy.borrowing.lead_time))

    def leaving(self) -> set[PodUid]:
        """Pods that open plans are about to evict, or have evicted and not yet seen gone."""
        steps = [step for open_plan in self.plans.values() for step in open_plan.pending_steps()]
        return {member.uid for step in steps if isinstance(step, EvictGang) for member in step.members}

    def least_members(self, gang: GangId, pods: Sequence[Pod]) -> int:
        """How many members a gang needs to live: what its pods or its gang object say, whichever is more."""
        spec = self.inventory.specs.get(gang)
        return max(1, spec.min_member if spec is not None else 1, *(pod.gang_min for pod in pods))

    def leave_time(self, node: Node) -> timedelta:
        """How long the gangs on a node may take to leave: notice and grace of their slowest members."""
        gangs = {pod.gang for pod in self.lent_pods(node) if pod.reclaimable}
        pods = [pod for gang in gangs for pod in self.inventory.gang_pods(gang) if not pod.terminal]
        return timedelta(seconds=max((pod.grace_seconds + pod.notice_seconds for pod in pods), default=0))

    def in_flight(self) -> dict[str, int]:
        """Members of open eviction steps per budget (namespace/name), those already deleting left out."""
        counts: dict[str, int] = {}
        for open_plan in self.plans.values():
            for step in open_plan.pending_steps():
                for member in step.members if isinstance(step, EvictGang) else ():
                    pod = self.inventory.pods.get(member.uid)
                    if pod is None or pod.deleting_at is not None:
                        continue
                    for budget in member.budgets:
                        key = f"{member.namespace}/{budget}"
                        counts[key] = counts.get(key, 0) + 1
        return counts

    def touch(self, plan: Plan) -> None:
        """Let a plan count against the caps: nodes that it lends, or closes because of load or waiting pods.

        One that waits for a person counts once it is approved.
        """
        if plan.method in (Method.LEND, Method.RECLAIM) and plan.mode is Mode.ACT and not plan.awaits_approval:
            nodes = sum(step.kind in ("lend", "close") for step in plan.steps)
            self.touched.append((plan.made_at, plan.pool, nodes))

    def room_in_caps(self, pool: PoolName, now: datetime) -> int:
        """Nodes that may still be touched by lending or load-driven reclaim in the rolling span."""
        pace = self.policy.pace
        while self.touched and now - self.touched[0][0] >= pace.per:
            self.touched.popleft()
        of_pool = sum(count for _, name, count in self.touched if name == pool)
        of_all = sum(count for _, _, count in self.touched)
        return max(0, min(pace.nodes_per_pool - of_pool, pace.nodes_per_cluster - of_all))

    def lent_pods(self, node: Node) -> list[Pod]:
        """Pods on a node that hold GPUs, by gang and name."""
        pods = [pod for pod in self.inventory.guests(node.name) if pod.gpus is None or pod.gpus > 0]
        return sorted(pods, key=lambda pod: (pod.gang, pod.name, pod.uid))
