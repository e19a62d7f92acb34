"""What lies on our topics, in memory, for people: latest loans, pools, workloads, facts, and recent plans.

Fed record by record from Kafka or from a folder that a run has tapped; a record that cannot be read is
counted and passed over. It answers questions and must never be what a decision is made from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rebalancer.adapters.brakestold import BrakesTold
from rebalancer.adapters.translate import Received, Tombstone, WireError, read
from rebalancer.core.facts import Control, Node, Pod
from rebalancer.core.instructions import ClearAlert, PoolState, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import FINAL, EvictGang, Outcome, Plan
from rebalancer.core.stimuli import FactDeleted, FactObserved, OutcomeReported
from rebalancer.core.units import later
from rebalancer.wire import v1
from rebalancer.wire.envelope import Headers

NEVER = datetime.fromtimestamp(0, UTC)
KEPT_PLANS = 20_000
"""Plans remembered, newest last: more than a fleet of a thousand nodes makes in a week."""
KEPT_OBJECTS = 200_000
"""Objects of one kind remembered, the newest told: several times a large cluster, so that only a fault meets it."""
KEPT_ALERTS = 1_000
"""Alerts that are over and can still be asked about: links in messages outlive what they tell of."""
PARTS: Mapping[str, str] = {
    "nodes": v1.FACT_TOPICS["node"],
    "pods": v1.FACT_TOPICS["pod"],
    "control": v1.FACT_TOPICS["control"],
    "pools": v1.STATE_POOL,
    "loans": v1.STATE_LOAN,
    "workloads": v1.STATE_WORKLOAD,
    "plans": v1.PLAN,
    "outcomes": v1.OUTCOME,
    "alerts": v1.ALERT,
}
"""What a store holds, and the topic that it comes from; other topics are passed over."""
TOPICS = tuple(PARTS.values())
UNKEYED = ("control", "plans", "outcomes")
"""Parts of which a tombstone takes nothing away: one object, or topics that only grow."""
GROWING = (v1.PLAN, v1.OUTCOME)
"""Those of them that are not compacted: a reader need not begin at their beginning."""


class RawRecord(NamedTuple):
    """A record as it came; ``value`` None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Store:
    """The latest of everything, by identity. ``unread`` counts records by why they could not be read.

    With a ``cluster`` set, only what is about that cluster is taken in. Everything is bounded, the oldest goes first;
    ``kept_plans`` is how many plans are remembered.
    """

    cluster: str = ""
    kept_plans: int = KEPT_PLANS
    loans: dict[str, Loan] = field(default_factory=dict)
    pools: dict[str, PoolState] = field(default_factory=dict)
    workloads: dict[str, WorkloadRecord] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    alerts: dict[str, RaiseAlert] = field(default_factory=dict)
    past_alerts: dict[str, RaiseAlert] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    control: Control | None = None
    brakes: BrakesTold = field(default_factory=BrakesTold, init=False, repr=False)
    latest: datetime | None = None
    unread: Counter[str] = field(default_factory=Counter)

    def feed(self, record: RawRecord) -> Received | None:
        """Take in one record and say what it was; None if it could not be read or is another cluster's."""
        try:
            told = read(record.topic, record.key, record.value, record.headers, received_at=self.latest or NEVER)
        except WireError as error:
            self.unread[error.stage] += 1
            return None
        if self.cluster and told.cluster and told.cluster != self.cluster:
            return None
        if record.value is None:
            self._forget(record.topic, told)
        else:
            self.control = self.brakes.read(told.content) or self.control
            if told.name in TAKERS:
                TAKERS[told.name](self, told.content)
                self.latest = later(self.latest, told.at)
        return told

    def feed_all(self, records: Iterable[RawRecord]) -> Store:
        """Take in many; returns itself."""
        for record in records:
            self.feed(record)
        return self

    def _forget(self, topic: str, told: Received) -> None:
        gone = told.content
        name = gone.uid if isinstance(gone, FactDeleted) else gone.name if isinstance(gone, Tombstone) else ""
        part = next((part for part, at in PARTS.items() if at == topic), "control")
        held: dict[str, Any] = {} if part in UNKEYED else getattr(self, part)
        held.pop(name, None)
        held.pop(name.partition("/")[2], None)  # a tombstone without headers keeps its cluster in the name

    def take_plan(self, plan: Plan) -> None:
        """Remember a plan; beyond the bound the oldest is forgotten with its outcomes."""
        self.plans.setdefault(plan.id, plan)
        if len(self.plans) > self.kept_plans:
            oldest = next(iter(self.plans))
            del self.plans[oldest]
            self.outcomes.pop(oldest, None)

    def take_outcome(self, outcome: Outcome) -> None:
        """Remember an outcome; the same told twice is one."""
        self.outcomes.setdefault(outcome.plan, {})[outcome.id] = outcome
        if len(self.outcomes) > self.kept_plans:
            del self.outcomes[next(iter(self.outcomes))]

    def recent(self, count: int | None = None) -> list[Plan]:
        """Plans, newest first; all of them if no count is said."""
        ordered = sorted(self.plans.values(), key=lambda plan: (plan.made_at, plan.id), reverse=True)
        return ordered if count is None else ordered[:count]

    def results(self, plan: Plan) -> list[Outcome]:
        """The outcomes of a plan by step, and within a step by time."""
        found = self.outcomes.get(plan.id, {}).values()
        return sorted(found, key=lambda outcome: (outcome.step, outcome.at, outcome.result))

    def finished(self, plan: Plan) -> int:
        """How many of a plan's steps have ended."""
        return len({told.step for told in self.results(plan) if told.result in FINAL and told.step >= 0})

    def evictions(self, gang: str) -> list[tuple[Plan, EvictGang]]:
        """When a gang was to go, newest first."""
        return [
            (plan, step)
            for plan in self.recent()
            for step in plan.steps
            if isinstance(step, EvictGang) and step.gang == gang
        ]


def _keep(where: str, key: str) -> Callable[[Store, Any], None]:
    return lambda store, told: _put(getattr(store, where), getattr(told, key), told)


def _put(held: dict[str, Any], key: str, value: object, most: int = KEPT_OBJECTS) -> None:
    held.pop(key, None)  # the newest is last
    held[key] = value
    if len(held) > most:
        del held[next(iter(held))]


def _fact(store: Store, observed: FactObserved) -> None:
    match observed.fact:
        case Node() as node:
            _put(store.nodes, node.uid, node)
        case Pod() as pod:
            _put(store.pods, pod.uid, pod)


def _outcome(store: Store, reported: OutcomeReported) -> None:
    store.take_outcome(reported.outcome)


def _clear_alert(store: Store, cleared: ClearAlert) -> None:
    alert = store.alerts.pop(cleared.id, None)
    if alert is not None:
        _put(store.past_alerts, alert.id, alert, KEPT_ALERTS)


TAKERS: Mapping[str, Callable[[Store, Any], None]] = {
    "fact.node": _fact,
    "fact.pod": _fact,
    "fact.control": _fact,
    "state.pool": _keep("pools", "pool"),
    "state.loan": _keep("loans", "id"),
    "state.workload": _keep("workloads", "workload"),
    "decision.plan": Store.take_plan,
    "decision.outcome": _outcome,
    "alert.raised": _keep("alerts", "id"),
    "alert.cleared": _clear_alert,
}
"""Where each kind of record goes, by its short name; kinds not named here are passed over."""


def topics_of(parts: Iterable[str]) -> tuple[str, ...]:
    """The topics of these parts of a store; of all parts if none is named."""
    return tuple(PARTS[part] for part in parts) or TOPICS
