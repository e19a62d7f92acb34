"""From a record to what it says, or a WireError that says where reading stopped. Nothing else is ever raised.

A record is judged once, by the model of its kind; the rest is construction. Headers help but are not needed:
sinks and bridges may have dropped them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from rebalancer.adapters.translate import messages as say
from rebalancer.adapters.translate.messages import Content, Received, Tombstone, WireError
from rebalancer.adapters.translate.shapes import constructor
from rebalancer.adapters.translate.stimuli import decode_stimulus
from rebalancer.core import charges, facts, instructions, loans, plan, stimuli, telemetry
from rebalancer.core.stimuli import FactDeleted, FactKind
from rebalancer.wire import v1
from rebalancer.wire.envelope import RESERVED, Envelope, Headers, header

Make = Callable[[Any, datetime], Content]


def _plain(kind: type) -> Make:
    build = constructor(kind)
    return lambda data, _: build(data)


def _dated(kind: type) -> Make:
    build = constructor(kind)
    return lambda data, at: build(data, at=at)


def _fact(kind: type) -> Make:
    build = constructor(kind)
    return lambda data, at: stimuli.FactObserved(build(data), at)


def _wrapped(outer: Callable[[Any], Content], kind: type) -> Make:
    build = constructor(kind)
    return lambda data, _: outer(build(data))


MAKERS: dict[str, Make] = {
    "fact.node": _fact(facts.Node),
    "fact.pod": _fact(facts.Pod),
    "fact.budget": _fact(facts.Budget),
    "fact.group": _fact(facts.GangSpec),
    "fact.namespace": _fact(facts.Namespace),
    "fact.control": _fact(facts.Control),
    "snapshot.began": _dated(stimuli.SnapshotBegan),
    "snapshot.ended": _dated(stimuli.SnapshotEnded),
    "control.snapshot": _dated(say.SnapshotRequested),
    "control.approve": _dated(stimuli.Approved),
    "control.recall": _dated(stimuli.RecallRequested),
    "sample.device": _plain(telemetry.NodeSample),
    "sample.demand": _wrapped(stimuli.DemandReported, telemetry.DemandSample),
    "state.node": _wrapped(stimuli.VerdictGiven, telemetry.Verdict),
    "state.telemetry": _wrapped(stimuli.HeartbeatHeard, telemetry.Heartbeat),
    "state.pool": _plain(instructions.PoolState),
    "state.loan": _plain(loans.Loan),
    "state.workload": _plain(instructions.WorkloadRecord),
    "usage.loan": _plain(charges.LoanUsage),
    "usage.pool": _plain(charges.PoolUsage),
    "forecast.pool": _plain(instructions.PoolMemory),
    "decision.plan": _plain(plan.Plan),
    "decision.term": _dated(say.TermRecord),
    "decision.outcome": _wrapped(stimuli.OutcomeReported, plan.Outcome),
    "alert.raised": _plain(instructions.RaiseAlert),
    "alert.cleared": _dated(instructions.ClearAlert),
    "journal": lambda data, _: say.JournalEntry(decode_stimulus(data.stimulus), data.now, data.session, data.number),
    "barrier": _plain(say.Barrier),
}
_FACT_OF: dict[str, FactKind] = {
    v1.FACT_TOPICS["node"]: "node",
    v1.FACT_TOPICS["pod"]: "pod",
    v1.FACT_TOPICS["budget"]: "budget",
    v1.FACT_TOPICS["group"]: "group",
    v1.FACT_TOPICS["namespace"]: "namespace",
    v1.FACT_TOPICS["control"]: "control",
}
_ON: dict[str, frozenset[str]] = {
    topic: frozenset(kind.type for kind in v1.kinds_on(topic)) for kind in v1.KINDS for topic in kind.topics
}


def decode(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None = None,
    received_at: datetime | None = None,
) -> Content:
    """What a record says; see :func:`read`."""
    return read(topic, key, value, headers, received_at).content


def read(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None = None,
    received_at: datetime | None = None,
) -> Received:
    """A record with its cluster and identity; raises WireError.

    A tombstone of a fact needs to know when: from its headers, else from ``received_at``, else it is refused.
    """
    if topic not in _ON:
        raise WireError("topic", f"{topic} is not ours")
    if value is None:
        return _read_tombstone(topic, key, headers, received_at)
    if not value:
        raise WireError("bytes", "empty")
    kind = v1.BY_TYPE[_type(topic, value, headers)]
    body = _validate(kind.type, value)
    return Received(kind.name, body.cluster, body.id, body.time, _make(kind.name, body))


def cluster_of(headers: Headers | None) -> str | None:
    """The cluster by the headers alone, to pass over others' records unread; None if not told."""
    return header(headers, "ce_cluster")


def _type(topic: str, value: bytes, headers: Headers | None) -> str:
    told = header(headers, "ce_type")
    if told not in _ON[topic]:
        told = _type_in_body(value)
    if told not in _ON[topic]:
        raise WireError("envelope", f"type {told!r:.80} does not belong on {topic}")
    return told


def _type_in_body(value: bytes) -> str:
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError as refused:
        raise WireError("bytes", f"not JSON: {refused}") from refused
    told = body.get("type") if isinstance(body, dict) else None
    if not isinstance(told, str):
        raise WireError("envelope", "no type")
    return told


def _validate(kind: str, value: bytes) -> Envelope[Any]:
    try:
        return v1.READERS[kind].validate_json(value)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_context=False)[0]
        where = [str(part) for part in first["loc"]]
        if first["type"] == "json_invalid":
            raise WireError("bytes", first["msg"]) from refused
        inside = where[:1] == ["data"] and len(where) > 1
        stage: say.Stage = "shape" if inside else "envelope"
        raise WireError(stage, f"{'.'.join(where)}: {first['msg']}") from refused


def _make(name: str, body: Envelope[Any]) -> Content:
    try:
        return MAKERS[name](body.data, body.time)
    except WireError:
        raise
    except ValueError as refused:
        raise WireError("meaning", str(refused)) from refused


def _key_text(key: bytes | None) -> str:
    if not key:
        raise WireError("bytes", "a tombstone without key")
    try:
        return key.decode()
    except UnicodeDecodeError as refused:
        raise WireError("bytes", "the key is not UTF-8") from refused


def _read_tombstone(topic: str, key: bytes | None, headers: Headers | None, received_at: datetime | None) -> Received:
    text = _key_text(key)
    cluster, event_id = header(headers, "ce_cluster") or "", header(headers, "ce_id") or ""
    at = _time(header(headers, "ce_time")) or received_at
    of = _FACT_OF.get(topic)
    if of is None or text.encode().startswith(RESERVED):
        name = text.removeprefix(f"{cluster}/") if cluster else text
        return Received("tombstone", cluster, event_id, at, Tombstone(topic, name))
    if at is None:
        raise WireError("envelope", "a tombstone that does not say when")
    uid = text.rpartition("/")[2] if of == "control" else text
    return Received(f"fact.{of}", cluster, event_id, at, FactDeleted(of, uid, at))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
