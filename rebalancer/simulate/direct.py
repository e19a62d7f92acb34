"""The whole main job in one process without Kafka: for tables, tuning and ``simulate``; fakes only for speed.

One step: the world moves, its facts, samples and demands reach the engine, plans are made once, the actor's
calls are answered until it is quiet. What Kafka adds (partitions, terms, restarts) is not here. While the scenario
declares Kafka away, nothing reaches the engine and the actor goes on alone, returning what falls due from the marks on
the nodes; when it is back, full lists come first and then the outcomes that were kept meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zlib import crc32

from rebalancer.core.activity import NodeJudge
from rebalancer.core.engine import Engine
from rebalancer.core.facts import Budget, Control, Node, Pod
from rebalancer.core.instructions import Instruction, PublishPlan, RaiseAlert, RecordPool
from rebalancer.core.optout import marked
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.fallback import due_returns
from rebalancer.core.stimuli import (
    DemandReported,
    FactKind,
    FactObserved,
    HeartbeatHeard,
    OutcomeReported,
    PolicyAdopted,
    SnapshotBegan,
    SnapshotEnded,
    Stimulus,
    TermBegan,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import Heartbeat, Verdict, worth_telling
from rebalancer.simulate.cluster import SimulatedCluster

PARTITIONS = 4
ROUNDS = 200
"""Rounds of calls that one step may take: a bound, far above what a step of a thousand evictions needs."""
SNAPSHOTS: tuple[FactKind, ...] = ("node", "pod", "budget", "group", "namespace", "control")


@dataclass(slots=True)
class Told:
    """What a direct run leaves behind, in order."""

    plans: list[Plan] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    alerts: list[RaiseAlert] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Direct:
    """A world, an engine and an actor, moved together. ``check``: assert the invariants after every step."""

    def __init__(self, world: SimulatedCluster, policy: Policy, *, cluster: str = "sim", check: bool = False) -> None:
        self.world = world
        self.policy = policy
        self.engine = Engine(cluster, policy)
        self.actor = Actor(policy, epoch=1)
        self.told = Told()
        self.pools: dict[str, RecordPool] = {}
        self.on_stimulus: Callable[[Stimulus, datetime], None] | None = None
        self._check = check
        self._away_since: datetime | None = None
        self._kept: list[Outcome] = []
        self._judges: dict[str, NodeJudge] = {}
        self._said: dict[str, Verdict] = {}
        self.actor.seen_term(1)
        self._tell(PolicyAdopted(policy, "direct"), world.moment)
        self._tell(TermBegan(1), world.moment)

    def run(self) -> Told:
        """Live through the whole scenario."""
        while not self.world.done():
            self.step()
        return self.told

    def step(self) -> Sequence[Instruction]:
        """One step of everything; returns what the engine asked for when plans were made."""
        self.world.step()
        now = self.world.moment
        if self.world.kafka_away():
            self._alone(now)
            return []
        self._reunite(now)
        self._see(now)
        self._sense(now)
        made = self._tell(TimePassed(), now)
        for plan in [item.plan for item in made if isinstance(item, PublishPlan)]:
            self._report(self.actor.plan(plan, now), now)
        self._act(now)
        if self._check:
            self.engine.check()
        return made

    # -- Kafka away ------------------------------------------------------------------------------------------

    def _alone(self, now: datetime) -> None:
        """What was on its way is lost, as is what exporters say; after the bound the actor returns what falls due."""
        self._away_since = self._away_since or now
        self.world.drain()
        self.world.samples()
        self.world.demands()
        for control in self.world.listing("control"):
            if isinstance(control, Control):
                self._report(self.actor.control(control, now), now)
        nodes, pods, budgets = (self.world.listing(of) for of in ("node", "pod", "budget"))
        others = (*self.world.listing("namespace"), *self.world.listing("group"))
        for plan in due_returns(
            (item for item in nodes if isinstance(item, Node)),
            marked((item for item in pods if isinstance(item, Pod)), others),
            (item for item in budgets if isinstance(item, Budget)),
            self.policy, now, self.actor.term, now - self._away_since,
        ):  # fmt: skip
            self._report(self.actor.plan(plan, now), now)
        self._act(now)

    def _reunite(self, now: datetime) -> None:
        """Kafka is back: everything is listed anew, then the outcomes that could not be published are told."""
        if self._away_since is None:
            return
        self._away_since = None
        for of in SNAPSHOTS:
            self._snapshot(of, now)
        kept, self._kept = self._kept, []
        for outcome in kept:
            self._tell(OutcomeReported(outcome), now)

    # -- the three roles -------------------------------------------------------------------------------------

    def _see(self, now: datetime) -> None:
        if self.world.take_snapshot_due():
            for of in SNAPSHOTS:
                self._snapshot(of, now)
        for change in self.world.drain():
            if isinstance(change, FactObserved) and isinstance(change.fact, Control):
                self._report(self.actor.control(change.fact, now), now)
            self._tell(change, now)

    def _snapshot(self, of: FactKind, now: datetime) -> None:
        name = f"{of}/{now.isoformat()}"
        listing = self.world.listing(of)
        self._tell(SnapshotBegan(of, name, now), now)
        for fact in listing:
            self._tell(FactObserved(fact, now), now)
        self._tell(SnapshotEnded(of, name, len(listing), now), now)

    def _sense(self, now: datetime) -> None:
        for sample in self.world.samples():
            judge = self._judges.get(sample.node)
            if judge is None:
                judge = self._judges[sample.node] = NodeJudge(self.policy.activities, False)
            judge.observe(sample, now)
        for node, judge in self._judges.items():
            verdict = judge.verdict(now, crc32(node.encode()) % PARTITIONS)
            if worth_telling(self._said.get(node), verdict):
                self._said[node] = verdict
                self._tell(VerdictGiven(verdict), now)
        beat = Heartbeat("direct", now, tuple(range(PARTITIONS)), len(self._judges), 0.0)
        self._tell(HeartbeatHeard(beat), now)
        for demand in self.world.demands():
            self._tell(DemandReported(demand), now)

    def _act(self, now: datetime) -> None:
        for _ in range(ROUNDS):
            calls = self.actor.advance(now)
            self._report(self.actor.outcomes(), now)
            if not calls:
                return
            for call_id, call in calls:
                self._report(self.actor.answered(call_id, self.world.answer(call), now), now)

    # -- bookkeeping -----------------------------------------------------------------------------------------

    def _report(self, outcomes: Sequence[Outcome], now: datetime) -> None:
        for outcome in outcomes:
            self.told.outcomes.append(outcome)
            if self._away_since is None:
                self._tell(OutcomeReported(outcome), now)
            else:
                self._kept.append(outcome)

    def _tell(self, stimulus: Stimulus, now: datetime) -> list[Instruction]:
        if self.on_stimulus is not None:
            self.on_stimulus(stimulus, now)
        instructions = self.engine.handle(stimulus, now)
        for item in instructions:
            self.told.counts[item.kind] += 1
            if isinstance(item, PublishPlan):
                self.told.plans.append(item.plan)
            elif isinstance(item, RaiseAlert):
                self.told.alerts.append(item)
            elif isinstance(item, RecordPool):
                self.pools[item.state.pool] = item
        return instructions
