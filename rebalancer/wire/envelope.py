"""What every record has in common: key, value, CloudEvents headers, and the same identity again in the body.

Headers follow the Kafka binding of CloudEvents 1.0 in binary mode (attribute ``x`` is header ``ce_x``). The
identity is repeated in the body because many sinks drop headers. Ids are hashes of what is said, so that the
same record told twice has one id. No content is known here; that is the versions' matter.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import orjson
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictStr

Headers: TypeAlias = Sequence[tuple[str, bytes]]

BARRIER_KEY = "~barrier"
SNAPSHOT_KEY = "~snapshot"
RESERVED = b"~"
"""First byte of keys that name no object: marks and barriers."""
TYPE_PREFIX = "io.gpu-rebalancer."


class Record(NamedTuple):
    """One record as Kafka has it; ``value`` None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]


def _utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside of what a date can hold in UTC") from None


Moment: TypeAlias = Annotated[AwareDatetime, AfterValidator(_utc)]
"""RFC 3339 with an offset; kept in UTC."""
Name: TypeAlias = Annotated[StrictStr, Field(min_length=1, max_length=1024)]
Text: TypeAlias = Annotated[StrictStr, Field(max_length=65536)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]
Whole: TypeAlias = Annotated[int, Field(ge=-(2**53), le=2**53)]
Number: TypeAlias = float | Whole | Text


class Shape(BaseModel):
    """Base of all models: types are strict, fields that a reader does not know are ignored."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Data = TypeVar("Data", bound=Shape)


class Envelope(Shape, Generic[Data]):
    """Identity of a record, repeated from its headers, and its content under ``data``."""

    id: Name
    """Stable hash of type, cluster, key, time and content: the same record told twice has the same id."""
    time: Moment
    """When it happened (event time), never when it was written."""
    cluster: Name
    """The Kubernetes cluster it is about."""
    schema_version: Literal["v1"] = Field(alias="schema")
    """Version of the shape."""
    type: Name
    """What kind of record this is; the header ``ce_type`` says the same."""
    data: Data


def isoformat(moment: datetime) -> str:
    """RFC 3339 in UTC with ``Z``; raises ValueError for a moment without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no zone")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def headers(kind: str, event_id: str, cluster: str, time: str) -> list[tuple[str, bytes]]:
    """CloudEvents headers in binary mode; ``ce_cluster`` is an extension attribute of ours."""
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        ("ce_type", kind.encode()),
        ("ce_source", b"gpu-rebalancer/" + cluster.encode()),
        ("ce_time", time.encode()),
        ("ce_cluster", cluster.encode()),
        ("content-type", b"application/json"),
    ]


class Said(NamedTuple):
    """About which cluster, as of when, and what: JSON already encoded, None for a tombstone.

    ``core`` is what the id rests on where that is less than ``data``: wording must not change an identity.
    """

    cluster: str
    at: datetime
    data: bytes | None
    core: bytes | None = None


def seal(topic: str, key: str, kind: str, said: Said) -> Record:
    """The record of type ``kind`` for a topic and key."""
    time, cluster, data = isoformat(said.at), said.cluster, said.data
    event_id = stable_hash(kind.encode(), cluster.encode(), key.encode(), time.encode(), said.core or data or b"")
    value = None
    if data is not None:
        body = {"id": event_id, "time": time, "cluster": cluster, "schema": "v1", "type": kind}
        value = orjson.dumps({**body, "data": orjson.Fragment(data)})
    return Record(topic, key.encode(), value, headers(kind, event_id, cluster, time))


def stable_hash(*parts: bytes) -> str:
    """32 hex digits of a SHA-256 over the parts, each with its length, so that no two lists of parts meet."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()[:32]


def header(found: Headers | None, name: str) -> str | None:
    """A header's text, or None if it is absent, empty or not UTF-8."""
    for key, raw in found or ():
        if key == name and raw:
            try:
                return raw.decode()
            except UnicodeDecodeError:
                return None
    return None


def cluster_partition(cluster: str, partitions: int, placed: Mapping[str, int] | None = None) -> int:
    """Partition of everything about a cluster: from the explicit map, else CRC-32 of its name."""
    chosen = (placed or {}).get(cluster)
    if chosen is None:
        return zlib.crc32(cluster.encode()) % partitions
    if not 0 <= chosen < partitions:
        raise ValueError(f"cluster {cluster} is placed on partition {chosen} of {partitions}")
    return chosen


def key_partition(key: bytes, partitions: int) -> int:
    """Partition of a record that is spread by its own key (device samples)."""
    return zlib.crc32(key) % partitions
