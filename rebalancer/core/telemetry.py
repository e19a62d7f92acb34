"""What telemetry says, as data: device readings, node samples, verdicts, heartbeats.

``None`` is "not reported"; raw values may still be garbage (blanks, NaN, out of range): judging them is
``activity``'s. Data lives here, and how much of a change in it is worth telling; nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rebalancer.core.units import Activity, NodeUid, PoolName

WORTH = 0.05
"""Change of a node's utilisation sum that is told, in GPUs for each of its GPUs (5 points)."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One GPU (or MIG instance) at one scrape.

    ``engine_active`` is a ratio 0..1 (PROF_GR_ENGINE_ACTIVE), ``gpu_util`` a percentage 0..100. ``power`` watts,
    ``energy`` millijoules since boot, ``temperature`` degrees Celsius, ``memory_used`` MiB. ``xid`` is the last
    XID code (0 or None: none known). ``instance`` is the MIG instance id, "" for a whole GPU.
    """

    uuid: str
    engine_active: float | None = None
    gpu_util: float | None = None
    power: float | None = None
    energy: float | None = None
    temperature: float | None = None
    memory_used: float | None = None
    xid: int | None = None
    instance: str = ""
    pod: str = ""
    """namespace/name if the exporter attributed it: a hint, never the truth."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    """All readings of one node at one scrape; ``expected`` is how many GPUs the node should report."""

    node: NodeUid
    node_name: str
    at: datetime
    expected: int
    devices: tuple[DeviceReading, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a node is doing. ``utilisation`` is the sum over its GPUs in GPUs (0..gpus), None when unknown.

    ``since`` is when this activity began (event time). ``partition`` is the sample partition it came from: the
    verdict stays fresh while heartbeats cover that partition. ``unhealthy`` lists XID codes that take the node
    out of supply.
    """

    node: NodeUid
    activity: Activity
    utilisation: float | None
    gpus_seen: int
    since: datetime
    at: datetime
    partition: int = 0
    why: str = ""
    signal: str = ""
    unhealthy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A telemetry worker is alive and has judged these sample partitions up to ``at`` (event time)."""

    worker: str
    at: datetime
    partitions: tuple[int, ...]
    nodes: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class DemandSample:
    """What the demand topic says a pool wants, in GPUs."""

    pool: PoolName
    gpus: float
    at: datetime
    source: str = ""


def after(last: datetime | None, verdict: Verdict) -> Verdict:
    """The verdict as it is told when the last one of its node was of ``last``: never as of an earlier moment.

    Silence is judged as of now, a node that speaks as of its newest sample, which may be a little older: told as of
    then, it would be taken for old news, and the node would stay unknown for as long as nothing about it changes.
    """
    return verdict if last is None or verdict.at >= last else replace(verdict, at=last)


def worth_telling(before: Verdict | None, verdict: Verdict) -> bool:
    """Whether a verdict differs enough from the last one told: another activity, cause or health, or 5 points."""
    if before is None or before.activity is not verdict.activity or before.unhealthy != verdict.unhealthy:
        return True
    if before.since != verdict.since or before.why != verdict.why:
        return True
    if verdict.activity is Activity.UNKNOWN or verdict.utilisation is None or before.utilisation is None:
        return before.utilisation != verdict.utilisation
    return abs(verdict.utilisation - before.utilisation) > WORTH * max(1, verdict.gpus_seen)
