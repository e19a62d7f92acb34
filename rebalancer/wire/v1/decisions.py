"""What was decided and what became of it: plans, outcomes, loans, workload records, alerts.

``reason``, ``method``, ``result``, ``phase`` and ``severity`` are text, not enumerations, because values are
added over time: a reader treats one that it does not know as "other".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from rebalancer.wire.envelope import Count, Moment, Name, Number, Shape, Text, Whole
from rebalancer.wire.v1.facts import Mode, Owner, Taint


class Because(Shape):
    """A reason, the numbers that a person needs to believe it, and the sentence that both make."""

    reason: Name
    """Stable word to match on."""
    numbers: Mapping[str, Number] = Field(default_factory=dict)
    sentence: Text = ""
    """For people; its wording may change at any time."""


class Member(Shape):
    """One pod of a gang that is to go."""

    uid: Name
    namespace: Name
    name: Name
    node: Text
    gpus: Count
    budgets: tuple[Text, ...] = ()


class LendNode(Shape):
    """Owner taint off, on-loan taint on, for a named gang, until ``due``."""

    loan: Name
    node: Name
    node_name: Name
    lender: Name
    borrower: Owner
    gang: Text
    gpus: Count
    due: Moment
    recall_at: Moment
    owner_taint: Taint | None
    kind: Literal["lend"] = "lend"


class CloseNode(Shape):
    """Closing taint on: nobody new lands on the node."""

    loan: Text
    node: Name
    node_name: Name
    kind: Literal["close"] = "close"


class EvictGang(Shape):
    """Evict these members, all or none."""

    gang: Name
    workload: Text
    namespace: Text
    top_owner: Text
    members: tuple[Member, ...]
    whole: bool
    not_before: Moment
    deadline: Moment
    notice_seconds: Count
    grace_seconds: Count
    lost_gpu_seconds: float
    because: Because
    kind: Literal["evict"] = "evict"


class RestoreNode(Shape):
    """Once empty: owner taint back in its place, ours and the annotation off.

    An empty ``loan`` repairs a node that bears our taint and no mark of its own.
    """

    loan: Text
    node: Name
    node_name: Name
    due: Moment
    owner_taint: Taint | None = None
    """What the node lacks, if no mark says so."""
    kind: Literal["restore"] = "restore"


class RenewLoan(Shape):
    """The loan goes on until a later ``due``: only the mark changes."""

    loan: Name
    node: Name
    node_name: Name
    due: Moment
    recall_at: Moment
    kind: Literal["renew"] = "renew"


Step: TypeAlias = Annotated[LendNode | CloseNode | EvictGang | RestoreNode | RenewLoan, Field(discriminator="kind")]


class Alternative(Shape):
    """A choice not taken, with the reason."""

    target: Text
    because: Because


class Plan(Shape):
    """What is to be done for one pool: ordered steps."""

    id: Name
    pool: Name
    """The lender pool."""
    method: Name
    mode: Mode
    """``shadow`` plans are published and scored, never carried out."""
    because: Because
    steps: tuple[Step, ...]
    made_at: Moment
    valid_until: Moment
    alternatives: tuple[Alternative, ...] = ()
    cancels: Text = ""
    """Id of a plan whose evictions, not yet started, are called off."""
    awaits_approval: bool = False
    pressing: bool = False
    term: Count = 0
    """Fencing number of the decider."""


class Term(Shape):
    """A decider began: the offset of this record is the number of its term."""

    decider: Name


class Outcome(Shape):
    """What became of one step of a plan."""

    plan: Name
    pool: Name
    step: Whole
    """Index of the step; -1: the whole plan."""
    kind: Text
    target: Text
    """Node uid or gang."""
    result: Name
    because: Because
    at: Moment
    loan: Text = ""
    epoch: Count = 0
    """Fencing number of the actor."""
    numbers: Mapping[str, Number] = Field(default_factory=dict)


class Loan(Shape):
    """One node lent from a lender pool to a borrower class."""

    id: Name
    node: Name
    node_name: Name
    lender: Name
    borrower: Owner
    gang: Text
    gpus: Count
    mode: Mode
    """``shadow``: the loan exists in the ledger only, no node was touched."""
    phase: Name
    plan: Text
    because: Because
    opened_at: Moment
    due: Moment
    """When the owner's taint is back."""
    recall_at: Moment
    """When the return begins."""
    owner_taint: Taint | None = None
    lent_at: Moment | None = None
    closing_at: Moment | None = None
    closed_at: Moment | None = None
    return_seconds: float | None = None
    lost_gpu_seconds: float = 0.0
    renewed_at: Moment | None = None
    """When the due time last moved."""


class WorkloadRecord(Shape):
    """What outlives a restart about a workload: its evictions, and until when it may not borrow."""

    workload: Name
    namespace: Text
    evictions: tuple[Moment, ...] = ()
    cooldown_until: Moment | None = None
    protected_until: Moment | None = None
    last_plan: Text = ""


class AlertRaised(Shape):
    """An alert stands."""

    id: Name
    """Stable for reason and target."""
    severity: Name
    target: Text
    pool: Text
    because: Because
    since: Moment
    numbers: Mapping[str, Number] = Field(default_factory=dict)
    kind: Literal["raise-alert"] = "raise-alert"


class AlertCleared(Shape):
    """The alert is over."""

    id: Name
    kind: Literal["clear-alert"] = "clear-alert"
