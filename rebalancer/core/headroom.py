"""How much an inference pool's demand may rise before lent nodes can be home again, learnt from its own past.

The headroom is an upper quantile of the rises seen within the return time. An integral loop moves the quantile so
that the shortage that is really measured holds the budget: the model may be wrong, the budget may not. Until a day
of demand was seen, a share of the pool stands in. All in GPUs and seconds of event time; no decision is taken here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil, exp, inf, log, nan
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from rebalancer.core.instructions import PoolMemory

Series = NDArray[np.float64]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS = 86_400.0
FIRST_TAIL, TAIL_LEAST, TAIL_MOST = 2e-3, 1e-4, 0.05
"""Share of rises that may exceed the headroom: where the loop begins, and its bounds."""
GAIN = 5.0
"""By how much the log of the tail moves for one day's worth of budget. Chosen on a fortnight of a language model's
load: 1 takes a week to find its level, 20 swings past a budget of 0.1 % when returns take ten minutes."""
PUBLISHED = (0.5, 0.9, 0.99)
"""Quantiles of the rise that subscribers get."""
RECENT_RETURNS = 20


class Headroom:
    """What is remembered of one pool's demand: one maximum per bucket, over the history."""

    def __init__(self, bucket: timedelta, history: timedelta, prior_share: float, capacity: float) -> None:
        self.capacity = capacity
        """GPUs that the pool owns; scales the prior and the loop."""
        self._bucket = int(bucket.total_seconds())
        self._prior_share = prior_share
        self._maxima: deque[float] = deque(maxlen=int(history / bucket))
        self._last: int | None = None
        self._log_tail = log(FIRST_TAIL)
        self._shortage = self._demand = 0.0
        self._horizon = 0.0
        self._cache: dict[int, Series] = {}

    @property
    def quantile(self) -> float:
        """Where the integral loop stands."""
        return 1.0 - exp(self._log_tail)

    @property
    def shortage(self) -> float:
        """Measured shortage as a share of demand, over what the loop remembers; 0 before any demand."""
        return self._shortage / self._demand if self._demand > 0 else 0.0

    def observe(self, demand_gpus: float, now: datetime) -> None:
        """Demand at ``now``. Buckets without any observation are gaps; what is older than the newest is ignored."""
        index = int((now - EPOCH).total_seconds()) // self._bucket
        if self._last is None or not self._maxima:
            self._last = index
            self._maxima.append(demand_gpus)
        elif index == self._last:
            self._maxima[-1] = max(self._maxima[-1], demand_gpus)
        elif index > self._last:
            gap = min(index - self._last - 1, self._maxima.maxlen or 0)
            self._maxima.extend([nan] * gap)
            self._maxima.append(demand_gpus)
            self._last = index
            self._cache.clear()

    def rise(self, return_seconds: float) -> float:
        """GPUs to keep free so that a rise within ``return_seconds`` finds them ready, at the loop's quantile.

        While less than a day was seen the prior stands in, fading linearly: the larger of the learnt figure and
        what is left of the prior. Never more than the pool.
        """
        self._horizon = return_seconds
        rises = self._rises(return_seconds)
        learnt = upper_quantile(rises, self.quantile)
        unseen = max(0.0, 1.0 - len(rises) * self._bucket / DAY_SECONDS)
        return min(self.capacity, max(learnt, unseen * self._prior_share * self.capacity))

    def quantiles(self, return_seconds: float) -> Mapping[str, float]:
        """Rise in GPUs within ``return_seconds`` at the published quantiles; empty before anything was seen."""
        rises = self._rises(return_seconds)
        if len(rises) == 0:
            return MappingProxyType({})
        return MappingProxyType({f"{level:g}": upper_quantile(rises, level) for level in PUBLISHED})

    def account(self, shortage_gpu_seconds: float, demand_gpu_seconds: float, budget: float) -> None:
        """Charge what was really missed while lent against ``budget`` (a share of demand), and move the quantile.

        An integral controller on the log of the tail: in the long run measured shortage / demand = budget, unless a
        bound is reached. The unit is a day's budget of the full pool, so that the pace does not depend on its size.
        """
        self._shortage += shortage_gpu_seconds
        self._demand += demand_gpu_seconds
        unit = max(budget, 1e-6) * max(self.capacity, 1.0) * DAY_SECONDS
        error = (shortage_gpu_seconds - budget * demand_gpu_seconds) / unit
        self._log_tail = min(max(self._log_tail - GAIN * error, log(TAIL_LEAST)), log(TAIL_MOST))
        remembered = max(self.capacity, 1.0) * self._bucket * (self._maxima.maxlen or 1)
        if self._demand > remembered:
            self._shortage *= remembered / self._demand
            self._demand = remembered

    def memory(self, pool: str, made_at: datetime, returns: Sequence[float]) -> PoolMemory:
        """All of it as a record, for the forecast topic and the next restart."""
        return PoolMemory(
            pool=pool,
            made_at=made_at,
            until=EPOCH + timedelta(seconds=(self._last or 0) * self._bucket),
            bucket_seconds=self._bucket,
            history=tuple(self._maxima),
            quantile=self.quantile,
            shortage_gpu_seconds=self._shortage,
            demand_gpu_seconds=self._demand,
            returns=tuple(returns),
            horizon_seconds=self._horizon,
            quantiles=self.quantiles(self._horizon),
        )

    @classmethod
    def from_memory(cls, memory: PoolMemory, like: Headroom) -> Headroom:
        """What a record remembers, under the settings of ``like``; another bucket length forgets the history."""
        span = timedelta(seconds=like._bucket)
        made = cls(span, span * (like._maxima.maxlen or 1), like._prior_share, like.capacity)
        made._log_tail = min(max(log(max(1.0 - memory.quantile, TAIL_LEAST)), log(TAIL_LEAST)), log(TAIL_MOST))
        made._shortage, made._demand = memory.shortage_gpu_seconds, memory.demand_gpu_seconds
        made._horizon = memory.horizon_seconds
        if memory.bucket_seconds == like._bucket and memory.history:
            made._maxima.extend(memory.history)
            made._last = int((memory.until - EPOCH).total_seconds()) // like._bucket
        return made

    def under(self, bucket: timedelta, history: timedelta, prior_share: float) -> Headroom:
        """What is remembered, under other settings; another bucket length forgets the history."""
        like = Headroom(bucket, history, prior_share, self.capacity)
        return Headroom.from_memory(self.memory("", EPOCH, ()), like)

    def _rises(self, return_seconds: float) -> Series:
        """Sorted rises within the return time over the history, remembered until the next bucket begins."""
        steps = max(1, ceil(return_seconds / self._bucket))
        if steps not in self._cache:
            self._cache.clear()
            self._cache[steps] = np.sort(rises_within(np.array(self._maxima, dtype=np.float64)[:-1], steps))
        return self._cache[steps]


