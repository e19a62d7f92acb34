"""Everything the engine can ask for: frozen imperatives, carried out by shells.

``PublishPlan``, ``RecordLoan``, ``RecordWorkload`` and ``RecordPool`` are acknowledged by the broker before the
stimulus that caused them counts as handled; the rest is best effort. Only data lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from rebalancer.core.charges import Charge, UsageMemory
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Plan
from rebalancer.core.reasons import Because
from rebalancer.core.units import LoanId, Number, PoolName, WorkloadId


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """What must outlive a restart about a workload: its evictions and until when it may not borrow.

    Keyed by stable identity (namespace, queue, owner), so that resubmitting resets nothing.
    """

    workload: WorkloadId
    namespace: str
    evictions: tuple[datetime, ...] = ()
    cooldown_until: datetime | None = None
    protected_until: datetime | None = None
    last_plan: str = ""


@dataclass(frozen=True, slots=True)
class PoolState:
    """The public picture of a pool, all in GPUs unless named otherwise.

    ``idle_blockers`` maps a reason to idle GPUs that it keeps from being lent; ``idle_gpu_hours`` the same
    accumulated since the UTC day began. ``occupancy`` maps a window ("1m", "10m", "1h") to mean held / owned.
    """

    pool: PoolName
    at: datetime
    owned: int
    busy: int
    idle: int
    unknown: int
    unhealthy: int
    held: int
    free: int
    pending: int
    releasing: int
    lent: int
    borrowed: int
    demand: float
    headroom: float
    nodes: int
    lent_nodes: int
    floor_nodes: int
    mode: str
    window_open: bool
    idle_blockers: Mapping[str, int] = field(default_factory=dict)
    idle_gpu_hours: Mapping[str, float] = field(default_factory=dict)
    occupancy: Mapping[str, float] = field(default_factory=dict)
    shadow: Mapping[str, float] = field(default_factory=dict)
    """Hindsight score of virtual loans: gpu_hours_lent, gpu_hours_missed (lent while demand wanted them)."""


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """What headroom has learnt about a pool, so that a restart forgets nothing.

    ``history`` are demand maxima in GPUs per bucket of ``bucket_seconds``, oldest first, the last one beginning at
    ``until``; NaN is a gap. ``quantile`` is where the integral loop stands; ``returns`` the last measured
    return times in seconds. ``quantiles`` maps "0.5", "0.9", ... to GPUs within ``horizon_seconds``.
    """

    pool: PoolName
    made_at: datetime
    until: datetime
    bucket_seconds: int
    history: tuple[float, ...]
    quantile: float
    shortage_gpu_seconds: float
    demand_gpu_seconds: float
    returns: tuple[float, ...]
    horizon_seconds: float
    quantiles: Mapping[str, float] = field(default_factory=dict)
    rising_since: datetime | None = None
    """Since when demand and headroom exceed what stands ready: a restart must not debounce anew."""
    usage: UsageMemory | None = None
    """Running totals of usage up to ``made_at``; None: nothing was accounted."""


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """Publish a plan; in act mode the actor carries it out."""

    plan: Plan
    kind: Literal["publish-plan"] = "publish-plan"


@dataclass(frozen=True, slots=True)
class RecordLoan:
    """Write the loan's latest state to the ledger topic."""

    loan: Loan
    kind: Literal["record-loan"] = "record-loan"


@dataclass(frozen=True, slots=True)
class RecordWorkload:
    """Write a workload's record."""

    record: WorkloadRecord
    kind: Literal["record-workload"] = "record-workload"


@dataclass(frozen=True, slots=True)
class RecordPool:
    """Publish a pool's picture."""

    state: PoolState
    kind: Literal["record-pool"] = "record-pool"


@dataclass(frozen=True, slots=True)
class RecordForecast:
    """Publish what headroom has learnt."""

    memory: PoolMemory
    kind: Literal["record-forecast"] = "record-forecast"


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """Append what a pool or a loan used; told again, or anew after a restart, it has the same id."""

    charge: Charge
    kind: Literal["record-usage"] = "record-usage"


@dataclass(frozen=True, slots=True)
class RaiseAlert:
    """An alert stands. ``id`` is stable for (reason, target); labels identify, the because tells."""

    id: str
    severity: Literal["warning", "critical"]
    target: str
    pool: PoolName
    because: Because
    since: datetime
    numbers: Mapping[str, Number] = field(default_factory=dict)
    kind: Literal["raise-alert"] = "raise-alert"


@dataclass(frozen=True, slots=True)
class ClearAlert:
    """The alert is over."""

    id: str
    at: datetime
    kind: Literal["clear-alert"] = "clear-alert"


@dataclass(frozen=True, slots=True)
class ForgetLoan:
    """A loan closed so long ago that its key is deleted from the ledger topic."""

    loan: LoanId
    kind: Literal["forget-loan"] = "forget-loan"


@dataclass(frozen=True, slots=True)
class ForgetAlert:
    """An alert was cleared so long ago that its key is deleted from the alert topic."""

    id: str
    kind: Literal["forget-alert"] = "forget-alert"


@dataclass(frozen=True, slots=True)
class AskSnapshot:
    """The picture of one kind is not complete: ask the collector for a full list."""

    of: str
    because: Because
    kind: Literal["ask-snapshot"] = "ask-snapshot"


Instruction: TypeAlias = (
    PublishPlan | RecordLoan | RecordWorkload | RecordPool | RecordForecast | RecordUsage | RaiseAlert | ClearAlert
    | ForgetLoan | ForgetAlert | AskSnapshot
)  # fmt: skip
