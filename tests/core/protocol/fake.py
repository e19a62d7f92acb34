"""A cluster that answers calls at once and behaves like the real one where the protocol depends on it.

Guarded patches need the right resource version, evictions count against budgets and check the uid, a deleted pod
holds its GPUs until its grace is over. Faults are scripted per call; a *lost* answer is one that came true all the
same. Time moves only when the driver moves it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from rebalancer.core.facts import Budget, LoanMark, Node, Pod, PodPhase, Requirement, Taint
from rebalancer.core.fit import matches
from rebalancer.core.plan import (
    CloseNode,
    EvictGang,
    LendNode,
    Member,
    Method,
    Outcome,
    Plan,
    RestoreNode,
    Step,
)
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    Call,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import ON_LOAN, Mode, OwnerClass

T0 = datetime(2026, 3, 2, 22, 0, tzinfo=UTC)
OWNER = Taint("workload", "inference")
FOREIGN = Taint("example.com/maintenance", "soon", "PreferNoSchedule")
POLICY = Policy(pools={})
OK = AnswerKind.OK


@dataclass(frozen=True)
class Fault:
    """Answer this instead; ``lost``: after it came true all the same."""

    answer: Answer
    lost: bool = False


class Cluster:
    """The fake. ``log`` has every call, ``evicted`` counts accepted real evictions by pod uid."""

    def __init__(self) -> None:
        self.now = T0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, Budget] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.always: Callable[[Call], Fault | None] = _no_fault
        self.log: list[Call] = []
        self.evicted: Counter[str] = Counter()
        self.before: Callable[[Call], object] = _no_fault
        self.sticky: set[str] = set()
        self._version = 100

    def answer(self, call: Call) -> Answer:
        self.before(call)
        self.log.append(call)
        queued = self.faults.get(key(call))
        fault = queued.pop(0) if queued else self.always(call)
        if fault is None:
            return self._perform(call)
        if fault.lost:
            self._perform(call)
        return fault.answer

    def put(self, node: Node) -> None:
        self._version += 1
        self.nodes[node.name] = replace(node, resource_version=str(self._version))

    def edit(self, name: str, taints: Iterable[Taint]) -> None:
        self.put(replace(self.nodes[name], taints=tuple(taints)))

    def move(self, now: datetime) -> None:
        """Time passes: pods whose grace is over are gone, unless a finalizer holds them."""
        self.now = max(self.now, now)
        for pod in list(self.pods.values()):
            if pod.deleting_at is not None and pod.deleting_at <= self.now and pod.uid not in self.sticky:
                del self.pods[pod.uid]

    def next_event(self) -> datetime | None:
        ends = [p.deleting_at for p in self.pods.values() if p.deleting_at and p.uid not in self.sticky]
        return min((end for end in ends if end > self.now), default=None)

    def real_evictions(self) -> list[EvictPod]:
        return [call for call in self.log if isinstance(call, EvictPod) and not call.dry_run]

    def _perform(self, call: Call) -> Answer:
        if isinstance(call, PatchNode):
            return self._patch(call)
        if isinstance(call, EvictPod):
            return self._evict(call)
        return self._read(call)

    def _read(self, call: Call) -> Answer:
        if isinstance(call, ReadNode):
            node = self.nodes.get(call.node_name)
            return Answer(OK, node=node) if node else Answer(AnswerKind.GONE)
        if isinstance(call, ListPods):
            name = call.node_name
            return Answer(OK, pods=tuple(p for p in self.pods.values() if name in (p.node, p.nominated_node)))
        if isinstance(call, ReadMembers):
            return Answer(OK, pods=tuple(self.pods[m.uid] for m in call.members if m.uid in self.pods))
        if isinstance(call, ReadBudgets):
            found = (item for item in self.budgets.values() if item.namespace == call.namespace)
            return Answer(OK, budgets=tuple(found))
        assert isinstance(call, GiveNotice)
        return Answer(OK)

    def _patch(self, call: PatchNode) -> Answer:
        node = self.nodes.get(call.node_name)
        if node is None:
            return Answer(AnswerKind.GONE)
        if node.uid != call.node or node.resource_version != call.resource_version:
            return Answer(AnswerKind.CONFLICT)
        self.put(replace(node, taints=call.taints, loan=call.loan))
        return Answer(OK, node=self.nodes[call.node_name])

    def _evict(self, call: EvictPod) -> Answer:
        member = call.member
        pod = self.pods.get(member.uid)
        if pod is None:
            named = [p for p in self.pods.values() if (p.namespace, p.name) == (member.namespace, member.name)]
            return Answer(AnswerKind.CONFLICT if named else AnswerKind.GONE)
        if pod.deleting_at is not None:
            return Answer(OK)
        covering = [name for name, item in self.budgets.items() if item.selector and matches(item.selector, pod.labels)]
        if len(covering) > 1:
            return Answer(AnswerKind.TWO_BUDGETS)
        if covering and self.budgets[covering[0]].allowed < 1:
            return Answer(AnswerKind.BLOCKED)
        if not call.dry_run:
            for name in covering:
                self.budgets[name] = replace(self.budgets[name], allowed=self.budgets[name].allowed - 1)
            self.evicted[pod.uid] += 1
            self.pods[pod.uid] = replace(pod, deleting_at=self.now + timedelta(seconds=pod.grace_seconds))
        return Answer(OK)


def _no_fault(_: Call) -> Fault | None:
    return None


def key(call: Call) -> str:
    """Name of a call for scripting: its kind, with what it is about where several run in parallel."""
    if isinstance(call, EvictPod):
        return f"{'dry-run' if call.dry_run else 'evict'} {call.member.uid}"
    return call.kind


class Driver:
    """Drives one actor against one cluster, moving time to whatever comes next."""

    def __init__(self, cluster: Cluster, actor: Actor | None = None) -> None:
        self.cluster = cluster
        self.actor = actor or Actor(POLICY, epoch=1)
        self.outcomes: list[Outcome] = []
        self.rounds = 0

    def feed(self, *plans: Plan) -> Driver:
        for plan in plans:
            self.outcomes += self.actor.plan(plan, self.cluster.now)
        return self

    def round(self) -> bool:
        """One round of calls; False when there were none."""
        self.rounds += 1
        assert self.rounds < 5000, "calls are not bounded"
        now = self.cluster.now
        calls = self.actor.advance(now)
        self.outcomes += self.actor.outcomes()
        for call_id, call in calls:
            self.outcomes += self.actor.answered(call_id, self.cluster.answer(call), now)
        return bool(calls)

    def run(self, until: datetime | None = None, *, limit: timedelta = timedelta(hours=2)) -> Driver:
        """Until the actor is idle, nothing can happen any more, or the time is over."""
        end = until or self.cluster.now + limit
        while not self.actor.idle:
            if self.round():
                continue
            wake = self.actor.next_wake(self.cluster.now)
            assert wake is None or wake > self.cluster.now, "woken although there is nothing to do"
            times = [time for time in (wake, self.cluster.next_event()) if time is not None]
            if not times or min(times) > end:
                break
            self.cluster.move(max(min(times), self.cluster.now))
        self.cluster.move(end if until else self.cluster.now)
        return self

    def results(self) -> list[str]:
        """Final results by step, as text."""
        return [f"{item.kind} {item.result.value} {item.because.reason.value}" for item in self.finals()]

    def finals(self) -> list[Outcome]:
        found = [item for item in self.outcomes if item.result.value not in ("started", "blocked")]
        return sorted(found, key=lambda item: item.step)

    def blocked(self) -> list[Reason]:
        return [item.because.reason for item in self.outcomes if item.result.value == "blocked"]


# --- builders -------------------------------------------------------------------------------------------------------


def node(name: str = "n1", *, taints: tuple[Taint, ...] = (OWNER, FOREIGN), loan: LoanMark | None = None) -> Node:
    return Node(
        uid=f"uid-{name}", name=name, pool="infer-a100", model="A100", owner=OwnerClass.INFERENCE, gpus=8,
        capacity=8, created_at=T0, taints=taints, loan=loan, resource_version="1",
    )  # fmt: skip


def mark(name: str = "n1", *, epoch: int = 1, loan: str | None = None, phase: str = "on-loan") -> LoanMark:
    return LoanMark(
        loan=loan or f"loan-{name}", node_uid=f"uid-{name}", lender="infer-a100", borrower=OwnerClass.TRAINING,
        gang="train", due=T0 + timedelta(hours=8), recall_at=T0 + timedelta(hours=7), phase=phase, plan="p0",
        epoch=epoch, opened_at=T0, taint=OWNER, taint_index=0,
    )  # fmt: skip


def lent(name: str = "n1", *, epoch: int = 1) -> Node:
    place = Taint(ON_LOAN, "training")
    return node(name, taints=(place, FOREIGN), loan=mark(name, epoch=epoch))


def pod(uid: str, host: str = "n1", *, gang: str = "train", **changes: object) -> Pod:
    base = Pod(
        uid=uid, name=uid, namespace="ml", gpus=8, phase=PodPhase.RUNNING, owner=OwnerClass.TRAINING, gang=gang,
        workload=f"ml/{gang}", created_at=T0, node=host, labels={"gang": gang}, reclaimable=True, grace_seconds=30,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # the tests' own words, checked by dataclass itself


def budget(allowed: int, gang: str = "train", name: str = "pdb") -> Budget:
    selector = (Requirement("gang", "In", (gang,)),)
    return Budget(f"uid-{name}", "ml", name, selector, allowed=allowed, expected=8, healthy=8)


def member(item: Pod, *budgets: str) -> Member:
    return Member(item.uid, item.namespace, item.name, item.node, item.gpus or 0, budgets)


def lend_step(name: str = "n1") -> LendNode:
    return LendNode(
        loan=f"loan-{name}", node=f"uid-{name}", node_name=name, lender="infer-a100", borrower=OwnerClass.TRAINING,
        gang="train", gpus=8, due=T0 + timedelta(hours=8), recall_at=T0 + timedelta(hours=7), owner_taint=OWNER,
    )  # fmt: skip


def evict_step(pods: Iterable[Pod], *, budgets: tuple[str, ...] = (), **changes: object) -> EvictGang:
    members = tuple(member(item, *budgets) for item in pods)
    gang = next((item.gang for item in pods), "train")
    base = EvictGang(
        gang=gang, workload=f"ml/{gang}", namespace="ml", top_owner=f"Job/{gang}", members=members, whole=True,
        not_before=T0, deadline=T0 + timedelta(minutes=30), notice_seconds=0, grace_seconds=30,
        lost_gpu_seconds=100.0, because=Because(Reason.NOT_NEEDED),
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # the tests' own words, checked by dataclass itself


def plan_of(*steps: Step, **changes: object) -> Plan:
    lends = any(isinstance(step, LendNode) for step in steps)
    base = Plan(
        id="plan-1", pool="infer-a100", method=Method.LEND if lends else Method.RECLAIM, mode=Mode.ACT,
        because=Because(Reason.NOT_NEEDED), steps=steps, made_at=T0, valid_until=T0 + timedelta(minutes=10),
        pressing=not lends, term=1,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]  # the tests' own words, checked by dataclass itself


def take_back(cluster: Cluster, *, budgets: tuple[str, ...] = (), evict: dict[str, object] | None = None,
              **changes: object) -> Plan:  # fmt: skip
    """A plan that takes back every lent node of the cluster, with every gang that is on them."""
    names = sorted(item.name for item in cluster.nodes.values() if item.loan is not None)
    gangs: dict[str, list[Pod]] = {}
    for item in sorted(cluster.pods.values(), key=lambda item: item.uid):
        gangs.setdefault(item.gang, []).append(item)
    steps: list[Step] = [CloseNode(f"loan-{name}", f"uid-{name}", name) for name in names]
    steps += [evict_step(pods, budgets=budgets, **(evict or {})) for _, pods in sorted(gangs.items())]
    steps += [RestoreNode(f"loan-{name}", f"uid-{name}", name, T0 + timedelta(hours=8)) for name in names]
    return plan_of(*steps, **changes)


def lending_cluster(*names: str) -> Cluster:
    cluster = Cluster()
    for name in names or ("n1",):
        cluster.put(node(name))
    return cluster


def lent_cluster(*names: str, pods: Iterable[Pod] = ()) -> Cluster:
    cluster = Cluster()
    for name in names or ("n1",):
        cluster.put(lent(name))
    for item in pods:
        cluster.pods[item.uid] = item
    return cluster