def rises_within(maxima: Series, steps: int) -> Series:
    """max(0, max of the next ``steps`` buckets − this one), for each known bucket with a known one after it."""
    known = np.where(np.isnan(maxima), -inf, maxima)
    ahead = np.full(len(known), -inf)
    for step in range(1, min(steps, len(known) - 1) + 1):
        np.maximum(ahead[:-step], known[step:], out=ahead[:-step])
    counted = np.isfinite(known) & np.isfinite(ahead)
    if len(known) > steps:
        counted[-steps:] = False  # their return time is not over yet
    rises: Series = np.maximum(ahead[counted] - known[counted], 0.0)
    return rises


def upper_quantile(ascending: Series, quantile: float) -> float:
    """The smallest value that at most ``1 - quantile`` of the sample exceed (no interpolation); 0 of nothing."""
    if len(ascending) == 0:
        return 0.0
    exceeding = int((1.0 - quantile) * len(ascending) + 1e-9)
    return float(ascending[max(0, len(ascending) - 1 - exceeding)])


def return_seconds(measured: Sequence[float], default: timedelta) -> float:
    """How long taking a node back takes: the longest of the recent returns, the default until one was measured."""
    recent = measured[-RECENT_RETURNS:]
    return max(recent) if recent else default.total_seconds()


class RollingMin:
    """The minimum of a series over the last ``span``, in event time; a value holds until the next one.

    None until a whole span was seen: what was not watched proves nothing. A late value counts as if it held up to
    the newest one, which can only lower the minimum.
    """

    __slots__ = ("_ended", "_first", "_span", "_value", "_when")

    def __init__(self, span: timedelta) -> None:
        self._span = span
        self._ended: deque[tuple[datetime, float]] = deque()
        self._first: datetime | None = None
        self._when: datetime | None = None
        self._value = nan

    def observe(self, value: float, at: datetime) -> None:
        """The value from ``at`` on. Constant cost, amortised."""
        if self._when is None:
            self._first, self._when, self._value = at, at, value
        elif at == self._when:
            self._value = min(self._value, value)
        elif at < self._when:
            self._push(value)
        else:
            self._when, former = at, self._value
            self._push(former)
            self._value = value
            self._expire(at)

    def minimum(self, now: datetime) -> float | None:
        """The smallest value in force at any time of ``[now - span, now]``."""
        if self._first is None or now - self._first < self._span:
            return None
        self._expire(now)
        return min(self._value, self._ended[0][1]) if self._ended else self._value

    def _push(self, value: float) -> None:
        """A value that ended when the newest began; larger ones before it can never be the minimum again."""
        if self._when is None:
            return
        while self._ended and self._ended[-1][1] >= value:
            self._ended.pop()
        self._ended.append((self._when, value))

    def _expire(self, now: datetime) -> None:
        while self._ended and self._ended[0][0] <= now - self._span:
            self._ended.popleft()
