"""What the state machines ask of a cluster, and the kinds of answers there are.

A call is data; a shell performs it with a bound and feeds the answer back. Only data lives here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from rebalancer.core.facts import Budget, LoanMark, Node, Pod, Taint
from rebalancer.core.plan import Member
from rebalancer.core.units import GangId, NodeUid, PlanId


@dataclass(frozen=True, slots=True)
class ReadNode:
    """A fresh read of one node (answer: ``node``)."""

    node_name: str
    kind: Literal["read-node"] = "read-node"


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Replace taints and our annotation, if the node still has ``resource_version`` (answer: ``node``)."""

    node: NodeUid
    node_name: str
    resource_version: str
    taints: tuple[Taint, ...]
    loan: LoanMark | None
    kind: Literal["patch-node"] = "patch-node"


@dataclass(frozen=True, slots=True)
class ListPods:
    """A live list of pods bound or nominated to a node (answer: ``pods``)."""

    node_name: str
    kind: Literal["list-pods"] = "list-pods"


@dataclass(frozen=True, slots=True)
class ReadMembers:
    """A live read of these pods (answer: ``pods``, those that still exist)."""

    members: tuple[Member, ...]
    kind: Literal["read-members"] = "read-members"


@dataclass(frozen=True, slots=True)
class ReadBudgets:
    """A live list of the budgets of a namespace (answer: ``budgets``)."""

    namespace: str
    kind: Literal["read-budgets"] = "read-budgets"


@dataclass(frozen=True, slots=True)
class GiveNotice:
    """Annotate the members with ``evict-at`` and tell the top owner."""

    gang: GangId
    members: tuple[Member, ...]
    top_owner: str
    evict_at: datetime
    why: str
    kind: Literal["give-notice"] = "give-notice"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Eviction API with uid precondition; a repeat for the same (uid, plan) is harmless."""

    member: Member
    plan: PlanId
    dry_run: bool = False
    kind: Literal["evict-pod"] = "evict-pod"


Call: TypeAlias = ReadNode | PatchNode | ListPods | ReadMembers | ReadBudgets | GiveNotice | EvictPod


def writes(call: Call) -> bool:
    """Whether it changes anything at the server; a dry run does not."""
    return isinstance(call, PatchNode | GiveNotice) or (isinstance(call, EvictPod) and not call.dry_run)


class AnswerKind(StrEnum):
    """Answers by what they mean for the next move (CASES E09), not by their number."""

    OK = "ok"
    BLOCKED = "blocked"
    """429 with a budget cause: try later with backoff, or others."""
    THROTTLED = "throttled"
    """429 without cause: slow down, same victim."""
    GONE = "gone"
    CONFLICT = "conflict"
    """409: the precondition (uid or resourceVersion) no longer holds."""
    TWO_BUDGETS = "two-budgets"
    """Permanent for this pod."""
    FORBIDDEN = "forbidden"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``retry_after`` seconds if the server asked for it."""

    kind: AnswerKind
    node: Node | None = None
    pods: tuple[Pod, ...] = ()
    budgets: tuple[Budget, ...] = ()
    retry_after: float | None = None
    message: str = ""
