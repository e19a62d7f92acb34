"""Everything the engine can be told: frozen, past tense.

``at`` is event time (when it happened in the world), never when it was handled. Only data lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.instructions import ClearAlert, PoolMemory, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.policy import Policy
from rebalancer.core.telemetry import DemandSample, Heartbeat, Verdict
from rebalancer.core.units import PlanId

FactKind: TypeAlias = Literal["node", "pod", "budget", "group", "namespace", "control"]
Fact: TypeAlias = Node | Pod | Budget | GangSpec | Namespace | Control


@dataclass(frozen=True, slots=True)
class FactObserved:
    """An object was added or changed."""

    fact: Fact
    at: datetime
    kind: Literal["fact-observed"] = "fact-observed"


@dataclass(frozen=True, slots=True)
class FactDeleted:
    """An object is gone; only its kind and uid are certain."""

    of: FactKind
    uid: str
    at: datetime
    kind: Literal["fact-deleted"] = "fact-deleted"


@dataclass(frozen=True, slots=True)
class SnapshotBegan:
    """A full list of one kind follows."""

    of: FactKind
    snapshot: str
    at: datetime
    kind: Literal["snapshot-began"] = "snapshot-began"


@dataclass(frozen=True, slots=True)
class SnapshotEnded:
    """The list is complete if ``count`` objects came since it began; what did not come is gone."""

    of: FactKind
    snapshot: str
    count: int
    at: datetime
    kind: Literal["snapshot-ended"] = "snapshot-ended"


@dataclass(frozen=True, slots=True)
class VerdictGiven:
    """Telemetry judged a node."""

    verdict: Verdict
    kind: Literal["verdict-given"] = "verdict-given"


@dataclass(frozen=True, slots=True)
class HeartbeatHeard:
    """A telemetry worker is alive."""

    heartbeat: Heartbeat
    kind: Literal["heartbeat-heard"] = "heartbeat-heard"


@dataclass(frozen=True, slots=True)
class DemandReported:
    """The demand topic spoke."""

    demand: DemandSample
    kind: Literal["demand-reported"] = "demand-reported"


@dataclass(frozen=True, slots=True)
class OutcomeReported:
    """Act reported on a step."""

    outcome: Outcome
    kind: Literal["outcome-reported"] = "outcome-reported"


@dataclass(frozen=True, slots=True)
class PolicyAdopted:
    """A valid policy is in force from now."""

    policy: Policy
    digest: str
    kind: Literal["policy-adopted"] = "policy-adopted"


@dataclass(frozen=True, slots=True)
class PolicyRefused:
    """A policy was refused; the old one stays."""

    why: str
    at: datetime
    kind: Literal["policy-refused"] = "policy-refused"


@dataclass(frozen=True, slots=True)
class Approved:
    """A person approved a plan that waited for it."""

    plan: PlanId
    by: str
    at: datetime
    kind: Literal["approved"] = "approved"


@dataclass(frozen=True, slots=True)
class RecallRequested:
    """A person wants nodes home. ``scope`` is node, pool or all; ``target`` its name ("" for all)."""

    scope: Literal["node", "pool", "all"]
    target: str
    by: str
    at: datetime
    kind: Literal["recall-requested"] = "recall-requested"


@dataclass(frozen=True, slots=True)
class Restored:
    """State rebuilt from our own topics when a partition was assigned, before the first event."""

    loans: tuple[Loan, ...]
    workloads: tuple[WorkloadRecord, ...]
    pools: tuple[PoolMemory, ...]
    plans: tuple[Plan, ...]
    outcomes: tuple[Outcome, ...]
    synced: bool
    """Whether the facts restored beside this came from a complete earlier picture."""
    at: datetime
    alerts: tuple[RaiseAlert, ...] = ()
    cleared: tuple[ClearAlert, ...] = ()
    """Alerts that stand, and those that are over and not yet forgotten."""
    kind: Literal["restored"] = "restored"


@dataclass(frozen=True, slots=True)
class TermBegan:
    """This decider's fencing term is known; plans may be made from now."""

    term: int
    kind: Literal["term-began"] = "term-began"


@dataclass(frozen=True, slots=True)
class StreamLagged:
    """How far the inputs are behind. ``behind``: before the end seen at assignment, or older than allowed."""

    behind: bool
    lag_seconds: float
    kind: Literal["stream-lagged"] = "stream-lagged"


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Nothing happened but time: the stimulus on which plans are made. ``sources`` names the topics it covers."""

    kind: Literal["time-passed"] = "time-passed"


Stimulus: TypeAlias = (
    FactObserved | FactDeleted | SnapshotBegan | SnapshotEnded | VerdictGiven | HeartbeatHeard | DemandReported
    | OutcomeReported | PolicyAdopted | PolicyRefused | Approved | RecallRequested | Restored | TermBegan
    | StreamLagged | TimePassed
)  # fmt: skip

Numbers: TypeAlias = Mapping[str, float]


_KINDS: tuple[tuple[type, FactKind], ...] = (
    (Pod, "pod"), (Node, "node"), (Budget, "budget"), (GangSpec, "group"),
    (Namespace, "namespace"), (Control, "control"),
)  # fmt: skip


def kind_of(fact: Fact) -> FactKind:
    """The fact's kind by its class."""
    return next(kind for cls, kind in _KINDS if isinstance(fact, cls))


def happened(stimulus: Stimulus, now: datetime) -> datetime:
    """When what a stimulus tells of happened in the world; ``now`` for what has no moment of its own."""
    match stimulus:
        case FactObserved() | FactDeleted() | SnapshotEnded():
            return stimulus.at
        case VerdictGiven():
            return stimulus.verdict.at
        case OutcomeReported():
            return stimulus.outcome.at
    return now
