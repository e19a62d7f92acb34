"""What a simulated day looks like from outside: its options, the picture of a step, and how it ended.

`bootstrap` makes these while it drives a day, the command line draws them. Only data lives here: nothing
of the cluster's inside, nothing of terminals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from rebalancer.core.instructions import PoolState
from rebalancer.core.units import Mode, PoolName


class Standing(StrEnum):
    """Where a node stands between its owner and a borrower."""

    HOME = "home"
    LENT = "lent"
    CLOSING = "closing"
    """Changing hands: shut to everyone."""
    AWAY = "away"
    """Not usable: lost, cordoned or unhealthy."""


class TelemetryAs(StrEnum):
    """How a simulated exporter speaks."""

    NATIVE = "native"
    """Samples as our own records hold them."""
    TEXT = "text"
    """dcgm-exporter's text pages, read as a real one's would be."""


@dataclass(frozen=True, slots=True)
class NodeSquare:
    """One node's GPUs: ``busy + idle + unknown`` is what it has. ``user``: the class that it serves now."""

    name: str
    pool: PoolName
    user: str
    standing: Standing
    busy: int
    idle: int
    unknown: int = 0

    @property
    def gpus(self) -> int:
        """How many GPUs the node has."""
        return self.busy + self.idle + self.unknown


@dataclass(frozen=True, slots=True)
class RibbonSample:
    """The lending pools together at one moment, in GPUs."""

    at: datetime
    owned: int
    lent: int
    demand: float


@dataclass(frozen=True, slots=True)
class Told:
    """A decision as people read it."""

    id: str
    at: datetime
    pool: PoolName
    method: str
    sentence: str


@dataclass(frozen=True, slots=True)
class StepView:
    """The picture after a step (1..steps) of a day that ``started`` then. ``decisions``: this step's, in order."""

    step: int
    steps: int
    started: datetime
    moment: datetime
    pools: tuple[PoolState, ...]
    nodes: tuple[NodeSquare, ...]
    ribbon: RibbonSample
    decisions: tuple[Told, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What the traces leave open (demand: requests a second; jobs: submit time, length, GPUs).

    Demand in GPUs is ceil(requests/s / mu), mu such that the curve's ``quantile`` is ``peak_share`` of the
    pools that it drives; linear between samples, times gamma noise with this coefficient of variation.
    """

    load_pools: tuple[str, ...] = ("infer-a100",)
    quantile: float = 0.999
    peak_share: float = 0.95
    noise: float = 0.0
    week: str = "2017-W41"
    """ISO week of the jobs; it begins with the run."""
    pod_gpus: int = 8
    """Most GPUs a pod; a larger job becomes a gang of several."""
    models: tuple[str, ...] = ("A100", "L20")
    """GPU models the jobs declare."""
    grace: timedelta = timedelta(seconds=30)
    checkpoint_every: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What a demo or simulation is asked for; None leaves a value to the scenario."""

    scenario: str = ""
    """Name of a shipped scenario or path of a file; "" is the shipped demo."""
    out: Path | None = None
    """Folder into which all records are tapped."""
    seed: int | None = None
    days: float | None = None
    mode: Mode = Mode.ACT
    workers: int = 1
    """Telemetry and decide workers."""
    demand: Path | None = None
    jobs: Path | None = None
    traces: TraceOptions = field(default_factory=TraceOptions)
    kafka: str = ""
    """Brokers to use instead of the embedded one."""
    telemetry: TelemetryAs = TelemetryAs.NATIVE


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How the day ended. ``summary`` holds plain numbers by name, ``decisions`` plain mappings, in order."""

    summary: Mapping[str, Any]
    decisions: tuple[Mapping[str, Any], ...]
    unannounced: bool = False
    """Whether a spike that nobody could foresee was part of it: then only shortage outside of it counts."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What folding a journal gave: plans made, and how they differ from those recorded (empty: bit for bit)."""

    stimuli: int
    plans: int
    recorded: int
    differences: tuple[str, ...] = ()
