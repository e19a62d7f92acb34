"""Any history of stimuli keeps the invariants; repeats change nothing; order between topics changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rebalancer.core.facts import Control, PodPhase
from rebalancer.core.plan import Method, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    Fact,
    FactDeleted,
    FactObserved,
    OutcomeReported,
    Stimulus,
    StreamLagged,
    VerdictGiven,
)
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity
from tests.core.build import START, Rig, budget, gang, lent, node, policy, pool_policy, replica

NAMES = [f"n{index}" for index in range(6)]
GANGS = ["a", "b", "c"]
LENDER = pool_policy(floor_nodes=0, floor_share=0.0)


class Histories(RuleBasedStateMachine):
    """Nodes come, go and are marked; pods wait, run, leave; telemetry and act say what they like; time passes."""

    def __init__(self) -> None:
        """A fleet of six nodes, two of them lent."""
        super().__init__()
        self.rig = Rig(policy(LENDER))
        self.rig.sync(*(node(name) for name in NAMES[2:]), *(lent(node(name)) for name in NAMES[:2]))
        self.rig.see(*gang("a", on=["n0"]), *gang("b", on=["n1"]))
        self.plans: list[Plan] = []
        self.serial = 0

    def _plan(self, made: list[Plan]) -> None:
        for plan in made:
            self._is_sound(plan)
        self.plans += made

    def _is_sound(self, plan: Plan) -> None:
        pods = self.rig.engine.state.inventory
        for step in plan.steps:
            if step.kind != "evict":
                continue
            members = {member.uid for member in step.members}
            live = [
                pod for pod in pods.gang_pods(step.gang) if pod.node and not pod.terminal and pod.deleting_at is None
            ]
            assert all(pod.reclaimable and not pod.protected for pod in live if pod.uid in members)
            assert members == {pod.uid for pod in live} or len(live) - len(members) >= live[0].gang_min

    @rule(minutes=st.sampled_from([0.2, 1, 5, 21, 90]), heard=st.booleans())
    def time_passes(self, minutes: float, heard: bool) -> None:
        """Time, with or without a heartbeat."""
        self._plan(self.rig.pass_time(minutes, heartbeat=heard))

    @rule(name=st.sampled_from(NAMES), activity=st.sampled_from(list(Activity)), hours=st.integers(0, 2))
    def telemetry_judges(self, name: str, activity: Activity, hours: int) -> None:
        """Any verdict about any node."""
        value = {Activity.BUSY: 7.0, Activity.IDLE: 0.0, Activity.UNKNOWN: None}[activity]
        self.rig.judge(activity, value, [name], self.rig.now - timedelta(hours=hours))

    @rule(name=st.sampled_from(NAMES), ready=st.booleans(), gpus=st.sampled_from([0, 8]), marked=st.booleans())
    def a_node_changes(self, name: str, ready: bool, gpus: int, marked: bool) -> None:
        """Readiness, allocatable and marks in any combination."""
        base = replace(node(name), ready=ready, gpus=gpus)
        self.rig.now += timedelta(seconds=1)
        opened, due = self.rig.now - timedelta(minutes=1), max(START + timedelta(hours=6), self.rig.now)
        self.rig.see(lent(base, due=due, opened_at=opened) if marked else base)

    @rule(name=st.sampled_from(NAMES))
    def a_node_is_replaced(self, name: str) -> None:
        """A node is deleted and comes again under the same name with another uid."""
        self.serial += 1
        found = self.rig.engine.state.inventory.node_named(name)
        if found is not None:
            self.rig.lose("node", found.uid)
        self.rig.see(replace(node(name), uid=f"uid-{name}-{self.serial}"))

    @rule(name=st.sampled_from(GANGS), on=st.lists(st.sampled_from(NAMES), min_size=0, max_size=2, unique=True))
    def a_gang_moves(self, name: str, on: list[str]) -> None:
        """A gang waits, or runs on one or two nodes."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(*gang(name, pods=max(1, len(on)), on=on))

    @rule(name=st.sampled_from(GANGS), phase=st.sampled_from([PodPhase.SUCCEEDED, PodPhase.FAILED]))
    def a_gang_ends(self, name: str, phase: PodPhase) -> None:
        """The first member of a gang becomes terminal."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(replace(gang(name, on=["n0"])[0], phase=phase))

    @rule(index=st.integers(0, 7), on=st.sampled_from(["", *NAMES]))
    def a_replica_moves(self, index: int, on: str) -> None:
        """An inference replica waits or runs somewhere."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(replica(f"chat-{index}", on=on, created_at=self.rig.now))

    @rule(index=st.integers(0, 7))
    def a_replica_goes(self, index: int) -> None:
        """An inference replica is deleted; it never comes again under that uid."""
        self.rig.lose("pod", f"uid-chat-{index}")

    @rule(name=st.sampled_from(GANGS), allowed=st.integers(0, 3))
    def a_budget_changes(self, name: str, allowed: int) -> None:
        """A disruption budget over a gang."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(budget(name, name, allowed))

    @rule(paused=st.booleans(), recall=st.booleans())
    def an_operator_acts(self, paused: bool, recall: bool) -> None:
        """Brakes of any kind."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(Control(paused=paused, recall_all=recall, by="ops"))

    @rule(behind=st.booleans())
    def streams_lag(self, behind: bool) -> None:
        """The inputs fall behind or catch up."""
        self.rig.tell(StreamLagged(behind, 600.0 if behind else 0.0))

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), result=st.sampled_from(list(Result)))
    def act_reports(self, data: st.DataObject, result: Result) -> None:
        """Any outcome of any step of any plan, in any order."""
        plan = data.draw(st.sampled_from(self.plans))
        if not plan.steps:
            return
        index = data.draw(st.integers(0, len(plan.steps) - 1))
        step = plan.steps[index]
        target, loan = (step.gang, "") if step.kind == "evict" else (step.node, step.loan)
        told = Outcome(
            plan.id, plan.pool, index, step.kind, target, result, Because(Reason.CONFIRMED), self.rig.now, loan
        )
        self.rig.tell(OutcomeReported(told))
        self.rig.tell(OutcomeReported(told))

    @invariant()
    def no_plan_is_open_without_a_pool(self) -> None:
        """Everything that is busy belongs to an open plan."""
        state = self.rig.engine.state
        assert set(state.busy_nodes.values()) | set(state.busy_gangs.values()) <= set(state.plans)


