"""The whole main job in one process without Kafka: for tables, tuning and ``simulate``; fakes only for speed.

One step: the world moves, its facts, samples and demands reach the engine, plans are made once, the actor's
calls are answered until it is quiet. What Kafka adds (partitions, terms, restarts) is not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zlib import crc32

from rebalancer.core.activity import NodeJudge
from rebalancer.core.engine import Engine
from rebalancer.core.instructions import Instruction, PublishPlan, RaiseAlert, RecordPool
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.actor import Actor
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
from rebalancer.core.telemetry import Heartbeat, Verdict
from rebalancer.core.units import Activity
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
        self._see(now)
        self._sense(now)
        made = self._tell(TimePassed(), now)
        for plan in [item.plan for item in made if isinstance(item, PublishPlan)]:
            self._report(self.actor.plan(plan, now), now)
        self._act(now)
        if self._check:
            self.engine.check()
        return made

    # -- the three roles -------------------------------------------------------------------------------------

    def _see(self, now: datetime) -> None:
        if self.world.take_snapshot_due():
            for of in SNAPSHOTS:
                self._snapshot(of, now)
        for change in self.world.drain():
            if isinstance(change, FactObserved) and self.actor_control(change, now):
                pass
            self._tell(change, now)

    def actor_control(self, change: FactObserved, now: datetime) -> bool:
        """Let the actor see the brakes too, as act does in the cluster."""
        from rebalancer.core.facts import Control  # noqa: PLC0415

        if not isinstance(change.fact, Control):
            return False
        self._report(self.actor.control(change.fact, now), now)
        return True

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
                judge = self._judges[sample.node] = NodeJudge(self.policy.activities, False)  # noqa: FBT003
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
            self._tell(OutcomeReported(outcome), now)

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


def worth_telling(before: Verdict | None, verdict: Verdict) -> bool:
    """Whether a verdict differs enough from the last one told: another activity, or 5 points of one GPU's sum."""
    if before is None or before.activity is not verdict.activity or before.unhealthy != verdict.unhealthy:
        return True
    if before.since != verdict.since or before.why != verdict.why:
        return True
    if verdict.activity is Activity.UNKNOWN or verdict.utilisation is None or before.utilisation is None:
        return before.utilisation != verdict.utilisation
    return abs(verdict.utilisation - before.utilisation) > 0.05 * max(1, verdict.gpus_seen)
