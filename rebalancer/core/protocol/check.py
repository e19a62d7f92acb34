"""Whether a whole gang may be evicted now: pods as they are, budgets by arithmetic, and a dry run each.

Both are needed: dry runs do not add up over a gang, and arithmetic does not know what else refuses one.
A check writes nothing. What follows from its verdict is the gang's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from rebalancer.core.facts import Budget, Pod
from rebalancer.core.plan import EvictGang, Member, Plan
from rebalancer.core.protocol.calls import Answer, AnswerKind, EvictPod, ReadBudgets
from rebalancer.core.protocol.members import named
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import BudgetKey, Question, Site, cover, why
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import OwnerClass, PodUid


class Verdict(StrEnum):
    """What a check ends with. WAIT: a budget's status is behind its spec, so nothing can be said yet."""

    PASSED = "passed"
    WAIT = "wait"
    BLOCKED = "blocked"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Checked:
    """A verdict; ``covers`` says which members each budget covers."""

    verdict: Verdict
    because: Because
    covers: Mapping[BudgetKey, Sequence[PodUid]]


def unwanted(pod: Pod, lent: frozenset[str], site: Site, plan: Plan) -> Because | None:
    """Why act refuses to evict a pod whoever asks. ``lent``: names of the plan's lent nodes, now closed."""
    inference = pod.owner is OwnerClass.INFERENCE
    if pod.protected or inference or pod.namespace in site.policy.protected_namespaces:
        protection = pod.protected[0] if pod.protected else f"{pod.owner.value} in {pod.namespace}"
        return Because(Reason.PROTECTED, {"target": named(pod), "why": protection})
    if not pod.reclaimable and pod.node not in lent:
        return Because(Reason.OPT_IN_MISSING, {"pod": named(pod)})
    if pod.opted_out and not (plan.pressing and site.policy.pace.recall_while_paused):
        return Because(Reason.OPTED_OUT, {"target": named(pod)})
    return None


class Check:
    """One round over the members still to be evicted; ``gone`` collects those that turn out to be."""

    def __init__(self, site: Site, plan: Plan, step: EvictGang, live: Mapping[PodUid, Pod]) -> None:
        self.gone: set[PodUid] = set()
        self._site, self._plan, self._step, self._live = site, plan, step, live
        acting = site.policy.acting
        self._members = [member for member in step.members if member.uid in live]
        self._dry = {member.uid: Ask(acting, member.uid) for member in self._members}
        spaces = sorted({item.namespace for item in self._members})
        self._lists = {space: Ask(acting, space) for space in spaces}
        self._open = len(self._dry) + len(self._lists)
        self._budgets: list[Budget] = []
        self._read_at: dict[str, int] = {}
        self._blocked: Because | None = None
        self._refused: Because | None = None

    @property
    def over(self) -> bool:
        """Whether the verdict stands."""
        return self._open == 0 or self._refused is not None

    def due(self, now: datetime) -> datetime | None:
        """When a call may be made."""
        times = [ask.due(now) for ask in (*self._lists.values(), *self._dry.values())]
        return min((time for time in times if time is not None), default=None)

    def questions(self, now: datetime) -> list[Question]:
        """All calls that may be made now, in parallel."""
        found = []
        for space, ask in self._lists.items():
            if ask.ready(now):
                ask.sent()
                self._read_at[space] = self._site.flights.now()
                found.append(Question(ReadBudgets(space), partial(self._listed, space)))
        for member in self._members:
            trial = self._dry.get(member.uid)
            if trial is not None and trial.ready(now):
                trial.sent()
                call = EvictPod(member, self._plan.id, dry_run=True)
                found.append(Question(call, partial(self._tried, member)))
        return found

    def checked(self) -> Checked:
        """The verdict; only meaningful once it is over."""
        alive = self._alive()
        covers = {(item.namespace, item.name): cover(item, self._members, alive) for item in self._budgets}
        covers = {key: uids for key, uids in covers.items() if uids}
        refused = self._refused or self._doubly(covers)
        if refused is not None:
            return Checked(Verdict.REFUSED, refused, covers)
        for budget in self._budgets:
            if not budget.current and covers.get((budget.namespace, budget.name)):
                return Checked(Verdict.WAIT, self._short(budget, 0, len(self._members)), covers)
        blocked = self._shortage(covers) or self._blocked
        if blocked is not None:
            return Checked(Verdict.BLOCKED, blocked, covers)
        return Checked(Verdict.PASSED, Because(Reason.CONFIRMED), covers)

    def _alive(self) -> dict[PodUid, Pod]:
        return {uid: pod for uid, pod in self._live.items() if uid not in self.gone}

    def _doubly(self, covers: Mapping[BudgetKey, Sequence[PodUid]]) -> Because | None:
        for member in self._members:
            if sum(member.uid in uids for uids in covers.values()) > 1:
                return Because(Reason.TWO_BUDGETS, {"pod": named(member)})
        return None

    def _shortage(self, covers: Mapping[BudgetKey, Sequence[PodUid]]) -> Because | None:
        flights = self._site.flights
        for budget in self._budgets:
            key = (budget.namespace, budget.name)
            wanted = len(covers.get(key, ()))
            if not wanted:
                continue
            allowed = budget.allowed - flights.unseen(key, self._read_at[budget.namespace])
            if flights.split.get(key, self._step.gang) != self._step.gang:
                allowed = 0  # a gang under this budget is half gone: nobody else goes before it is finished
            if allowed < wanted:
                return self._short(budget, max(0, allowed), wanted)
        return None

    def _short(self, budget: Budget, allowed: int, wanted: int) -> Because:
        return self._short_of(budget.name, allowed, wanted)

    def _short_of(self, name: str, allowed: int, wanted: int) -> Because:
        gang = self._step.gang
        return Because(Reason.BUDGET_BLOCKED, {"budget": name, "allowed": allowed, "members": wanted, "gang": gang})

    def _listed(self, space: str, answer: Answer, now: datetime) -> None:
        if answer.kind is AnswerKind.OK:
            self._budgets += sorted(answer.budgets, key=lambda item: (item.namespace, item.name, item.uid))
            del self._lists[space]
            self._open -= 1
        elif not self._lists[space].failed(answer, now) or answer.kind is AnswerKind.FORBIDDEN:
            self._refused = self._why(answer, f"budgets of {space}")

    def _tried(self, member: Member, answer: Answer, now: datetime) -> None:
        kind = answer.kind
        if kind in (AnswerKind.GONE, AnswerKind.CONFLICT):
            self.gone.add(member.uid)
        elif kind is AnswerKind.BLOCKED:
            budget = next(iter(member.budgets), "")
            self._blocked = self._blocked or self._short_of(budget, 0, len(self._members))
        elif kind in (AnswerKind.TWO_BUDGETS, AnswerKind.FORBIDDEN):
            self._refused = self._refused or self._why(answer, named(member))
        elif kind is not AnswerKind.OK:
            if not self._dry[member.uid].failed(answer, now):
                self._refused = self._refused or self._why(answer, named(member))
            return
        del self._dry[member.uid]
        self._open -= 1

    def _why(self, answer: Answer, target: str) -> Because:
        return why(answer, target, self._site.policy.acting.call_timeout.total_seconds())
