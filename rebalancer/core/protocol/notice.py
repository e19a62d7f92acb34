"""Our notice to a gang: given once, binding for as long as the gang asked for, ended early by a checkpoint.

Telling is best effort and never stops doing: after a few failures the wait counts from the last try.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from rebalancer.core.facts import Pod
from rebalancer.core.plan import EvictGang, Member
from rebalancer.core.policy import Acting
from rebalancer.core.protocol.calls import Answer, AnswerKind, GiveNotice
from rebalancer.core.protocol.pace import Ask
from rebalancer.core.protocol.site import Question
from rebalancer.core.reasons import sentence

TRIES = 3


class Notice:
    """One gang's notice. ``given_at`` is when it was given (None: not yet)."""

    def __init__(self, acting: Acting, step: EvictGang) -> None:
        self.given_at: datetime | None = None
        self._step = step
        self._ask = Ask(acting, step.gang)
        self._tries = 0
        self._writing = False
        self._evict_at = step.not_before
        self._ended = False

    @property
    def ends(self) -> datetime:
        """The first moment at which the gang may be evicted."""
        return self._step.not_before if self._ended else self._evict_at

    def wanted(self, live: Iterable[Pod]) -> bool:
        """Whether notice is still to be given: the gang asked for it, or is writing a checkpoint."""
        self._writing = any(pod.checkpoint_in_progress for pod in live)
        return self.given_at is None and (self._step.notice_seconds > 0 or self._writing)

    def due(self, now: datetime) -> datetime | None:
        """When the call may be made."""
        return self._ask.due(now)

    def questions(self, members: tuple[Member, ...], now: datetime) -> list[Question]:
        """The call, if it may be made now."""
        if self.given_at is not None or not self._ask.ready(now):
            return []
        ends = now + timedelta(seconds=self._step.notice_seconds)
        if self._writing:  # it may finish writing, as long as it can still leave by the deadline
            ends = max(ends, self._step.deadline - timedelta(seconds=self._step.grace_seconds))
        self._evict_at = max(ends, self._step.not_before)
        self._ask.sent()
        text = sentence(self._step.because)
        call = GiveNotice(self._step.gang, members, self._step.top_owner, self._evict_at, text)
        return [Question(call, partial(self._told, now))]

    def heard(self, live: Iterable[Pod]) -> None:
        """Whether the gang has answered: a checkpoint since the notice, or the one in progress finished."""
        pods = list(live)
        saved = [pod.checkpointed_at for pod in pods if pod.checkpointed_at is not None]
        since = any(self.given_at is not None and at > self.given_at for at in saved)
        done = self._writing and not any(pod.checkpoint_in_progress for pod in pods)
        self._ended = self._ended or since or done

    def _told(self, asked_at: datetime, answer: Answer, now: datetime) -> None:
        self._tries += 1
        final = answer.kind in (AnswerKind.OK, AnswerKind.FORBIDDEN, AnswerKind.GONE)
        if not self._ask.failed(answer, now) or final or self._tries >= TRIES:
            self.given_at = asked_at
