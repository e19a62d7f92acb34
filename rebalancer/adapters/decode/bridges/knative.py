"""Knative's ApiServerSource through a KafkaSink: CloudEvents, structured or binary, in Resource or Reference mode.

A reference says that something changed, not what: it is a hint and never overwrites a known object. Subjects
of cluster-scoped objects have an empty namespace; they are not read, since the object says it better.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item, Message, each, parse_json
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, fact_kind
from rebalancer.adapters.decode.moments import moment
from rebalancer.adapters.decode.objects import mapping, metadata, text
from rebalancer.adapters.decode.watch import Hint, Seen, changed, gone

STAGE = "knative"
PREFIX = "dev.knative.apiserver."
STRUCTURED = "application/cloudevents"


def decode(message: Message, reading: Reading) -> list[Item]:
    """Sightings of one event, or of a batch.

    Raises:
        DecodeError: it is no CloudEvent.
    """
    body = parse_json(message.value, STAGE)
    kind = message.headers.get("ce_type") or message.headers.get("ce-type") or ""
    if kind and not message.headers.get("content-type", "").startswith(STRUCTURED):
        stamp = message.headers.get("ce_time") or message.headers.get("ce-time")
        return each([{"type": kind, "time": stamp, "data": body}], lambda event: _event(event, reading))
    return each(body if isinstance(body, list) else [body], lambda event: _event(event, reading))


def _event(event: Mapping[str, Any], reading: Reading) -> Iterable[Seen]:
    kind = text(event.get("type"))
    if not kind.startswith(PREFIX):
        raise DecodeError(STAGE, f"{kind[:80]!r} is no event of an ApiServerSource")
    raw, at = _data(event), moment(event.get("time"))
    mode, _, verb = kind.removeprefix(PREFIX).partition(".")
    if mode == "ref":
        return _reference(raw, verb, event)
    if mode != "resource" or verb not in ("add", "update", "delete"):
        raise DecodeError(STAGE, f"{kind[:80]!r} is no known change")
    return gone(raw, at) if verb == "delete" else changed(raw, reading, at)


def _reference(raw: Mapping[str, Any], verb: str, event: Mapping[str, Any]) -> tuple[Seen, ...]:
    """An ObjectReference has its name at the top, other versions put it under metadata."""
    of = fact_kind(text(raw.get("kind")), text(raw.get("apiVersion")))
    if of is None:
        return ()
    meta = metadata(raw)
    namespace, name = (text(raw.get(key)) or text(meta.get(key)) for key in ("namespace", "name"))
    return (Hint(of, namespace, name, f"a reference without content: {verb[:20]}", moment(event.get("time"))),)


def _data(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event's data: JSON, JSON in a text, or JSON in base64."""
    data = event.get("data")
    encoded = event.get("data_base64")
    if data is None and isinstance(encoded, str):
        try:
            data = parse_json(base64.b64decode(encoded, validate=True), STAGE)
        except (binascii.Error, ValueError) as broken:
            raise DecodeError(STAGE, "data_base64 cannot be read") from broken
    if isinstance(data, str):
        data = parse_json(data.encode("utf-8", "replace"), STAGE)
    if not mapping(data):
        raise DecodeError(STAGE, "the event has no data")
    return mapping(data)
