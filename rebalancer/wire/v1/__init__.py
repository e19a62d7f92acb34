"""Version 1 of the contract: every kind of record, on which topic it lies, and its model.

A new kind of record is one model and one row here; a new topic also a row in ``topics/topics.yaml``. Fields
are only ever added, each with a default. Nothing is translated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from pydantic import TypeAdapter, create_model

from rebalancer.wire.envelope import TYPE_PREFIX, Envelope, Shape
from rebalancer.wire.v1 import decisions, facts, marks, pools, telemetry, usage

FACT_MODELS: Mapping[str, type[Shape]] = {
    "node": facts.Node,
    "pod": facts.Pod,
    "budget": facts.Budget,
    "group": facts.GangSpec,
    "namespace": facts.Namespace,
    "control": facts.Control,
}
FACT_TOPICS: Mapping[str, str] = {of: f"gpu.fact.{of}.v1" for of in FACT_MODELS}
CONTROL = "gpu.control.v1"
SAMPLE_DEVICE = "gpu.sample.device.v1"
SAMPLE_DEMAND = "gpu.sample.demand.v1"
STATE_NODE = "gpu.state.node.v1"
STATE_TELEMETRY = "gpu.state.telemetry.v1"
STATE_POOL = "gpu.state.pool.v1"
STATE_LOAN = "gpu.state.loan.v1"
STATE_WORKLOAD = "gpu.state.workload.v1"
USAGE_LOAN = "gpu.usage.loan.v1"
FORECAST_POOL = "gpu.forecast.pool.v1"
PLAN = "gpu.decision.plan.v1"
OUTCOME = "gpu.decision.outcome.v1"
ALERT = "gpu.alert.event.v1"
JOURNAL = "gpu.journal.v1"
LOCKSTEP = (*FACT_TOPICS.values(), CONTROL, SAMPLE_DEVICE, SAMPLE_DEMAND, STATE_NODE, PLAN, OUTCOME)
"""Topics on which barriers may lie."""


class Kind(NamedTuple):
    """One kind of record: its short name, the topics it may lie on, and its content."""

    name: str
    topics: tuple[str, ...]
    model: type[Shape]

    @property
    def type(self) -> str:
        """Value of ``ce_type`` and of ``type`` in the body."""
        return f"{TYPE_PREFIX}{self.name}.v1"


_FACTS = tuple(FACT_TOPICS.values())
KINDS: tuple[Kind, ...] = (
    *(Kind(f"fact.{of}", (FACT_TOPICS[of],), model) for of, model in FACT_MODELS.items()),
    Kind("snapshot.began", _FACTS, marks.SnapshotBegan),
    Kind("snapshot.ended", _FACTS, marks.SnapshotEnded),
    Kind("control.snapshot", (CONTROL,), marks.SnapshotRequested),
    Kind("control.approve", (CONTROL,), marks.Approved),
    Kind("control.recall", (CONTROL,), marks.RecallRequested),
    Kind("sample.device", (SAMPLE_DEVICE,), telemetry.NodeSample),
    Kind("sample.demand", (SAMPLE_DEMAND,), telemetry.DemandSample),
    Kind("state.node", (STATE_NODE,), telemetry.Verdict),
    Kind("state.telemetry", (STATE_TELEMETRY,), telemetry.Heartbeat),
    Kind("state.pool", (STATE_POOL,), pools.PoolState),
    Kind("state.loan", (STATE_LOAN,), decisions.Loan),
    Kind("state.workload", (STATE_WORKLOAD,), decisions.WorkloadRecord),
    Kind("usage.loan", (USAGE_LOAN,), usage.LoanUsage),
    Kind("usage.pool", (USAGE_LOAN,), usage.PoolUsage),
    Kind("forecast.pool", (FORECAST_POOL,), pools.PoolMemory),
    Kind("decision.plan", (PLAN,), decisions.Plan),
    Kind("decision.term", (PLAN,), decisions.Term),
    Kind("decision.outcome", (OUTCOME,), decisions.Outcome),
    Kind("alert.raised", (ALERT,), decisions.AlertRaised),
    Kind("alert.cleared", (ALERT,), decisions.AlertCleared),
    Kind("journal", (JOURNAL,), marks.JournalEntry),
    Kind("barrier", LOCKSTEP, marks.Barrier),
)
BY_TYPE: Mapping[str, Kind] = {kind.type: kind for kind in KINDS}


def kinds_on(topic: str) -> tuple[Kind, ...]:
    """The kinds that may lie on a topic, the main one first; empty for a topic that is not ours."""
    return tuple(kind for kind in KINDS if topic in kind.topics)


def _record_model(kind: Kind) -> type[Envelope[Any]]:
    name = "".join(word.capitalize() for word in kind.name.split(".")) + "Record"
    fields: dict[str, Any] = {"type": (Literal[kind.type], ...)}
    base = Envelope[kind.model]  # type: ignore[name-defined]  # the content's model is known at run time only
    return cast("type[Envelope[Any]]", create_model(name, __base__=base, __doc__=kind.model.__doc__, **fields))


RECORD_MODELS: Mapping[str, type[Envelope[Any]]] = {kind.name: _record_model(kind) for kind in KINDS}
"""Whole bodies (envelope and content) by short name of the kind."""
READERS: Mapping[str, TypeAdapter[Envelope[Any]]] = {kind.type: TypeAdapter(RECORD_MODELS[kind.name]) for kind in KINDS}
"""Validators of whole bodies by type, built once."""
