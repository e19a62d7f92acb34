"""The act role as one pure state machine: plans in, calls out, answers in, outcomes out.

A shell performs the calls, each bounded in time, and feeds every answer back, in any order; it publishes what
:meth:`Actor.outcomes` yields before it performs those calls of the same round that write. Lower terms, expired and
superseded plans are refused here; every step of an accepted plan ends in exactly one final outcome. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from rebalancer.core.facts import Control
from rebalancer.core.plan import Method, Outcome, Plan, Result
from rebalancer.core.policy import Policy
from rebalancer.core.protocol import brakes
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call
from rebalancer.core.protocol.caps import Caps
from rebalancer.core.protocol.fallback import ALONE
from rebalancer.core.protocol.lending import LendRun
from rebalancer.core.protocol.pace import Bucket
from rebalancer.core.protocol.renewal import RenewRun
from rebalancer.core.protocol.site import Question, Site
from rebalancer.core.protocol.takeback import TakeBack
from rebalancer.core.protocol.telling import Telling
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode, PlanId, PoolName

REMEMBERED = 4096
"""How many finished plans are remembered, so that a repeat is not done again; older ones have long expired."""


@dataclass(frozen=True, slots=True)
class OpenStep:
    """One step of a plan that is under way, for status pages. ``phase`` is a phase of ``tables``."""

    plan: PlanId
    pool: PoolName
    method: Method
    step: int
    phase: str
    accepted_at: datetime


@dataclass(slots=True)
class _Open:
    run: LendRun | RenewRun | TakeBack
    accepted_at: datetime


class Actor:
    """One per cluster. ``epoch`` is the fencing number that its writes carry."""

    def __init__(self, policy: Policy, epoch: int) -> None:
        bucket = Bucket(policy.pace.evictions_per_second, policy.pace.eviction_burst)
        self._site = Site(policy, epoch, bucket)
        self._caps = Caps()
        self._term = 0
        self._control = Control()
        self._approved: set[PlanId] = set()
        self._held: dict[PlanId, Plan] = {}
        self._open: dict[PlanId, _Open] = {}
        self._finished: dict[PlanId, PlanId] = {}
        self._cancelled: dict[PlanId, PlanId] = {}
        self._adopted: dict[PlanId, list[Outcome]] = {}
        self._out: dict[int, tuple[PlanId, Question]] = {}
        self._calls = 0
        self._told: list[Outcome] = []

    @property
    def term(self) -> int:
        """The highest term seen."""
        return self._term

    @property
    def epoch(self) -> int:
        """The epoch that writes carry."""
        return self._site.epoch

    @property
    def brakes(self) -> Control:
        """The brakes as they were last told."""
        return self._control

    @property
    def idle(self) -> bool:
        """Whether no plan is open or held."""
        return not self._open and not self._held

    def took_over(self, epoch: int) -> None:
        """The lease was taken again: writes carry the new epoch from now. Raises ValueError if it went back."""
        if epoch < self._site.epoch:
            raise ValueError(f"epoch {epoch} is below {self._site.epoch}")
        self._site.epoch = epoch

    def adopt_policy(self, policy: Policy) -> None:
        """A new policy: new plans and further calls follow it, the pace at once."""
        self._site.policy = policy
        self._site.bucket.rate = policy.pace.evictions_per_second
        self._site.bucket.burst = policy.pace.eviction_burst

    def seen_term(self, term: int) -> None:
        """A decider's term has begun; plans of lower terms that come after it are refused.

        Except what act began itself while it was alone, perhaps before it had heard of any term: that is finished.
        """
        self._term = max(self._term, term)

    def adopt(self, finished: Iterable[Outcome]) -> None:
        """After a restart, before the plans are fed again: what was told of them earlier."""
        for outcome in finished:
            if outcome.step >= 0:
                self._adopted.setdefault(outcome.plan, []).append(outcome)

    def plan(self, plan: Plan, now: datetime) -> list[Outcome]:
        """A plan from the decider: accepted, refused with an outcome per step, or silently known already."""
        if plan.mode is Mode.SHADOW or self._known(plan.id):
            return []
        telling = Telling(plan, self.epoch, self._adopted.get(plan.id, ()))
        if plan.term < self._term and not self._begun_alone(plan, telling):
            because = Because(Reason.STALE_TERM, {"term": plan.term, "current": self._term})
            return self._refuse(plan, telling, because, now)
        if plan.method is Method.CANCEL or plan.cancels:
            self._cancel(plan, now)
        if not plan.steps:
            self._finish(plan.id)
            return self.outcomes()
        if plan.id in self._cancelled and not any(map(telling.begun, range(len(plan.steps)))):
            return self._refuse(plan, telling, self._superseded(plan.id), now)
        if plan.awaits_approval and plan.id not in self._approved:
            self._held[plan.id] = plan
        else:
            self._start(plan, telling, now)
        return self.outcomes()

    def approve(self, plan_id: PlanId) -> None:
        """A person approved a plan; it starts at the next advance."""
        self._approved.add(plan_id)

    def control(self, control: Control, now: datetime | None = None) -> list[Outcome]:
        """The brakes as they stand now. With ``now``, what has not yet started anything it forbids is called off."""
        self._control = control
        self._approved.update(control.approved)
        if now is not None:
            self._brake(now)
        return self.outcomes()

    def advance(self, now: datetime) -> list[tuple[int, Call]]:
        """Calls to perform now, in parallel. Publish :meth:`outcomes` before those that write."""
        self._release_held(now)
        self._brake(now)
        self._settle(now)
        if self._site.hold_until is not None and now < self._site.hold_until:
            return []
        found: list[tuple[int, Call]] = []
        for plan_id, item in self._open.items():
            for question in item.run.questions(now):
                self._calls += 1
                self._out[self._calls] = (plan_id, question)
                found.append((self._calls, question.call))
            self._told += item.run.telling.take()
        return found

    def answered(self, call_id: int, answer: Answer, now: datetime) -> list[Outcome]:
        """What came back for a call; an answer that nobody waits for is ignored."""
        asked = self._out.pop(call_id, None)
        if asked is None:
            return []
        if answer.kind is AnswerKind.THROTTLED:
            acting = self._site.policy.acting
            wait = acting.retry_first if answer.retry_after is None else timedelta(seconds=answer.retry_after)
            self._site.throttled(now + min(max(wait, timedelta(0)), acting.retry_max))
        asked[1].reply(answer, now)
        self._settle(now)
        return self.outcomes()

    def outcomes(self) -> list[Outcome]:
        """What was told since the last call, oldest first."""
        told, self._told = self._told, []
        return told

    def next_wake(self, now: datetime) -> datetime | None:
        """When advance must be called although nothing happens; None while only answers or plans are awaited."""
        times = [item.run.due(now) for item in self._open.values()]
        calls = [time for time in times if time is not None]
        if self._site.hold_until is not None:
            calls = [max(time, self._site.hold_until) for time in calls]
        held = [now if plan.id in self._approved else plan.valid_until for plan in self._held.values()]
        return min((*calls, *held), default=None)

    def snapshot(self) -> tuple[OpenStep, ...]:
        """Steps under way, and plans that wait for approval, for status."""
        found = [
            OpenStep(plan_id, item.run.plan.pool, item.run.plan.method, index, phase, item.accepted_at)
            for plan_id, item in self._open.items()
            for index, phase in item.run.status()
        ]
        waiting = Reason.AWAITS_APPROVAL.value
        found += [OpenStep(p.id, p.pool, p.method, -1, waiting, p.made_at) for p in self._held.values()]
        return tuple(found)

    def _known(self, plan_id: PlanId) -> bool:
        return plan_id in self._open or plan_id in self._held or plan_id in self._finished

    @staticmethod
    def _begun_alone(plan: Plan, telling: Telling) -> bool:
        """Whether act made it without a decider and has begun it: no decider knows it, and a gang may be half gone."""
        return plan.id.startswith(ALONE) and any(map(telling.begun, range(len(plan.steps))))

    def _start(self, plan: Plan, telling: Telling, now: datetime) -> None:
        begun = any(map(telling.started, range(len(plan.steps))))
        because = None if begun else self._refusal(plan, now)
        if because is not None:
            self._told += self._refuse(plan, telling, because, now)
            return
        self._caps.accepted(plan, min(now, plan.made_at) if begun else now)
        kind = LendRun if brakes.lends(plan) else RenewRun if brakes.renews(plan) else TakeBack
        self._open[plan.id] = _Open(kind(self._site, plan, telling), now)
        self._settle(now)

    def _refusal(self, plan: Plan, now: datetime) -> Because | None:
        if now >= plan.valid_until:
            return Because(Reason.PLAN_EXPIRED, {"valid_until": plan.valid_until.isoformat(timespec="seconds")})
        busy = next((item.run for item in self._open.values() if item.run.nodes() & brakes.nodes(plan)), None)
        if busy is not None:
            shared = sorted(busy.nodes() & brakes.nodes(plan))
            return Because(Reason.IN_TRANSIT, {"node": shared[0]})
        policy = self._site.policy
        return brakes.refusal(plan, self._control, policy) or self._caps.over(plan, policy.pace, now)

    def _refuse(self, plan: Plan, telling: Telling, because: Because, now: datetime) -> list[Outcome]:
        telling.refuse_all(because, now)
        self._finish(plan.id)
        return telling.take()

    def _superseded(self, plan_id: PlanId) -> Because:
        return Because(Reason.SUPERSEDED, {"plan": self._cancelled[plan_id]})

    def _cancel(self, plan: Plan, now: datetime) -> None:
        target = plan.cancels
        _remember(self._cancelled, target, plan.id)
        held = self._held.pop(target, None)
        if held is not None:
            telling = Telling(held, self.epoch)
            telling.refuse_all(plan.because, now, Result.CANCELLED)
            self._told += telling.take()
            self._finish(target)
        running = self._open.get(target)
        stopped = running is None or running.run.stop(plan.because, Result.CANCELLED, now)
        self._settle(now)
        result = Result.DONE if stopped else Result.REFUSED
        because = plan.because if stopped else Because(Reason.IN_TRANSIT, {"node": plan.pool})
        self._told.append(
            Outcome(plan.id, plan.pool, -1, "cancel", target, result, because, now, epoch=self.epoch)
        )  # fmt: skip

    def _release_held(self, now: datetime) -> None:
        for plan in list(self._held.values()):
            if plan.id in self._approved or now >= plan.valid_until:
                del self._held[plan.id]
                self._start(plan, Telling(plan, self.epoch, self._adopted.get(plan.id, ())), now)

    def _brake(self, now: datetime) -> None:
        for item in self._open.values():
            because = brakes.paused(item.run.plan, self._control, self._site.policy)
            if because is not None:
                item.run.stop(because, Result.REFUSED, now)

    def _settle(self, now: datetime) -> None:
        for plan_id, item in list(self._open.items()):
            item.run.settle(now)
            self._told += item.run.telling.take()
            if item.run.over:
                del self._open[plan_id]
                self._finish(plan_id)

    def _finish(self, plan_id: PlanId) -> None:
        self._adopted.pop(plan_id, None)
        self._approved.discard(plan_id)
        _remember(self._finished, plan_id, plan_id)


def _remember(known: dict[PlanId, PlanId], plan_id: PlanId, value: PlanId) -> None:
    known[plan_id] = value
    while len(known) > REMEMBERED:
        del known[next(iter(known))]
