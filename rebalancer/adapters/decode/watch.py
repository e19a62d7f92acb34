"""Watch events, and what every bridge of objects turns into: changed, gone, marked, stale, or a mere hint.

Only uids identify. A deletion that knows no uid is a hint to look again, since a new pod may bear the old name.
A bookmark or an error never becomes an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from rebalancer.adapters.decode.control import is_control
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, decode_object, fact_kind
from rebalancer.adapters.decode.objects import items, mapping, metadata, text, whole
from rebalancer.core.stimuli import Fact, FactKind

STAGE = "watch"


@dataclass(frozen=True, slots=True)
class Changed:
    """An object as it now is. ``at``: event time if the envelope had one; ``addresses``: a node's or a pod's."""

    fact: Fact
    at: datetime | None = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """An object with this uid no longer exists; another of its name may."""

    of: FactKind
    uid: str
    namespace: str = ""
    name: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Marked:
    """The stream has reached this resource version; nothing changed."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class SourceStale:
    """The stream broke off: list again, and act on nothing from it until that is done."""

    code: int
    why: str


@dataclass(frozen=True, slots=True)
class ListEnded:
    """A full list of one kind is complete: what was not in it is gone."""

    of: FactKind
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Hint:
    """Something about this object changed, its content is not known: fetch it, or ignore the hint."""

    of: FactKind | None
    namespace: str
    name: str
    why: str
    at: datetime | None = None


Seen: TypeAlias = Changed | Gone | Marked | SourceStale | ListEnded | Hint
_CHANGES = frozenset({"ADDED", "MODIFIED", "ADD", "UPDATE", "CREATE", "CREATED", "UPDATED", "SYNC"})
_DELETIONS = frozenset({"DELETED", "DELETE"})


def decode_watch(event: Mapping[str, Any], reading: Reading, at: datetime | None = None) -> tuple[Seen, ...]:
    """One event ``{type, object}``; empty when no decision needs the object.

    Raises:
        DecodeError: the type is unknown, or the object lacks what identifies it.
    """
    kind, raw = text(event.get("type")).upper(), mapping(event.get("object"))
    if kind == "BOOKMARK":
        return (Marked(text(metadata(raw).get("resourceVersion"))),)
    if kind == "ERROR":
        return (SourceStale(whole(raw.get("code")) or 0, text(raw.get("message"))[:300]),)
    if kind in _CHANGES:
        return changed(raw, reading, at)
    if kind in _DELETIONS:
        return gone(raw, at)
    raise DecodeError(STAGE, f"{kind[:40]!r} is no type of watch event")


def changed(raw: Mapping[str, Any], reading: Reading, at: datetime | None = None) -> tuple[Seen, ...]:
    """An upsert of a full object; a pod or node without its body is a hint, never an object that holds nothing.

    Raises:
        DecodeError: as :func:`decode_object`.
    """
    of, meta = fact_kind(text(raw.get("kind")), text(raw.get("apiVersion"))), metadata(raw)
    if of in ("pod", "node") and not mapping(raw.get("spec" if of == "pod" else "status")):
        return (Hint(of, text(meta.get("namespace")), text(meta.get("name")), "the object came without its body", at),)
    fact = decode_object(raw, reading)
    if fact is None:
        return ()
    return (Changed(fact, at, _addresses(raw)),)


def _addresses(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Names and addresses of a node, or the address of a pod: exporters are often known by nothing else."""
    status = mapping(raw.get("status"))
    found = [text(status.get("podIP")), *(text(item.get("address")) for item in items(status.get("addresses")))]
    return tuple(address for address in found if address)


def gone(raw: Mapping[str, Any], at: datetime | None = None) -> tuple[Seen, ...]:
    """A deletion by uid; without a uid a hint only.

    Raises:
        DecodeError: the object has no kind.
    """
    kind = text(raw.get("kind"))
    if not kind:
        raise DecodeError(STAGE, "the deleted object has no kind")
    of, meta = fact_kind(kind, text(raw.get("apiVersion"))), metadata(raw)
    if of is None or (of == "control" and not is_control(raw)):
        return ()
    uid, namespace, name = (text(meta.get(key)) for key in ("uid", "namespace", "name"))
    if of == "control":
        return (Hint(of, namespace, name, "the control object was deleted", at),)
    if not uid:
        return (Hint(of, namespace, name, "deleted, but no uid was given", at),)
    return (Gone(of, uid, namespace, name, at),)
