"""Vector's JSON codec for metrics.

The top-level ``namespace`` is Vector's own prefix of the metric's name; the Kubernetes namespace is a tag.
Incremental metrics say a change, not a state, and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item, Message, documents, each
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.moments import moment
from rebalancer.adapters.decode.objects import mapping, text

STAGE = "vector"


def decode(message: Message) -> list[Item]:
    """Rows of one message.

    Raises:
        DecodeError: no JSON at all.
    """
    return each(documents(message.value, STAGE), _metric)


def _metric(raw: Mapping[str, Any]) -> list[Item]:
    name, prefix = text(raw.get("name")), text(raw.get("namespace"))
    if not name:
        raise DecodeError(STAGE, "a metric needs a name")
    if raw.get("kind") == "incremental":
        raise DecodeError(STAGE, "an incremental metric is no state")
    value = next((mapping(raw[kind]).get("value") for kind in ("gauge", "counter") if kind in raw), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DecodeError(STAGE, "neither gauge nor counter with a value")
    labels = {key: _tag(item) for key, item in mapping(raw.get("tags")).items()}
    labels = {key: item for key, item in labels.items() if key != "host"}
    number = float(value) if abs(value) < 1e300 else float("inf")
    return [Row(f"{prefix}_{name}" if prefix else name, labels, number, moment(raw.get("timestamp")))]


def _tag(value: object) -> str:
    """A tag may have several values; the last one is what the plain codec would have written."""
    return text(value[-1]) if isinstance(value, list) and value else text(value)
