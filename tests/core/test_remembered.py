"""What the engine remembers between looks changes no decision: a twin that forgets it all before every plan agrees."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.engine import Engine
from rebalancer.core.facts import Requirement
from rebalancer.core.instructions import Instruction, PublishPlan
from rebalancer.core.plan import EvictGang, LendNode, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    FactDeleted,
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
from rebalancer.core.units import Activity
from tests.core import build

POOLS = ("infer-a100", "infer-b100")
NODES = 8


def forget(engine: Engine) -> None:
    """Drop everything that only saves work."""
    state = engine.state
    for watch in state.watches.values():
        watch.fruitless = watch.placing = None
    state._books.clear()
    state.gangs.clear()
    state.refusals, state.elsewhere = ((), {}), ((-1, -1), ())
    engine._homes._policy = None


class Night:
    """A random night, told to two engines at once."""

    def __init__(self, seed: int) -> None:
        chosen = build.policy(*(build.pool_policy(name, floor_share=0.0, floor_nodes=0) for name in POOLS))
        self.engine, self.twin = Engine("test", chosen), Engine("test", chosen)
        self.random, self.now, self.names = random.Random(seed), build.START, 0
        self.nodes = [build.node(f"{pool[6]}{index}", pool) for pool in POOLS for index in range(NODES)]
        self.nodes += [build.node(f"t{index}", "train-a100") for index in range(3)]

    def tell(self, stimulus: Stimulus) -> list[Instruction]:
        return self._both(stimulus)

    def plan(self) -> list[Plan]:
        forget(self.twin)
        return [item.plan for item in self._both(TimePassed()) if isinstance(item, PublishPlan)]

    def _both(self, stimulus: Stimulus) -> list[Instruction]:
        one, other = self.engine.handle(stimulus, self.now), self.twin.handle(stimulus, self.now)
        assert one == other
        return one

    def begin(self) -> None:
        self.tell(TermBegan(1))
        self.tell(SnapshotBegan("node", "s", self.now))
        for node in self.nodes:
            self.tell(FactObserved(node, self.now))
        self.tell(SnapshotEnded("node", "s", len(self.nodes), self.now))
        self.tell(SnapshotBegan("pod", "s", self.now))
        self.tell(SnapshotEnded("pod", "s", 0, self.now))
        for node in self.nodes:
            verdict = Verdict(node.uid, Activity.IDLE, 0.0, 8, self.now - timedelta(hours=1), self.now)
            self.tell(VerdictGiven(verdict))

    def event(self) -> None:
        """Something of a cluster's daily life."""
        kind = self.random.choice(
            (self.come, self.go, self.go, self.bind, self.judge, self.gang, self.gang, self.relabel)
        )
        kind()

    def _name(self) -> str:
        self.names += 1
        return f"p{self.names}"

    def come(self) -> None:
        pool = self.random.choice(POOLS)
        terms = ((Requirement("node-pool", "In", (pool,)),),)
        gpus = self.random.choice((1, 2, 4, 8))
        self.tell(FactObserved(build.replica(self._name(), gpus=gpus, node_terms=terms), self.now))

    def go(self) -> None:
        pods = sorted(self.engine.state.inventory.pods)
        if pods:
            self.tell(FactDeleted("pod", self.random.choice(pods), self.now))

    def bind(self) -> None:
        inventory = self.engine.state.inventory
        waiting = sorted((pod for pod in inventory.pods.values() if pod.pending), key=lambda pod: pod.uid)
        if waiting:
            pod, node = self.random.choice(waiting), self.random.choice(self.nodes)
            if inventory.free(inventory.nodes[node.uid]) >= (pod.gpus or 0):
                self.tell(FactObserved(replace(pod, node=node.name), self.now))

    def judge(self) -> None:
        node, busy = self.random.choice(self.nodes), self.random.random() < 0.3
        since = self.now - timedelta(minutes=self.random.choice((0, 5, 60)))
        activity = Activity.BUSY if busy else Activity.IDLE
        self.tell(VerdictGiven(Verdict(node.uid, activity, 4.0 if busy else 0.0, 8, since, self.now)))

    def gang(self) -> None:
        for pod in build.gang(self._name(), self.random.choice((1, 1, 2, 4)), reclaimable=self.random.random() < 0.8):
            self.tell(FactObserved(pod, self.now))

    def relabel(self) -> None:
        node = self.engine.state.inventory.nodes[self.random.choice(self.nodes).uid]
        changed = replace(node, cordoned=not node.cordoned) if self.random.random() < 0.5 else replace(
            node, labels={**node.labels, "x": self._name()}
        )  # fmt: skip
        self.tell(FactObserved(changed, self.now))

    def carry_out(self, plan: Plan) -> None:
        """Act's outcomes, and marks on the nodes; sometimes it refuses."""
        result = Result.REFUSED if self.random.random() < 0.2 else Result.DONE
        for index, step in enumerate(plan.steps):
            if result is Result.DONE:
                self._effect(step)
            target, loan = (step.gang, "") if isinstance(step, EvictGang) else (step.node, step.loan)
            because = Because(Reason.CONFIRMED)
            told = Outcome(plan.id, plan.pool, index, step.kind, target, result, because, self.now, loan, 1)
            self.tell(OutcomeReported(told))

    def _effect(self, step: object) -> None:
        nodes = self.engine.state.inventory.nodes
        if isinstance(step, LendNode):
            marked = build.lent(nodes[step.node], due=step.due, loan=step.loan, gang=step.gang, opened_at=self.now)
            self.tell(FactObserved(marked, self.now))
        elif isinstance(step, EvictGang):
            for member in step.members:
                self.tell(FactDeleted("pod", member.uid, self.now))
        elif getattr(step, "kind", "") == "restore":
            node = nodes[step.node]  # type: ignore[attr-defined]  # a restore has a node
            self.tell(FactObserved(replace(node, loan=None, taints=(build.OWNER_TAINT,)), self.now))

    def live(self, minutes: int) -> Iterator[Plan]:
        for _ in range(minutes):
            self.now += timedelta(seconds=self.random.choice((0, 1, 5, 30, 60, 120)))
            if self.random.random() < 0.9:
                self.tell(HeartbeatHeard(Heartbeat("w", self.now, (0,), 1, 0.0)))
            for _ in range(self.random.randint(0, 3)):
                self.event()
            for plan in self.plan():
                yield plan
                self.carry_out(plan)


@pytest.mark.parametrize("seed", range(6))
def test_an_engine_that_remembers_decides_as_one_that_forgets(seed: int) -> None:
    night = Night(seed)
    night.begin()
    plans = list(night.live(150))
    night.engine.check()
    assert {plan.method.value for plan in plans} >= {"lend"}
