"""Kubernetes objects as plain JSON: bare, as watch events, as lists, from Argo Events; and tombstones.

A tombstone knows a name at most, and a new object may bear it: a hint to look, never a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item, Message, documents, each, parse_json
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, fact_kind, singular
from rebalancer.adapters.decode.objects import items, text
from rebalancer.adapters.decode.watch import Hint, ListEnded, Seen, changed, decode_watch, gone

STAGE = "objects"
PULL_END = "pullend"
_DELETIONS = frozenset({"delete", "deleted"})


def decode(message: Message, reading: Reading) -> list[Item]:
    """Sightings of one message.

    Raises:
        DecodeError: no JSON at all.
    """
    return each(documents(message.value, STAGE), lambda raw: sighting(raw, reading, None))


def sighting(raw: Mapping[str, Any], reading: Reading, at: datetime | None) -> Iterable[Seen]:
    """What one JSON object tells, whichever of the plain shapes it has.

    Raises:
        DecodeError: it has none of them.
    """
    kind, inner = text(raw.get("type")), raw.get("object")
    if isinstance(inner, Mapping) and kind:
        if kind.lower() == PULL_END:
            return _list_ended(inner, at)
        return decode_watch(raw, reading, at)
    if "body" in raw and kind:
        return _argo(kind, raw["body"], reading, at)
    if text(raw.get("kind")).endswith("List") and isinstance(raw.get("items"), list):
        return _listed(raw, reading, at)
    return changed(raw, reading, at)


def _list_ended(inner: Mapping[str, Any], at: datetime | None) -> tuple[Seen, ...]:
    of = fact_kind(singular(text(inner.get("kind"))))
    return (ListEnded(of, at),) if of is not None else ()


def _argo(kind: str, body: object, reading: Reading, at: datetime | None) -> tuple[Seen, ...]:
    """Argo Events: ``type`` ADD, UPDATE or DELETE beside the object, which may be quoted JSON."""
    raw = parse_json(body.encode("utf-8", "replace"), STAGE) if isinstance(body, str) else body
    if not isinstance(raw, Mapping):
        raise DecodeError(STAGE, "the event's body is no object")
    if kind.lower() in _DELETIONS:
        return gone(raw, at)
    return decode_watch({"type": kind, "object": raw}, reading, at)


def _listed(raw: Mapping[str, Any], reading: Reading, at: datetime | None) -> list[Seen]:
    """Items of a list carry no kind of their own; the list may be one page of many, so nothing ends here."""
    kind = {"apiVersion": raw.get("apiVersion"), "kind": text(raw.get("kind")).removesuffix("List")}
    return [seen for item in items(raw["items"]) for seen in changed({**kind, **item}, reading, at)]


def tombstone(key: bytes | None) -> list[Item]:
    """A record without a value: something of this name may be gone.

    Raises:
        DecodeError: there is no key either.
    """
    parts = (key or b"").decode("utf-8", "replace").strip("/").split("/")
    if not parts[-1]:
        raise DecodeError(STAGE, "a tombstone without a key")
    of = fact_kind(singular(parts[0])) if len(parts) > 2 else None
    return [Hint(of, parts[-2] if len(parts) > 1 else "", parts[-1], "a tombstone knows only the name")]
