"""OTLP as JSON: metrics of a Prometheus receiver, and objects of the k8sobjects receiver (watch, pull, PullEnd).

Integers and nanoseconds are texts, attributes are lists of pairs, one message holds many points. Field names
come in lower camel case, or as in the protobuf. Protobuf itself is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item, Message, each, parse_json
from rebalancer.adapters.decode.bridges.objects_json import sighting
from rebalancer.adapters.decode.bridges.prometheus_adapter import number
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.moments import epoch
from rebalancer.adapters.decode.objects import items, mapping, text, whole

STAGE = "otlp"
DEPTH_LIMIT = 64
NO_RECORDED_VALUE = 1
"""Bit of a point's flags (opentelemetry/proto/metrics/v1): the series ended."""
_DELTA = (1, "1", "AGGREGATION_TEMPORALITY_DELTA")


def decode(message: Message, reading: Reading) -> list[Item]:
    """Rows and sightings of one message.

    Raises:
        UnsupportedEncodingError: it is protobuf.
        DecodeError: it is no OTLP JSON.
    """
    raw = mapping(parse_json(message.value, STAGE))
    metrics, logs = _get(raw, "resourceMetrics"), _get(raw, "resourceLogs")
    if not isinstance(metrics, list) and not isinstance(logs, list):
        raise DecodeError(STAGE, "neither resourceMetrics nor resourceLogs")
    found = each(_points(items(metrics)), _row)
    return found + each(_records(items(logs)), lambda record: _record(record, reading))


def _get(raw: Mapping[str, Any], camel: str) -> Any:
    """A field by its JSON name, or by its name in the protobuf."""
    if camel in raw:
        return raw[camel]
    return raw.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel))


def _points(resources: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every data point with what it inherits."""
    for resource in resources:
        base = _labels(_get(mapping(resource.get("resource")), "attributes"))
        for scope in items(_get(resource, "scopeMetrics")):
            for metric in items(scope.get("metrics")):
                body = mapping(metric.get("gauge")) or mapping(metric.get("sum"))
                delta = _get(body, "aggregationTemporality") in _DELTA
                for point in items(_get(body, "dataPoints")):
                    yield {"name": metric.get("name"), "base": base, "delta": delta, "point": point}


def _row(part: Mapping[str, Any]) -> list[Item]:
    point, name = part["point"], text(part["name"])
    if not name:
        raise DecodeError(STAGE, "a metric needs a name")
    if part["delta"]:
        raise DecodeError(STAGE, "a delta is no state")
    own = _labels(point.get("attributes"))
    labels = {**part["base"], **own}
    if "service.instance.id" in labels:
        labels.setdefault("instance", labels["service.instance.id"])
    return [Row(name, labels, _value(point), epoch(_get(point, "timeUnixNano")))]


def _value(point: Mapping[str, Any]) -> float:
    if (whole(point.get("flags")) or 0) & NO_RECORDED_VALUE:
        return float("nan")
    spelled = _get(point, "asDouble")
    return number(spelled if spelled is not None else _get(point, "asInt"), STAGE)


def _labels(attributes: object) -> dict[str, str]:
    found = ((text(item.get("key")), _plain(item.get("value"))) for item in items(attributes))
    return {key: text(value) for key, value in found if key}


def _records(resources: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for resource in resources:
        for scope in items(_get(resource, "scopeLogs")):
            yield from items(_get(scope, "logRecords"))


def _record(record: Mapping[str, Any], reading: Reading) -> list[Item]:
    body = _plain(record.get("body"))
    if isinstance(body, str):
        body = parse_json(body.encode("utf-8", "replace"), STAGE)
    if not isinstance(body, Mapping):
        raise DecodeError(STAGE, "the record's body is no object")
    return list(sighting(body, reading, _at(record)))


def _at(record: Mapping[str, Any]) -> datetime | None:
    return epoch(_get(record, "timeUnixNano") or None) or epoch(_get(record, "observedTimeUnixNano"))


def _plain(value: object, depth: int = 0) -> Any:
    """An AnyValue as plain JSON.

    Raises:
        DecodeError: nested deeper than any object of Kubernetes.
    """
    if depth > DEPTH_LIMIT:
        raise DecodeError(STAGE, f"nested deeper than {DEPTH_LIMIT}")
    raw = mapping(value)
    for key in ("stringValue", "boolValue", "doubleValue"):
        plain = _get(raw, key)
        if plain is not None:
            return plain
    integer = _get(raw, "intValue")
    if integer is not None:
        return whole(integer)
    listed = _get(raw, "arrayValue")
    if listed is not None:
        return [_plain(item, depth + 1) for item in items(mapping(listed).get("values"))]
    pairs = _get(raw, "kvlistValue")
    if pairs is not None:
        entries = items(mapping(pairs).get("values"))
        return {text(item.get("key")): _plain(item.get("value"), depth + 1) for item in entries}
    return None
