"""What telemetry says: device samples, node verdicts, heartbeats of workers, wanted GPUs of pools.

A reading that is not a number is null: not reported. Raw readings are not judged here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from rebalancer.wire.envelope import Count, Moment, Name, Shape, Text, Whole

Activity: TypeAlias = Literal["busy", "idle", "unknown"]


class DeviceReading(Shape):
    """One GPU, or MIG instance, at one scrape."""

    uuid: Name
    engine_active: float | None = None
    """Ratio 0..1."""
    gpu_util: float | None = None
    """Percent 0..100."""
    power: float | None = None
    """Watts."""
    energy: float | None = None
    """Millijoules since boot."""
    temperature: float | None = None
    """Degrees Celsius."""
    memory_used: float | None = None
    """MiB."""
    xid: Whole | None = None
    """Last XID code; 0 or null: none known."""
    instance: Text = ""
    """MIG instance id, empty for a whole GPU."""
    pod: Text = ""
    """namespace/name if the exporter attributed it: a hint."""


class NodeSample(Shape):
    """All readings of one node at one scrape."""

    node: Name
    node_name: Name
    at: Moment
    expected: Count
    """How many GPUs the node should report."""
    devices: tuple[DeviceReading, ...]


class Verdict(Shape):
    """What a node is doing."""

    node: Name
    activity: Activity
    utilisation: float | None
    """Sum over the node's GPUs, in GPUs; null when unknown."""
    gpus_seen: Count
    since: Moment
    at: Moment
    partition: Count = 0
    """The sample partition it was judged from."""
    why: Text = ""
    signal: Text = ""
    unhealthy: tuple[Whole, ...] = ()
    """XID codes that take the node out of supply."""


class Heartbeat(Shape):
    """A telemetry worker is alive and has judged these sample partitions up to ``at``."""

    worker: Name
    at: Moment
    partitions: tuple[Count, ...]
    nodes: Count
    lag_seconds: float


class DemandSample(Shape):
    """How many GPUs a pool wants, as its owner or a gateway says."""

    pool: Name
    gpus: float
    at: Moment
    source: Text = ""
