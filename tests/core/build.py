"""Builders for tests of the core: small fleets, gangs and policies, and a rig that tells an engine about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from rebalancer.core.engine import Engine
from rebalancer.core.facts import (
    Budget,
    LoanMark,
    Node,
    Pod,
    PodPhase,
    Requirement,
    Taint,
    Toleration,
)
from rebalancer.core.instructions import Instruction, PublishPlan
from rebalancer.core.loans import Loan
from rebalancer.core.plan import EvictGang, Outcome, Plan, Result
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    Fact,
    FactDeleted,
    FactKind,
    FactObserved,
    HeartbeatHeard,
    OutcomeReported,
    SnapshotBegan,
    SnapshotEnded,
    Stimulus,
    TermBegan,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import Heartbeat, Verdict
from rebalancer.core.units import CLOSING, ON_LOAN, Activity, Mode, OwnerClass
from rebalancer.core.windows import Window

START = datetime(2026, 3, 2, 22, 0, tzinfo=UTC)
OWNER_TAINT = Taint("workload", "inference")
ZONE = ZoneInfo("UTC")
ALWAYS = Window("always", ZONE, always=True)


def pool_policy(name: str = "infer-a100", **changes: Any) -> PoolPolicy:
    """An inference pool that lends to training at any hour, in act mode."""
    base = PoolPolicy(
        name=name,
        model="A100",
        owner=OwnerClass.INFERENCE,
        mode=Mode.ACT,
        windows=(ALWAYS,),
        lends_to=(OwnerClass.TRAINING,),
        owner_taint=OWNER_TAINT,
    )
    return replace(base, **changes)


def policy(*pools: PoolPolicy, **changes: Any) -> Policy:
    """A policy of these pools (default: one lender and one training pool)."""
    chosen = pools or (pool_policy(),)
    training = PoolPolicy("train-a100", "A100", OwnerClass.TRAINING, Mode.ACT)
    named = {pool.name: pool for pool in (*chosen, training)}
    return replace(Policy(named), **changes)


def node(name: str, pool: str = "infer-a100", **changes: Any) -> Node:
    """An 8-GPU node at home; training pools carry no owner taint."""
    owner = OwnerClass.TRAINING if pool.startswith("train") else OwnerClass.INFERENCE
    base = Node(
        uid=f"uid-{name}",
        name=name,
        pool=pool,
        model="A100",
        owner=owner,
        gpus=8,
        capacity=8,
        created_at=START - timedelta(days=30),
        labels={"gpu-model": "A100", "node-pool": pool},
        taints=(OWNER_TAINT,) if owner is OwnerClass.INFERENCE else (),
        resource_version="",
    )
    return replace(base, **changes)


def replica(name: str, on: str = "", **changes: Any) -> Pod:
    """An inference replica of 8 GPUs, bound if ``on`` names a node."""
    base = Pod(
        uid=f"uid-{name}",
        name=name,
        namespace="serving",
        gpus=8,
        phase=PodPhase.RUNNING if on else PodPhase.PENDING,
        owner=OwnerClass.INFERENCE,
        gang=f"serving/{name}",
        workload="serving/chat",
        created_at=START - timedelta(hours=1),
        node=on,
        node_terms=((Requirement("gpu-model", "In", ("A100",)),),),
        tolerations=(Toleration("workload", "Equal", "inference"),),
        protected=("inference",),
        controller_kind="ReplicaSet",
    )
    return replace(base, **changes)


def gang(name: str, pods: int = 1, on: Sequence[str] = (), **changes: Any) -> list[Pod]:
    """A reclaimable training gang of 8-GPU pods that tolerates the on-loan taint; bound to ``on`` if given."""
    return [
        replace(
            Pod(
                uid=f"uid-{name}-{index}",
                name=f"{name}-{index}",
                namespace="ml",
                gpus=8,
                phase=PodPhase.RUNNING if on else PodPhase.PENDING,
                owner=OwnerClass.TRAINING,
                gang=f"ml/{name}",
                workload=f"ml/{name}",
                created_at=START - timedelta(hours=2),
                node=on[index] if on else "",
                gang_size=pods,
                gang_min=pods,
                node_terms=((Requirement("gpu-model", "In", ("A100", "L20")),),),
                tolerations=(Toleration(ON_LOAN, "Equal", "training"),),
                reclaimable=True,
                controller_kind="Job",
                top_owner=f"Job/ml/{name}",
                started_at=START - timedelta(hours=1) if on else None,
                labels={"job": name},
            ),
            **changes,
        )
        for index in range(pods)
    ]


def budget(name: str, job: str, allowed: int, **changes: Any) -> Budget:
    """A disruption budget over the pods of one job, ``minAvailable`` 0 unless changed."""
    base = Budget(
        uid=f"uid-budget-{name}",
        namespace="ml",
        name=name,
        selector=(Requirement("job", "In", (job,)),),
        allowed=allowed,
        expected=8,
        healthy=8,
        min_available=0,
    )
    return replace(base, **changes)


def lent(item: Node, borrower: str = "training", due: datetime = START + timedelta(hours=6), **mark: Any) -> Node:
    """The node as it looks while it is lent."""
    values: dict[str, Any] = {
        "loan": f"loan-{item.name}",
        "node_uid": item.uid,
        "lender": item.pool,
        "borrower": OwnerClass(borrower),
        "gang": "ml/any",
        "due": due,
        "recall_at": due - timedelta(minutes=20),
        "phase": "on-loan",
        "plan": "plan-0",
        "epoch": 1,
        "opened_at": START - timedelta(hours=2),
        "taint": OWNER_TAINT,
        "taint_index": 0,
    }
    return replace(item, taints=(Taint(ON_LOAN, borrower),), loan=LoanMark(**(values | mark)))


class Rig:
    """An engine with a clock of its own; every stimulus is followed by the invariants."""

    def __init__(self, chosen: Policy | None = None, *, now: datetime = START, term: int = 1) -> None:
        """An engine that knows nothing yet, in a term unless ``term`` is 0."""
        self.engine = Engine("test", chosen or policy())
        self.now = now
        self._versions = 0
        if term:
            self.tell(TermBegan(term))

    @property
    def loans(self) -> dict[str, Loan]:
        """The ledger."""
        return self.engine.state.loans

    def tell(self, *stimuli: Stimulus) -> list[Instruction]:
        """Tell stimuli in order; the invariants hold after each."""
        answers: list[Instruction] = []
        for stimulus in stimuli:
            answers += self.engine.handle(stimulus, self.now)
            self.engine.check()
        return answers

    def see(self, *facts: Fact) -> None:
        """Objects observed now."""
        for fact in facts:
            self.tell(FactObserved(fact, self.now))

    def lose(self, of: FactKind, *uids: str) -> None:
        """Objects deleted now."""
        for uid in uids:
            self.tell(FactDeleted(of, uid, self.now))

    def sync(self, *facts: Fact) -> None:
        """A complete picture: snapshots of nodes and pods that contain these facts (and what was seen before)."""
        inventory = self.engine.state.inventory
        everything = {fact.uid: fact for fact in (*inventory.nodes.values(), *inventory.pods.values(), *facts)}
        groups: tuple[tuple[FactKind, type], ...] = (("node", Node), ("pod", Pod))
        for of, cls in groups:
            mine = [fact for fact in everything.values() if isinstance(fact, cls)]
            self.tell(SnapshotBegan(of, "s", self.now), *(FactObserved(fact, self.now) for fact in mine))
            self.tell(SnapshotEnded(of, "s", len(mine), self.now))
        self.see(*(fact for fact in facts if not isinstance(fact, Node | Pod)))

    def idle(self, *names: str, since: datetime | None = None) -> None:
        """Verdict idle (default: for an hour) for these nodes, or for all."""
        self.judge(Activity.IDLE, 0.0, names, since or self.now - timedelta(hours=1))

    def busy(self, *names: str, utilisation: float = 6.0) -> None:
        """Verdict busy for these nodes."""
        self.judge(Activity.BUSY, utilisation, names, self.now - timedelta(hours=1))

    def judge(self, activity: Activity, utilisation: float | None, names: Sequence[str], since: datetime) -> None:
        """Any verdict for these nodes (all when none is named)."""
        nodes = self.engine.state.inventory.nodes
        for uid in [uid for uid, item in nodes.items() if not names or item.name in names]:
            self.tell(VerdictGiven(Verdict(uid, activity, utilisation, 8, since, self.now)))

    def pass_time(self, minutes: float = 1.0, *, heartbeat: bool = True) -> list[Plan]:
        """Move the clock, let telemetry be heard, and make plans."""
        self.now += timedelta(minutes=minutes)
        if heartbeat:
            self.tell(HeartbeatHeard(Heartbeat("w", self.now, (0,), 1, 0.0)))
        return self.plans()

    def watch(self, minutes: int = 25) -> list[Plan]:
        """Look every minute for a while: so long that the dwell of spare GPUs is complete."""
        return [plan for _ in range(minutes) for plan in self.pass_time()]

    def plans(self) -> list[Plan]:
        """Plans made now."""
        return [item.plan for item in self.tell(TimePassed()) if isinstance(item, PublishPlan)]

    def report(self, plan: Plan, result: Result = Result.DONE, *, kinds: Iterable[str] = (), **numbers: float) -> None:
        """Outcomes for the steps of a plan (of some kinds only, if named)."""
        wanted = set(kinds)
        for index, step in enumerate(plan.steps):
            if wanted and step.kind not in wanted:
                continue
            target = step.gang if isinstance(step, EvictGang) else step.node
            loan = "" if isinstance(step, EvictGang) else step.loan
            because = Because(Reason.CONFIRMED)
            outcome = Outcome(
                plan.id, plan.pool, index, step.kind, target, result, because, self.now, loan, 1, dict(numbers)
            )
            self.tell(OutcomeReported(outcome))

    def lend(self, plan: Plan) -> None:
        """Carry a lend plan out: marks on the nodes, outcomes, and the gang bound to them."""
        nodes = self.engine.state.inventory.nodes
        names = []
        for step in plan.steps:
            assert step.kind == "lend"
            names.append(step.node_name)
            self.see(lent(nodes[step.node], due=step.due, loan=step.loan, gang=step.gang, opened_at=self.now))
        self.report(plan)
        first = plan.steps[0]
        assert first.kind == "lend"
        waiting = self.engine.state.inventory.gang_pods(first.gang)
        for pod, name in zip(waiting, names, strict=False):
            self.see(replace(pod, node=name, phase=PodPhase.RUNNING, started_at=self.now))

    def bring_home(self, plan: Plan, seconds: float = 120.0) -> None:
        """Carry a take-back plan out: pods gone, marks off, outcomes."""
        nodes = self.engine.state.inventory.nodes
        self.report(plan, kinds=("close",))
        for step in plan.steps:
            if step.kind == "evict":
                self.lose("pod", *(member.uid for member in step.members))
        self.report(plan, kinds=("evict",), members=1)
        self.now += timedelta(seconds=seconds)
        for step in plan.steps:
            if step.kind == "restore":
                self.see(replace(nodes[step.node], loan=None, taints=(OWNER_TAINT,)))
        self.report(plan, kinds=("restore",), return_seconds=seconds)


def closing(item: Node) -> Node:
    """The node with our closing taint on."""
    return replace(item, taints=(*item.taints, Taint(CLOSING)))
