"""What a cluster's objects look like to the core: small, frozen, already decoded.

Adapters make these from Kubernetes objects or from the simulator; fields that could not be read are None or
``unknown``, never a convenient default. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from rebalancer.core.units import (
    CLOSING,
    ON_LOAN,
    GangId,
    LoanId,
    Mode,
    NodeUid,
    OwnerClass,
    PlanId,
    PodUid,
    PoolName,
    WorkloadId,
)


@dataclass(frozen=True, slots=True)
class Taint:
    """A node taint. ``effect`` is NoSchedule, PreferNoSchedule or NoExecute (the latter never ours)."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod toleration; an empty ``key`` with operator Exists tolerates everything, an empty effect any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One label requirement. Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt (as in node affinity)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


Selector: TypeAlias = tuple[Requirement, ...]
"""Requirements that must all hold; the empty selector matches everything."""


@dataclass(frozen=True, slots=True)
class LoanMark:
    """The loan annotation on a node: which loan it serves and what it takes to undo it.

    ``taint`` is the exact owner taint removed and ``taint_index`` its place in the node's list (None: the
    node had none). ``epoch`` is the fencing number of the actor that wrote the mark.
    """

    loan: LoanId
    node_uid: NodeUid
    lender: PoolName
    borrower: OwnerClass
    gang: GangId
    due: datetime
    recall_at: datetime
    phase: str
    plan: PlanId
    epoch: int
    opened_at: datetime
    taint: Taint | None = None
    taint_index: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU node as last observed.

    ``gpus`` is allocatable, ``capacity`` what the hardware has. ``pool`` is "" when no pool could be
    resolved; ``quarantine`` says why labels contradict ("" when they do not). ``starting`` marks a node that is
    labelled for GPUs but whose device plugin has not registered them. ``divided`` marks MIG or time slicing.
    """

    uid: NodeUid
    name: str
    pool: PoolName
    model: str
    owner: OwnerClass
    gpus: int
    capacity: int
    created_at: datetime
    ready: bool = True
    cordoned: bool = False
    starting: bool = False
    divided: bool = False
    opted_out: bool = False
    quarantine: str = ""
    network: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    loan: LoanMark | None = None
    resource_version: str = ""

    @property
    def mark(self) -> LoanMark | None:
        """The loan mark that is this node's own; one that was copied from another node says nothing."""
        return self.loan if self.loan is not None and self.loan.node_uid == self.uid else None

    @property
    def stray(self) -> bool:
        """Whether it bears something of ours without a mark of its own: in transit, or left so by somebody."""
        ours = self.loan is not None or any(taint.key in (CLOSING, ON_LOAN) for taint in self.taints)
        return ours and self.mark is None


class PodPhase(StrEnum):
    """Pod phase as Kubernetes has it."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as last observed.

    ``gpus`` None means that the count could not be known (for example an unread resource claim). ``gang`` is
    always set: the declared gang, else the top owner, else the pod's own uid. ``node_terms`` is the node
    selector and required affinity as OR of ANDs (empty: anywhere). ``anti_affinity`` are required terms over
    hosts. ``protected`` lists why it may never be evicted. ``deleting_at`` is when its grace period ends.
    """

    uid: PodUid
    name: str
    namespace: str
    gpus: int | None
    phase: PodPhase
    owner: OwnerClass
    gang: GangId
    workload: WorkloadId
    created_at: datetime
    node: str = ""
    gang_size: int = 1
    gang_min: int = 1
    queue: str = ""
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[Selector, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    anti_affinity: tuple[Selector, ...] = ()
    reclaimable: bool = False
    protected: tuple[str, ...] = ()
    controller_kind: str = ""
    top_owner: str = ""
    grace_seconds: int = 30
    notice_seconds: int = 0
    started_at: datetime | None = None
    deleting_at: datetime | None = None
    checkpointed_at: datetime | None = None
    checkpoint_in_progress: bool = False
    progress: float | None = None
    finishes_at: datetime | None = None
    nominated_node: str = ""
    gated: bool = False
    unschedulable_since: datetime | None = None
    ready: bool = False
    opted_out: bool = False
    resource_version: str = ""

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended: it holds nothing and is never touched."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def held(self) -> int:
        """GPUs held: bound and not terminal, also while terminating (CASES 0, C06)."""
        return (self.gpus or 0) if self.node and not self.terminal else 0

    @property
    def releasing(self) -> int:
        """The part of ``held`` that a running deletion will free."""
        return self.held if self.deleting_at is not None else 0

    @property
    def pending(self) -> bool:
        """Asked for and not bound; gated pods do not ask yet (C07)."""
        return not self.node and not self.terminal and not self.gated and self.deleting_at is None


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget. ``selector`` None matches nothing; thresholds are ints or percentages as text."""

    uid: str
    namespace: str
    name: str
    selector: Selector | None
    allowed: int
    expected: int
    healthy: int
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    current: bool = True
    """Whether status reflects the spec's generation."""


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A gang object (PodGroup, JobSet, ...): what its pods may not say themselves."""

    uid: str
    gang: GangId
    namespace: str
    size: int
    min_member: int
    queue: str = ""
    top_owner: str = ""
    opted_out: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: only what brakes and caps need."""

    uid: str
    name: str
    opted_out: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """The brakes, as they stand in the control object.

    ``recall_*`` lists what an operator wants home; ``retired`` ends all lending. ``modes`` overrides the
    policy's mode by pool. ``max_loans`` None means no further limit. Every change carries who and why.
    """

    uid: str = "control"
    paused: bool = False
    paused_pools: tuple[PoolName, ...] = ()
    recall_all: bool = False
    recall_nodes: tuple[str, ...] = ()
    recall_pools: tuple[PoolName, ...] = ()
    retired: bool = False
    max_loans: int | None = None
    modes: Mapping[PoolName, Mode] = field(default_factory=dict)
    approved: tuple[PlanId, ...] = ()
    by: str = ""
    why: str = ""
