"""What a simulated day consists of, as frozen data: fleet, services, jobs, faults.

Times are seconds since the start unless a name says otherwise; GPU loads are in GPUs. How these are read from a
plain mapping is ``loading``'s; the format is described there. Nothing here behaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

Clock: TypeAlias = float | str
"""Seconds since the start, or local "HH:MM" (its first occurrence from the start on)."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A lending window in the scenario's zone; ``end`` before ``start`` lies on the next day. Days: 0 = Monday."""

    name: str
    start: str = "00:00"
    end: str = "00:00"
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    always: bool = False


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Equal nodes of one model and one owner; ``tainted``: they carry ``workload=<owner>:NoSchedule``."""

    name: str
    owner: Literal["inference", "training", "batch"]
    nodes: int
    gpus: int = 8
    model: str = ""
    memory_gib: int = 80
    network: str = "roce"
    tainted: bool = True
    lends_to: tuple[Literal["inference", "training", "batch"], ...] = ()
    windows: tuple[WindowSpec, ...] = ()
    floor_nodes: int = 1
    floor_share: float = 0.20
    cold_start_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """A PodDisruptionBudget; exactly one of the two is meant to be set (numbers, not percentages)."""

    min_available: int | None = None
    max_unavailable: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """An inference service. ``peak_gpus`` is its load where its curve is 1; replicas hold ``gpus`` each.

    ``spread``: no two replicas on one host. ``scale_in`` false: what has grown stays. ``idle_share`` of a
    replica's GPUs is busy without load. ``trace``: load in GPUs every ``trace_seconds`` (linear between), which
    replaces curve and peak.
    """

    name: str
    pool: str
    gpus: int
    minimum: int
    maximum: int
    peak_gpus: float = 0.0
    curve: str = ""
    namespace: str = "serving"
    scale_in: bool = True
    spread: bool = True
    noise: float = 0.0
    start_seconds: float = 60.0
    leave_seconds: float = 10.0
    grace_seconds: int = 30
    stabilise_seconds: float = 300.0
    priority: int = 1000
    budget: BudgetSpec | None = None
    trace: tuple[float, ...] = ()
    trace_seconds: float = 600.0
    trace_share: float = 1.0
    trace_noise: float = 0.0
    """Coefficient of variation of gamma noise per step (mean 1), the same draw for all services of a pool."""


@dataclass(frozen=True, slots=True)
class SpikeSpec:
    """An unannounced rise: ``gpus`` more for one service from ``at``, rising over ``rise_seconds``."""

    service: str
    at: Clock
    seconds: float
    gpus: float
    rise_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training job: a gang of ``pods`` of ``gpus`` each, running for ``seconds`` once whole.

    ``min_pods`` below ``pods`` makes it elastic. ``checkpoint_seconds`` above ``grace_seconds`` means that an
    eviction loses what was done since the last periodic checkpoint. Jobs with ``notice_seconds`` write a
    checkpoint when they are told.
    """

    name: str
    pods: int
    gpus: int
    seconds: float
    at: float = 0.0
    models: tuple[str, ...] = ()
    pool: str = ""
    owner: Literal["training", "batch"] = "training"
    namespace: str = "research"
    queue: str = "training"
    min_pods: int | None = None
    reclaimable: bool = True
    tolerates_loan: bool = True
    network: str = ""
    priority: int = 0
    grace_seconds: int = 30
    checkpoint_seconds: float = 20.0
    checkpoint_period: float = 1800.0
    start_seconds: float = 40.0
    notice_seconds: int = 0
    budget: BudgetSpec | None = None
    hangs: bool = False
    """A finalizer keeps its deleted pods until a fault of kind ``finalizer-released``."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A generator of jobs like ``template``.

    ``per_hour`` arrivals (Poisson), and never fewer than ``keep_waiting`` gangs in the queue. ``shapes`` are
    [pods, gpus, weight]; ``hours`` is the span that durations are drawn from (log-uniform).
    """

    name: str
    shapes: tuple[tuple[int, int, float], ...]
    hours: tuple[float, float]
    template: JobSpec
    per_hour: float = 0.0
    keep_waiting: int = 0
    elastic_share: float = 0.0


FaultKind: TypeAlias = Literal[
    "exporter-frozen", "exporter-silent", "node-lost", "node-not-ready", "node-cordoned", "node-replaced",
    "watch-gap", "facts-duplicated", "facts-late", "facts-reordered", "outsider-taint", "kafka-away",
    "finalizer-hangs", "finalizer-released", "budget-closed", "api", "control", "squatter",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Something that goes wrong from ``at`` for ``seconds`` (0: once, or for good where it lasts).

    ``node``: a name, "@lent" (the first lent node by name) or "" (all, where that makes sense). What the other
    fields mean to each kind is told in ``faults``.
    """

    kind: FaultKind
    at: Clock
    seconds: float = 0.0
    node: str = ""
    target: str = ""
    share: float = 1.0
    count: int = 0
    delay_seconds: float = 0.0
    calls: tuple[str, ...] = ()
    taint: str = ""
    lands: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole of it. ``curves``: name -> local "HH:MM" -> share of the peak, linear between, daily."""

    name: str
    start: datetime
    pools: tuple[PoolSpec, ...]
    zone: str = "UTC"
    seed: int = 1
    hours: float = 24.0
    step_seconds: float = 60.0
    warm_up_seconds: float = 1800.0
    cluster: str = "sim"
    services: tuple[ServiceSpec, ...] = ()
    curves: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spikes: tuple[SpikeSpec, ...] = ()
    streams: tuple[StreamSpec, ...] = ()
    jobs: tuple[JobSpec, ...] = ()
    faults: tuple[FaultSpec, ...] = ()
    demand_topic: tuple[str, ...] = ()
    """Inference pools whose present load the demand topic tells."""
    resubmit_seconds: float = 30.0
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the policy's numbers by section; durations in seconds. See ``policies``."""
    about: str = ""

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return round(self.hours * 3600.0 / self.step_seconds)
