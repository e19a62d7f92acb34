"""The members of one gang while it goes: who is still wanted, who is releasing, who is gone, and who made them go.

Members are evicted in parallel, under one budget in turn, paced by the actor's bucket; one that hangs delays nobody
else's. Once a member was refused while nobody has gone yet, no further one is asked for: then the gang can still be
left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from rebalancer.core.facts import Pod
from rebalancer.core.plan import EvictGang, Member, Plan
from rebalancer.core.protocol.calls import Answer, AnswerKind, EvictPod
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import Question, Site, why
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Number, PodUid

RETRIED = frozenset({AnswerKind.THROTTLED, AnswerKind.TIMED_OUT, AnswerKind.UNREACHABLE, AnswerKind.FAILED})
"""Answers that say nothing about the pod: the same victim is asked for again."""
DOUBTFUL = RETRIED - {AnswerKind.THROTTLED}
"""Answers after which the eviction may have been accepted all the same."""


def named(pod: Pod | Member) -> str:
    """Namespace and name, as people know it."""
    return f"{pod.namespace}/{pod.name}"


@dataclass(slots=True)
class Victim:
    """One member. ``ours``: it goes because of us; ``doubtful``: it may; ``trouble``: what held its eviction."""

    member: Member
    ask: Ask
    gone: bool = False
    releasing: bool = False
    ours: bool = False
    doubtful: bool = False
    exhausted: bool = False
    grace_ends: datetime | None = None
    trouble: Because | None = None

    @property
    def wanted(self) -> bool:
        """Whether its eviction is still to be accepted."""
        return not (self.gone or self.releasing)


class Members:
    """All members of one eviction step. ``begun``: an earlier actor has asked for evictions of this step."""

    def __init__(self, site: Site, plan: Plan, step: EvictGang, *, begun: bool) -> None:
        self.all = {item.uid: Victim(item, Ask(site.policy.acting, item.uid)) for item in step.members}
        self.touched = False
        self._site, self._plan, self._step = site, plan, step
        self._begun = begun
        self._noted = False

    @property
    def wanted(self) -> list[Victim]:
        """Members whose eviction is still to be accepted."""
        return [item for item in self.all.values() if item.wanted]

    @property
    def staying(self) -> list[Victim]:
        """Members that are not gone yet."""
        return [item for item in self.all.values() if not item.gone]

    @property
    def out(self) -> bool:
        """Whether an eviction is waiting for its answer."""
        return any(item.ask.out for item in self.all.values())

    @property
    def doubtful(self) -> bool:
        """Whether an eviction may have been accepted without our knowing."""
        return any(item.doubtful for item in self.all.values())

    @property
    def unsure(self) -> bool:
        """Whether an earlier actor may have evicted some and nobody has looked yet."""
        return self._begun and not self._noted

    @property
    def trouble(self) -> Because | None:
        """What holds the first member that is held."""
        return next((item.trouble for item in self.wanted if item.trouble is not None), None)

    @property
    def split(self) -> bool:
        """Whether some have gone and others are held."""
        return self.touched and self.trouble is not None

    @property
    def spent(self) -> bool:
        """Whether every member that is held has been tried for as long as is allowed."""
        held = [item for item in self.wanted if item.trouble is not None]
        return bool(held) and not self.out and all(item.exhausted for item in held)

    @property
    def ours(self) -> int:
        """How many went because of us."""
        return sum(item.ours for item in self.all.values())

    def half(self, trouble: Because, what: str) -> Because:
        """A gang that is half gone, in numbers."""
        numbers: dict[str, Number] = {"gone": len(self.all) - len(self.wanted), "members": len(self.all)}
        return Because(Reason.GANG_SPLIT, {**numbers, "gang": self._step.gang, "why": what or trouble.reason.value})

    def late(self, now: datetime, allowed: timedelta) -> Because | None:
        """The first member that is still there longer than allowed after its grace period."""
        for item in self.staying:
            if item.grace_ends is not None and now - item.grace_ends > allowed:
                seconds = (now - item.grace_ends).total_seconds()
                return Because(Reason.STUCK, {"pod": named(item.member), "seconds": seconds})
        return None

    def note(self, live: Mapping[PodUid, Pod]) -> None:
        """Take over what a live read shows; nobody ever comes back."""
        self._noted = True
        for uid, item in self.all.items():
            pod = live.get(uid)
            if pod is None or pod.terminal:
                self.left(uid)
            elif pod.deleting_at is not None:
                self._credit(item)
                item.releasing, item.grace_ends = True, pod.deleting_at
                self._site.flights.accepted(uid)

    def left(self, uid: PodUid) -> None:
        """It is gone, or its name is another pod's now."""
        item = self.all[uid]
        if not item.gone:
            self._credit(item)
            item.gone = True
            self._site.flights.release([uid])

    def _credit(self, item: Victim) -> None:
        if self._begun or item.doubtful:
            item.ours, item.doubtful, self.touched = True, False, True

    def forget(self) -> None:
        """Everything is asked anew: what held members before no longer counts."""
        for item in self.all.values():
            item.trouble, item.ask.not_before = None, None

    def due(self, now: datetime) -> datetime | None:
        """When the next eviction may be asked for."""
        if self._halted:
            return None
        waits = self._site.flights.waits
        times = [item.ask.due(now) for item in self.wanted if not waits(item.member.uid)]
        first = min((time for time in times if time is not None), default=None)
        return None if first is None else max(first, self._site.bucket.ready_at(now))

    def questions(self, now: datetime, started: Callable[[], None]) -> list[Question]:
        """Evictions that may be asked for now; ``started`` is called before each."""
        found: list[Question] = []
        for item in self.wanted:
            if self._halted or not item.ask.ready(now) or self._site.flights.waits(item.member.uid):
                continue
            if not self._site.bucket.take(now):
                break
            item.ask.sent()
            self._site.flights.asked.add(item.member.uid)
            started()
            found.append(Question(EvictPod(item.member, self._plan.id), partial(self._answered, item)))
        return found

    @property
    def _halted(self) -> bool:
        return not self.touched and self.trouble is not None

    def _answered(self, item: Victim, answer: Answer, now: datetime) -> None:
        kind = answer.kind
        self._site.flights.asked.discard(item.member.uid)
        if kind is AnswerKind.OK:
            item.ask.back()
            item.releasing, item.ours, item.doubtful, self.touched = True, True, False, True
            item.grace_ends = item.grace_ends or now + timedelta(seconds=self._step.grace_seconds)
            self._site.flights.accepted(item.member.uid)
        elif kind in (AnswerKind.GONE, AnswerKind.CONFLICT):
            item.ask.back()
            self.left(item.member.uid)
        else:
            item.exhausted = not item.ask.failed(answer, now)
            item.doubtful = item.doubtful or kind in DOUBTFUL
            if kind not in RETRIED or item.exhausted:
                timeout = self._site.policy.acting.call_timeout.total_seconds()
                item.trouble = why(answer, named(item.member), timeout)
