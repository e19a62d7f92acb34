"""What lies on our topics, in memory, for people: latest loans, pools, workloads, facts, and recent plans.

Fed record by record from Kafka or from a folder that a run has tapped; a record that cannot be read is
counted and passed over. It answers questions and must never be what a decision is made from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from rebalancer.core.facts import Control, Node, Pod
from rebalancer.core.instructions import PoolState, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import FINAL, EvictGang, Outcome, Plan
from rebalancer.wire import v1

KEPT_PLANS = 20_000
"""Plans remembered, newest last: more than a fleet of a thousand nodes makes in a week."""
TOPICS = (
    v1.FACT_TOPICS["node"],
    v1.FACT_TOPICS["pod"],
    v1.FACT_TOPICS["control"],
    v1.STATE_POOL,
    v1.STATE_LOAN,
    v1.STATE_WORKLOAD,
    v1.PLAN,
    v1.OUTCOME,
    v1.ALERT,
)
"""The topics that a store wants; others are passed over."""
GROWING = (v1.PLAN, v1.OUTCOME)
"""Those of them that are not compacted: a reader need not begin at their beginning."""


class RawRecord(NamedTuple):
    """A record as it came; ``value`` None is a tombstone."""

    topic: str
    key: str
    value: bytes | None


class Changed(NamedTuple):
    """What a record told the store: the kind's short name and the object; ``None`` if it said nothing new."""

    kind: str
    told: Any


@dataclass(slots=True)
class Store:
    """The latest of everything, by identity. ``unread`` counts records by why they could not be read."""

    cluster: str = ""
    loans: dict[str, Loan] = field(default_factory=dict)
    pools: dict[str, PoolState] = field(default_factory=dict)
    workloads: dict[str, WorkloadRecord] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    alerts: dict[str, RaiseAlert] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    control: Control | None = None
    latest: datetime | None = None
    unread: Counter[str] = field(default_factory=Counter)

    def feed(self, record: RawRecord) -> Changed | None:
        """Take in one record; with a ``cluster`` set, only what is about that cluster."""
        if record.value is None:
            return self._forget(record)
        try:
            body = orjson.loads(record.value)
            name = str(body["type"]).removeprefix("io.gpu-rebalancer.").removesuffix(".v1")
            if name not in KINDS or (self.cluster and body["cluster"] != self.cluster):
                return None
            told = KINDS[name].read(body["data"])
            moment = datetime.fromisoformat(body["time"])
        except (ValidationError, ValueError, KeyError, TypeError) as error:
            self.unread[f"{record.topic}: {type(error).__name__}"] += 1
            return None
        self.latest = max(self.latest or moment, moment)
        KINDS[name].take(self, told)
        return Changed(name, told)

    def feed_all(self, records: Iterable[RawRecord]) -> Store:
        """Take in many; returns itself."""
        for record in records:
            self.feed(record)
        return self

    def _forget(self, record: RawRecord) -> Changed | None:
        held: Mapping[str, dict[str, Any]] = {
            v1.FACT_TOPICS["node"]: self.nodes,
            v1.FACT_TOPICS["pod"]: self.pods,
            v1.STATE_POOL: self.pools,
            v1.STATE_LOAN: self.loans,
            v1.STATE_WORKLOAD: self.workloads,
            v1.ALERT: self.alerts,
        }
        gone = held.get(record.topic, {}).pop(record.key, None)
        return Changed("gone", gone) if gone is not None else None

    def take_plan(self, plan: Plan) -> None:
        """Remember a plan; beyond the bound the oldest is forgotten with its outcomes."""
        self.plans.setdefault(plan.id, plan)
        if len(self.plans) > KEPT_PLANS:
            oldest = next(iter(self.plans))
            del self.plans[oldest]
            self.outcomes.pop(oldest, None)

    def take_outcome(self, outcome: Outcome) -> None:
        """Remember an outcome; the same told twice is one."""
        self.outcomes.setdefault(outcome.plan, {})[outcome.id] = outcome
        if len(self.outcomes) > KEPT_PLANS:
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


class Kind(NamedTuple):
    """How one kind of record is read, and where it goes."""

    read: Callable[[Any], Any]
    take: Callable[[Store, Any], None]


def _reader(kind: type[Any]) -> Callable[[Any], Any]:
    return TypeAdapter(kind).validate_python


def _keep(where: str, key: str) -> Callable[[Store, Any], None]:
    return lambda store, told: getattr(store, where).__setitem__(getattr(told, key), told)


def _set_control(store: Store, told: Control) -> None:
    store.control = told


def _clear_alert(store: Store, alert: str) -> None:
    store.alerts.pop(alert, None)


KINDS: Mapping[str, Kind] = {
    "fact.node": Kind(_reader(Node), _keep("nodes", "uid")),
    "fact.pod": Kind(_reader(Pod), _keep("pods", "uid")),
    "fact.control": Kind(_reader(Control), _set_control),
    "state.pool": Kind(_reader(PoolState), _keep("pools", "pool")),
    "state.loan": Kind(_reader(Loan), _keep("loans", "id")),
    "state.workload": Kind(_reader(WorkloadRecord), _keep("workloads", "workload")),
    "decision.plan": Kind(_reader(Plan), Store.take_plan),
    "decision.outcome": Kind(_reader(Outcome), Store.take_outcome),
    "alert.raised": Kind(_reader(RaiseAlert), _keep("alerts", "id")),
    "alert.cleared": Kind(lambda data: str(data["id"]), _clear_alert),
}
