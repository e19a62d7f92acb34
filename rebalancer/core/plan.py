"""Plans, their steps and what comes back: the currency between deciding and acting.

A plan is an ordered list of steps with its because, the alternatives rejected, an id that is a stable hash of
what it does, and a validity. Steps say what must become true, with the preconditions that act checks again.
Only data lives here; how a step is carried out is ``protocol``'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from rebalancer.core.facts import Taint
from rebalancer.core.reasons import Because
from rebalancer.core.units import (
    GangId,
    LoanId,
    Mode,
    NodeUid,
    Number,
    OwnerClass,
    PlanId,
    PodUid,
    PoolName,
    WorkloadId,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a gang that is to go: identified by uid, addressed by namespace and name."""

    uid: PodUid
    namespace: str
    name: str
    node: str
    gpus: int
    budgets: tuple[str, ...] = ()
    """Names of the budgets that cover it."""


@dataclass(frozen=True, slots=True)
class LendNode:
    """Owner taint off, on-loan taint on, for a named gang, until ``due``."""

    loan: LoanId
    node: NodeUid
    node_name: str
    lender: PoolName
    borrower: OwnerClass
    gang: GangId
    gpus: int
    due: datetime
    recall_at: datetime
    owner_taint: Taint | None
    kind: Literal["lend"] = "lend"


@dataclass(frozen=True, slots=True)
class CloseNode:
    """Closing taint on: nobody new lands on the node."""

    loan: LoanId
    node: NodeUid
    node_name: str
    kind: Literal["close"] = "close"


@dataclass(frozen=True, slots=True)
class EvictGang:
    """Evict these members, all or none, not before ``not_before`` and to be gone by ``deadline``."""

    gang: GangId
    workload: WorkloadId
    namespace: str
    top_owner: str
    members: tuple[Member, ...]
    whole: bool
    """False only for an elastic gang that shrinks to its minimum."""
    not_before: datetime
    deadline: datetime
    notice_seconds: int
    grace_seconds: int
    lost_gpu_seconds: float
    because: Because
    kind: Literal["evict"] = "evict"


@dataclass(frozen=True, slots=True)
class RestoreNode:
    """Once empty: owner taint back in its place, ours and the annotation off, in one patch.

    An empty ``loan`` repairs a node that bears our taint and no mark of its own: ``owner_taint`` is what it
    lacks then, since no mark says so (None: nothing, or the mark says it).
    """

    loan: LoanId
    node: NodeUid
    node_name: str
    due: datetime
    owner_taint: Taint | None = None
    kind: Literal["restore"] = "restore"


@dataclass(frozen=True, slots=True)
class RenewLoan:
    """The loan goes on until a later ``due``: only the mark changes, no taint and no pod."""

    loan: LoanId
    node: NodeUid
    node_name: str
    due: datetime
    recall_at: datetime
    kind: Literal["renew"] = "renew"


Step: TypeAlias = LendNode | CloseNode | EvictGang | RestoreNode | RenewLoan


@dataclass(frozen=True, slots=True)
class Alternative:
    """A choice not taken: ``target`` is a node, gang or pool, with the reason it was rejected."""

    target: str
    because: Because


class Method(StrEnum):
    """Which method made a plan."""

    RECLAIM = "reclaim"
    RENEW = "renew"
    RETURN = "return"
    LEND = "lend"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one pool. ``term`` fences the decider; 0 until it is published.

    ``pool`` is the lender pool. ``cancels`` names a plan whose not yet started evictions are called off.
    ``awaits_approval``: published for people, not carried out before it is approved.
    """

    id: PlanId
    pool: PoolName
    method: Method
    mode: Mode
    because: Because
    steps: tuple[Step, ...]
    made_at: datetime
    valid_until: datetime
    alternatives: tuple[Alternative, ...] = ()
    cancels: PlanId = ""
    awaits_approval: bool = False
    pressing: bool = False
    """True when it answers pending inference pods or a due time: brakes pace it but do not stop it."""
    term: int = 0

    def in_term(self, term: int) -> Plan:
        """The same plan under a decider's term."""
        return replace(self, term=term)

    def approved(self, term: int) -> Plan:
        """The same plan once a person approved it."""
        return replace(self, awaits_approval=False, term=term)


class Result(StrEnum):
    """How a step stands or ended."""

    STARTED = "started"
    DONE = "done"
    REFUSED = "refused"
    STALE = "stale"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    """Still trying: an alert is due, nothing is given up."""


FINAL = frozenset({Result.DONE, Result.REFUSED, Result.STALE, Result.EXPIRED, Result.CANCELLED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step (``step`` is its index; -1: of the whole plan). ``target``: node uid or gang id."""

    plan: PlanId
    pool: PoolName
    step: int
    kind: str
    target: str
    result: Result
    because: Because
    at: datetime
    loan: LoanId = ""
    epoch: int = 0
    numbers: Mapping[str, Number] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Stable identity: the same outcome told twice is one outcome. What blocks a step may change."""
        blocker = self.because.reason if self.result is Result.BLOCKED else ""
        return stable_id(self.plan, str(self.step), self.kind, self.target, self.result, blocker)


def stable_id(*parts: str) -> str:
    """First 16 hex digits of a SHA-256 over the parts: equal decisions have equal ids, on any machine."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]
