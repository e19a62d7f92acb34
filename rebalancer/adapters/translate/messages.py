"""What may come out of decoding beside the core's own stimuli and records, and the one error there is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from rebalancer.core.charges import Charge
from rebalancer.core.instructions import ClearAlert, PoolMemory, PoolState, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Plan
from rebalancer.core.reasons import Because
from rebalancer.core.stimuli import FactKind, Stimulus
from rebalancer.core.telemetry import NodeSample

Stage: TypeAlias = Literal["topic", "bytes", "envelope", "shape", "meaning", "route", "handle"]
"""Where it stopped. Reading: not our topic; not JSON; not our envelope; wrong fields; a word we do not know. After
reading: a cluster that nobody here decides for; the core refused it."""


class WireError(ValueError):
    """A record that cannot be read. ``stage`` is one of a closed set (safe as a metric's label)."""

    def __init__(self, stage: Stage, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage: Stage = stage
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything of this simulated step has been sent on this partition. ``source`` "": one sender only."""

    step: int
    now: datetime
    source: str = ""


@dataclass(frozen=True, slots=True)
class TermRecord:
    """A decider began; the offset of the record, which its reader knows, is the term."""

    decider: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """The collector is asked for a full list of one kind."""

    of: FactKind
    because: Because
    at: datetime


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A stimulus as it was handled, with the clock handed to the core.

    ``number``: its place, from 0, among those of the ``session`` (the decider's term; 0: not told).
    """

    stimulus: Stimulus
    now: datetime
    session: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of this key is gone (topics other than facts). ``name`` is the key without the cluster."""

    topic: str
    name: str


Content: TypeAlias = (
    Stimulus | NodeSample | PoolState | PoolMemory | Loan | WorkloadRecord | Plan | RaiseAlert | ClearAlert
    | Charge | Barrier | TermRecord | SnapshotRequested | JournalEntry | Tombstone
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Received:
    """A record that was read: which cluster it is about, its identity, when it happened, what it says.

    ``cluster`` is "" and ``id`` "" for a tombstone without headers; ``name`` is the kind's short name.
    """

    name: str
    cluster: str
    id: str
    at: datetime | None
    content: Content
