"""How fast and how patiently: the token bucket of evictions and the backoff of retries, as plain arithmetic.

No clock and no randomness: ``now`` is an argument, and jitter comes from a hash of who is retried and how
often, so that a replay waits exactly as long as the original did.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rebalancer.core.policy import Acting
from rebalancer.core.protocol.calls import Answer


@dataclass(slots=True)
class Bucket:
    """A token bucket: ``burst`` at once, ``rate`` a second after that; shared by all of an actor."""

    rate: float
    burst: int
    tokens: float = field(init=False)
    at: datetime | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.tokens = float(self.burst)

    def take(self, now: datetime) -> bool:
        """Take one token if there is one."""
        self._fill(now)
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def ready_at(self, now: datetime) -> datetime:
        """When the next token will be there; ``now`` if it already is."""
        self._fill(now)
        if self.tokens >= 1.0:
            return now
        # A microsecond more, since rounding down would wake us just before the token is whole.
        return now + timedelta(seconds=(1.0 - self.tokens) / self.rate, microseconds=1)

    def drain(self, until: datetime) -> None:
        """The server asked to slow down: no burst is left, and filling starts again at ``until``."""
        self.tokens = 0.0
        self.at = until if self.at is None else max(self.at, until)

    def _fill(self, now: datetime) -> None:
        if self.at is None:
            self.at = now
        if now > self.at:
            gained = (now - self.at).total_seconds() * self.rate
            self.tokens = min(float(self.burst), self.tokens + gained)
            self.at = now


def backoff(acting: Acting, key: str, attempt: int) -> timedelta:
    """Wait before retry number ``attempt`` (from 0): doubling from ``retry_first`` to ``retry_max``.

    Up to a fifth is taken off by a hash of key and attempt, so that many blocked at once do not retry at
    once; never less than ``retry_first``.
    """
    # 2 ** 16 first waits exceed any sensible maximum; the bound keeps the power small.
    whole = min(acting.retry_first * int(2 ** min(attempt, 16)), acting.retry_max)
    digest = hashlib.sha256(f"{key}\x1f{attempt}".encode()).digest()
    share = int.from_bytes(digest[:4], "big") / 2**32
    return max(acting.retry_first, whole * (1.0 - 0.2 * share))


@dataclass(slots=True)
class Ask:
    """One question that is asked again until it is answered usefully: at most one call is out at any time."""

    acting: Acting
    key: str
    out: bool = False
    attempt: int = 0
    not_before: datetime | None = None
    failing_since: datetime | None = None

    def ready(self, now: datetime) -> bool:
        """Whether the call may be made now."""
        return not self.out and (self.not_before is None or now >= self.not_before)

    def due(self, now: datetime) -> datetime | None:
        """When the call may be made; None while an answer is awaited."""
        return None if self.out else max(now, self.not_before or now)

    def sent(self) -> None:
        """The call is out."""
        self.out = True

    def back(self) -> None:
        """A useful answer came: the count of failures starts anew."""
        self.out, self.attempt, self.not_before, self.failing_since = False, 0, None, None

    def went(self) -> None:
        """An answer came that leads on; failures before it still count."""
        self.out, self.not_before = False, None

    def again(self, at: datetime) -> None:
        """Ask once more at that moment, without counting a failure."""
        self.back()
        self.not_before = at

    def failed(self, answer: Answer, now: datetime) -> bool:
        """Plan the next try; False once tries have failed for ``retry_deadline``."""
        asked = None if answer.retry_after is None else timedelta(seconds=max(0.0, answer.retry_after))
        ours = backoff(self.acting, self.key, self.attempt)
        wait = ours if asked is None else min(asked, self.acting.retry_max)
        self.out, self.attempt, self.not_before = False, self.attempt + 1, now + wait
        self.failing_since = self.failing_since or now
        return now - self.failing_since < self.acting.retry_deadline
