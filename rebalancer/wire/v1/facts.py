"""Cluster objects as digests: what the fact topics hold, one model a kind.

Only what decisions need; no managed fields, no large annotations. What could not be read is null or
``unknown``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from rebalancer.wire.envelope import Count, Moment, Name, Shape, Text, Whole

Owner: TypeAlias = Literal["inference", "training", "batch", "unknown"]
Mode: TypeAlias = Literal["shadow", "act"]
Phase: TypeAlias = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
FactKind: TypeAlias = Literal["node", "pod", "budget", "group", "namespace", "control"]
Progress: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class Taint(Shape):
    """A node taint as Kubernetes has it."""

    key: Name
    value: Text = ""
    effect: Text = "NoSchedule"


class Toleration(Shape):
    """A pod toleration as Kubernetes has it; empty key with Exists tolerates everything."""

    key: Text = ""
    operator: Text = "Equal"
    value: Text = ""
    effect: Text = ""


class Requirement(Shape):
    """One label requirement: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: Name
    operator: Name
    values: tuple[Text, ...] = ()


Selector: TypeAlias = tuple[Requirement, ...]


class LoanMark(Shape):
    """The loan annotation on a node: which loan it serves and what it takes to undo it."""

    loan: Name
    node_uid: Name
    lender: Name
    borrower: Owner
    gang: Text
    due: Moment
    """When the owner's taint is back."""
    recall_at: Moment
    """When the return begins."""
    phase: Name
    plan: Text
    epoch: Count
    """Fencing number of the actor that wrote the mark."""
    opened_at: Moment
    taint: Taint | None = None
    """The exact owner taint removed."""
    taint_index: Count | None = None
    """Its place in the node's list."""


class Node(Shape):
    """A GPU node."""

    uid: Name
    name: Name
    pool: Text
    """Empty if no pool could be resolved."""
    model: Text
    owner: Owner
    gpus: Count
    """Allocatable GPUs."""
    capacity: Count
    """GPUs the hardware has."""
    created_at: Moment
    ready: bool = True
    cordoned: bool = False
    starting: bool = False
    """Labelled for GPUs, device plugin not registered yet."""
    divided: bool = False
    """MIG or time slicing."""
    opted_out: bool = False
    quarantine: Text = ""
    """Why its labels contradict, empty if they do not."""
    network: Text = ""
    labels: Mapping[str, Text] = Field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    loan: LoanMark | None = None
    resource_version: Text = ""


class Pod(Shape):
    """A pod."""

    uid: Name
    name: Name
    namespace: Name
    gpus: Count | None
    """Null if the count could not be known."""
    phase: Phase
    owner: Owner
    gang: Name
    """The declared gang, else the top owner, else the pod's own uid."""
    workload: Name
    """Stable identity that outlives resubmission."""
    created_at: Moment
    node: Text = ""
    """Name of the node it is bound to, empty if none."""
    gang_size: Count = 1
    gang_min: Count = 1
    queue: Text = ""
    priority: Whole = 0
    labels: Mapping[str, Text] = Field(default_factory=dict)
    node_terms: tuple[Selector, ...] = ()
    """Node selector and required affinity, an OR of ANDs; empty: anywhere."""
    tolerations: tuple[Toleration, ...] = ()
    anti_affinity: tuple[Selector, ...] = ()
    """Required anti-affinity over hosts."""
    reclaimable: bool = False
    protected: tuple[Text, ...] = ()
    """Why it may never be evicted."""
    controller_kind: Text = ""
    top_owner: Text = ""
    grace_seconds: Count = 30
    notice_seconds: Count = 0
    started_at: Moment | None = None
    deleting_at: Moment | None = None
    """When the grace period of its deletion ends."""
    checkpointed_at: Moment | None = None
    checkpoint_in_progress: bool = False
    progress: Progress | None = None
    finishes_at: Moment | None = None
    nominated_node: Text = ""
    gated: bool = False
    unschedulable_since: Moment | None = None
    ready: bool = False
    opted_out: bool = False
    resource_version: Text = ""


class Budget(Shape):
    """A PodDisruptionBudget."""

    uid: Name
    namespace: Name
    name: Name
    selector: Selector | None
    """Null matches nothing, empty matches all pods of the namespace."""
    allowed: Whole
    expected: Count
    healthy: Count
    min_available: Count | Text | None = None
    max_unavailable: Count | Text | None = None
    current: bool = True
    """Whether the status reflects the specification's generation."""


class GangSpec(Shape):
    """A gang object (PodGroup, JobSet and the like)."""

    uid: Name
    gang: Name
    namespace: Name
    size: Count
    min_member: Count
    queue: Text = ""
    top_owner: Text = ""
    opted_out: bool = False


class Namespace(Shape):
    """A namespace."""

    uid: Name
    name: Name
    opted_out: bool = False


class Control(Shape):
    """The brakes, as they stand in the control object."""

    uid: Name = "control"
    paused: bool = False
    paused_pools: tuple[Text, ...] = ()
    recall_all: bool = False
    recall_nodes: tuple[Text, ...] = ()
    recall_pools: tuple[Text, ...] = ()
    retired: bool = False
    max_loans: Count | None = None
    modes: Mapping[str, Mode] = Field(default_factory=dict)
    approved: tuple[Text, ...] = ()
    by: Text = ""
    why: Text = ""
