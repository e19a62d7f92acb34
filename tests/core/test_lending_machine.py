"""Any history of quiet nights, gangs, answers and restarts: loans stay legal, above the floor, one a node."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rebalancer.core.facts import Control, Pod
from rebalancer.core.plan import EvictGang, LendNode, Method, Plan, Result
from tests.core.build import Rig, gang, lent, node, policy, pool_policy, replica

NAMES = [f"n{index}" for index in range(5)]
GANGS = ["a", "b", "c"]
FLOOR = 1


class Nights(RuleBasedStateMachine):
    """Five nodes that may be lent but one; gangs come and go; act does, refuses, or says nothing."""

    def __init__(self) -> None:
        """All at home and idle."""
        super().__init__()
        self.rig = Rig(policy(pool_policy(floor_nodes=FLOOR, floor_share=0.0)))
        self.rig.sync(*(node(name) for name in NAMES))
        self.open: list[Plan] = []
        self.serial = 0

    def _take(self, plans: list[Plan]) -> None:
        for plan in plans:
            gangs = [step.gang for step in plan.steps if isinstance(step, EvictGang)]
            nodes = [step.node for step in plan.steps if not isinstance(step, EvictGang) and step.kind != "restore"]
            assert len(gangs) == len(set(gangs))
            assert len(nodes) == len(set(nodes))
            assert all(set(nodes).isdisjoint(other) for other in self._nodes_of_open())
            self.open += [plan] if plan.steps and plan.method is not Method.RENEW else []

    def _nodes_of_open(self) -> list[set[str]]:
        known = self.rig.engine.state.plans
        plans = [plan for plan in self.open if plan.id in known and not known[plan.id].plan.awaits_approval]
        return [{step.node for step in plan.steps if not isinstance(step, EvictGang)} for plan in plans]

    @rule(done=st.booleans(), name=st.sampled_from(GANGS), pods=st.integers(1, 3))
    def a_quiet_hour(self, done: bool, name: str, pods: int) -> None:
        """A gang waits while all at home has been idle for long; act carries out at once what is made of it, or not."""
        self.a_gang_waits(name, pods, 8)
        for _ in range(30):
            self.rig.idle(since=self.rig.now - timedelta(hours=1))
            before = list(self.open)
            self._take(self.rig.pass_time())
            for plan in [plan for plan in self.open if plan not in before and done]:
                self.open.remove(plan)
                self._carry_out(plan)

    @rule(minutes=st.sampled_from([0.2, 1, 11, 200]))
    def time_passes(self, minutes: float) -> None:
        """A little, or a lot."""
        self._take(self.rig.pass_time(minutes))

    @rule(name=st.sampled_from(GANGS), pods=st.integers(1, 3), gpus=st.sampled_from([4, 8]))
    def a_gang_waits(self, name: str, pods: int, gpus: int) -> None:
        """A gang under a new uid, unless one of that name is there already."""
        if not self.rig.engine.state.inventory.gang_pods(f"ml/{name}"):
            self.serial += 1
            made = gang(name, pods, gpus=gpus, created_at=self.rig.now)
            self.rig.see(*(_renamed(pod, self.serial) for pod in made))

    @rule(name=st.sampled_from(GANGS))
    def a_gang_ends(self, name: str) -> None:
        """All of its pods are gone."""
        self.rig.lose("pod", *(pod.uid for pod in self.rig.engine.state.inventory.gang_pods(f"ml/{name}")))

    @rule(waits=st.booleans())
    def a_replica(self, waits: bool) -> None:
        """An inference replica waits for a whole node, or all that wait give up."""
        self.serial += 1
        if waits:
            self.rig.see(replica(f"chat-{self.serial}", created_at=self.rig.now))
        else:
            pods = self.rig.engine.state.inventory.pods.values()
            self.rig.lose("pod", *[pod.uid for pod in pods if pod.namespace == "serving"])

    @precondition(lambda self: self.open)
    @rule(
        data=st.data(), result=st.sampled_from([None, Result.REFUSED, Result.STARTED, Result.EXPIRED, Result.CANCELLED])
    )
    def act_answers(self, data: st.DataObject, result: Result | None) -> None:
        """A plan is carried out whole (None), or every step of it ends in the same way."""
        plan = data.draw(st.sampled_from(self.open))
        self.open.remove(plan)
        self.rig.now += timedelta(seconds=5)
        if result is not None:
            self.rig.report(plan, result)
        else:
            self._carry_out(plan)

    def _carry_out(self, plan: Plan) -> None:
        if plan.id in self.rig.engine.state.plans and not plan.awaits_approval:
            (self.rig.lend if isinstance(plan.steps[0], LendNode) else self.rig.bring_home)(plan)

    @rule(name=st.sampled_from(NAMES), other=st.booleans())
    def a_mark_changes(self, name: str, other: bool) -> None:
        """Somebody takes the mark off, or writes another one over it."""
        self.rig.now += timedelta(seconds=1)
        found = self.rig.engine.state.inventory.node_named(name)
        if found is not None and found.loan is not None:
            self.serial += 1
            again = lent(
                node(name), loan=f"l{self.serial}", opened_at=self.rig.now, due=self.rig.now + timedelta(hours=6)
            )
            self.rig.see(again if other else node(name))

    @rule(recall=st.booleans(), paused=st.booleans())
    def an_operator_acts(self, recall: bool, paused: bool) -> None:
        """Brakes on or off."""
        self.rig.now += timedelta(seconds=1)
        self.rig.see(Control(recall_all=recall, paused=paused, by="ops"))

    @invariant()
    def the_floor_holds(self) -> None:
        """Four of five nodes at most are away."""
        assert len(self.rig.engine.state.open_loans()) <= len(NAMES) - FLOOR

    @invariant()
    def whoever_is_busy_belongs_to_an_open_plan(self) -> None:
        """Nothing is left busy behind a plan that ended."""
        state = self.rig.engine.state
        assert set(state.busy_nodes.values()) | set(state.busy_gangs.values()) <= set(state.plans)


def _renamed(pod: Pod, serial: int) -> Pod:
    return replace(pod, uid=f"{pod.uid}-{serial}")


Nights.TestCase.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestNights = Nights.TestCase