Histories.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestHistories = Histories.TestCase


def _fleet() -> list[Stimulus]:
    """Independent facts and verdicts of a small fleet, as stimuli of several topics."""
    facts: list[Fact] = [
        *(node(name) for name in NAMES[2:]),
        *(lent(node(name)) for name in NAMES[:2]),
        *gang("a", on=["n0"]),
        *gang("b", on=["n1"]),
        *gang("c"),
        *(replica(f"chat-{index}", on=name) for index, name in enumerate(NAMES[2:])),
        replica("chat-new"),
        budget("a", "a", 0),
    ]
    verdicts = [Verdict(f"uid-{name}", Activity.BUSY, 7.0, 8, START - timedelta(hours=1), START) for name in NAMES]
    return [*(FactObserved(fact, START) for fact in facts), *(VerdictGiven(item) for item in verdicts)]


def _decisions(stimuli: list[Stimulus], twice: bool = False) -> list[tuple[object, ...]]:
    rig = Rig(policy(LENDER))
    for stimulus in stimuli:
        rig.tell(*([stimulus, stimulus] if twice else [stimulus]))
    rig.engine.state.synced.update({"node": True, "pod": True})
    return [(plan.method, plan.because, plan.steps, plan.id) for plan in rig.watch(4)]


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(_fleet()))
def test_the_order_of_independent_stimuli_does_not_reach_a_decision(order: list[Stimulus]) -> None:
    """Topics have no common order: any interleaving gives the same plans."""
    decided = _decisions(order)
    assert decided == _decisions(_fleet())
    assert decided


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(_fleet()))
def test_the_same_stimulus_twice_is_the_same_as_once(order: list[Stimulus]) -> None:
    """Redelivery changes nothing."""
    assert _decisions(order, twice=True) == _decisions(order)


@settings(max_examples=40, deadline=None)
@given(waiting=st.integers(0, 4), fewer=st.integers(0, 4))
def test_less_demand_never_evicts_more(waiting: int, fewer: int) -> None:
    """Monotonicity: fewer waiting replicas never cost more gangs."""

    def evicted(replicas: int) -> int:
        rig = Rig(policy(LENDER))
        rig.sync(*(node(name) for name in NAMES[4:]), *(lent(node(name)) for name in NAMES[:4]))
        rig.see(*(pod for index, name in enumerate(NAMES[:4]) for pod in gang(f"g{index}", on=[name])))
        rig.see(*(replica(f"full-{name}", on=name) for name in NAMES[4:]))
        rig.see(*(replica(f"chat-{index}") for index in range(replicas)))
        rig.busy()
        return sum(step.kind == "evict" for plan in rig.plans() for step in plan.steps)

    low, high = sorted((waiting, fewer))
    assert evicted(low) <= evicted(high)


def test_a_deletion_before_the_late_addition_wins() -> None:
    """Tombstone first, addition later: the pod stays gone (F59)."""
    rig = Rig()
    (pod,) = gang("a", on=["n0"])
    rig.tell(FactDeleted("pod", pod.uid, START), FactObserved(pod, START))
    assert pod.uid not in rig.engine.state.inventory.pods


def test_a_plan_whose_demand_went_away_is_called_off_once() -> None:
    """Demand gone before the first eviction cancels, with its reason."""
    rig = Rig(policy(LENDER))
    rig.sync(*(lent(node(name)) for name in NAMES[:2]), *gang("a", on=["n0"]), *gang("b", on=["n1"]))
    rig.busy()
    rig.see(replica("chat-new", created_at=rig.now))
    assert [plan.method for plan in rig.plans()] == [Method.RECLAIM]
    rig.lose("pod", "uid-chat-new")
    made = [*rig.pass_time(0.1), *rig.pass_time(0.1)]
    assert [(plan.method, plan.because.reason) for plan in made] == [(Method.CANCEL, Reason.DEMAND_GONE)]
