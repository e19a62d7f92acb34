"""What all runs of one actor share: policy, epoch, pace, and what is in flight against each budget.

The dry run of an eviction does not add up over a gang, and a budget's status may lag behind our evictions.
:class:`Flights` therefore remembers which evictions a budget that was read at some moment cannot show yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from rebalancer.core.facts import Budget, Pod
from rebalancer.core.fit import matches
from rebalancer.core.plan import Member
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call
from rebalancer.core.protocol.pace import Bucket
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import PodUid

BudgetKey: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call to make, and where its answer goes."""

    call: Call
    reply: Callable[[Answer, datetime], None]


@dataclass(slots=True)
class Flights:
    """Our evictions per budget. ``tick`` orders what happens, since several things share one moment.

    A reservation begins when a gang's checks pass and is over for budgets that are read after its eviction
    was accepted. ``split`` names who holds a budget because its gang could not be finished yet. ``asked`` are
    evictions without an answer so far.
    """

    tick: int = 0
    reserved: dict[BudgetKey, dict[PodUid, int | None]] = field(default_factory=dict)
    split: dict[BudgetKey, str] = field(default_factory=dict)
    asked: set[PodUid] = field(default_factory=set)

    def now(self) -> int:
        """A new tick, later than all before."""
        self.tick += 1
        return self.tick

    def reserve(self, key: BudgetKey, pods: Iterable[PodUid]) -> None:
        """These evictions are about to be asked for."""
        self.reserved.setdefault(key, {}).update(dict.fromkeys(pods))

    def accepted(self, pod: PodUid) -> None:
        """The eviction was accepted: a budget read from now on shows it."""
        at = self.now()
        for flights in self.reserved.values():
            if pod in flights and flights[pod] is None:
                flights[pod] = at

    def release(self, pods: Iterable[PodUid]) -> None:
        """These pods are gone or will not be evicted."""
        gone = frozenset(pods)
        for key in list(self.reserved):
            left = {pod: at for pod, at in self.reserved[key].items() if pod not in gone}
            if left:
                self.reserved[key] = left
            else:
                del self.reserved[key]

    def waits(self, pod: PodUid) -> bool:
        """Whether an eviction under one of its budgets is still unanswered.

        Evictions under one budget conflict at the server, which tries again after half a second each time: side by side
        they take longer than in turn, and one whose caller gives up meanwhile may use up the budget without a deletion.
        """
        others = self.asked - {pod}
        return any(pod in pods and not others.isdisjoint(pods) for pods in self.reserved.values())

    def unseen(self, key: BudgetKey, read_at: int) -> int:
        """Evictions that a budget asked for at tick ``read_at`` cannot show."""
        return sum(at is None or at > read_at for at in self.reserved.get(key, {}).values())

    def let_go(self, holder: str) -> None:
        """The holder's gang is whole again, or given up."""
        self.split = {key: name for key, name in self.split.items() if name != holder}


@dataclass(slots=True)
class Site:
    """Shared by all runs of an actor; ``hold_until`` is when the server is ready to be asked again."""

    policy: Policy
    epoch: int
    bucket: Bucket
    flights: Flights = field(default_factory=Flights)
    hold_until: datetime | None = None

    def throttled(self, until: datetime) -> None:
        """Slow the whole actor down: nothing is asked before ``until``, and no burst follows."""
        self.hold_until = until if self.hold_until is None else max(self.hold_until, until)
        self.bucket.drain(until)


def cover(budget: Budget, members: Iterable[Member], live: Mapping[PodUid, Pod]) -> list[PodUid]:
    """Bound members that a budget covers: as planned, or by its selector as the pods are now."""
    found = []
    for member in members:
        pod = live.get(member.uid)
        if pod is None or pod.namespace != budget.namespace or not pod.node:
            continue
        selected = budget.selector is not None and matches(budget.selector, pod.labels)
        if selected or budget.name in member.budgets:
            found.append(member.uid)
    return found


def why(answer: Answer, target: str, seconds: float) -> Because:
    """What a failed call means, as a because."""
    numbers = {"why": answer.message or answer.kind.value, "pod": target, "node": target, "target": target}
    reasons = {
        AnswerKind.TIMED_OUT: Reason.TIMED_OUT,
        AnswerKind.FORBIDDEN: Reason.FORBIDDEN,
        AnswerKind.THROTTLED: Reason.THROTTLED,
        AnswerKind.TWO_BUDGETS: Reason.TWO_BUDGETS,
        AnswerKind.BLOCKED: Reason.BUDGET_BLOCKED,
    }
    return Because(reasons.get(answer.kind, Reason.UNREACHABLE), {**numbers, "seconds": seconds})
