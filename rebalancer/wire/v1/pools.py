"""Pools over time: their public picture, and what is forecast for them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from rebalancer.wire.envelope import Count, Moment, Name, Shape, Text, Whole
from rebalancer.wire.v1.usage import UsageMemory


class PoolState(Shape):
    """The picture of a pool, in GPUs unless named otherwise."""

    pool: Name
    at: Moment
    owned: Count
    busy: Count
    idle: Count
    unknown: Count
    unhealthy: Count
    held: Count
    free: Whole
    pending: Count
    releasing: Count
    lent: Count
    borrowed: Count
    demand: float
    headroom: float
    nodes: Count
    lent_nodes: Count
    floor_nodes: Count
    mode: Text
    window_open: bool
    idle_blockers: Mapping[str, Count] = Field(default_factory=dict)
    """Reason to idle GPUs that it keeps from being lent."""
    idle_gpu_hours: Mapping[str, float] = Field(default_factory=dict)
    """The same, accumulated since the UTC day began."""
    occupancy: Mapping[str, float] = Field(default_factory=dict)
    """Span ("1m", "10m", "1h") to mean of held / owned."""
    shadow: Mapping[str, float] = Field(default_factory=dict)
    """Hindsight score of virtual loans."""


class PoolMemory(Shape):
    """What is forecast for a pool, and what that is learnt from."""

    pool: Name
    made_at: Moment
    until: Moment
    """Where the last bucket of ``history`` begins."""
    bucket_seconds: Count
    history: tuple[float | None, ...]
    """Maxima of demand per bucket, oldest first; null is a gap."""
    quantile: float
    shortage_gpu_seconds: float
    demand_gpu_seconds: float
    returns: tuple[float, ...]
    """Last measured return times, seconds."""
    horizon_seconds: float
    quantiles: Mapping[str, float] = Field(default_factory=dict)
    """Quantile to GPUs within the horizon."""
    rising_since: Moment | None = None
    """Since when demand and headroom exceed what stands ready; null: they do not."""
    usage: UsageMemory | None = None
    """Running totals of usage up to ``made_at``; internal to the product."""
