"""Rolling means over time, in event time: how full a pool was over the last minute, ten minutes, hour.

A value holds from its event time until the next one. Points are kept in order of event time, one a second, so the
memory is bounded and late points fall into their place: within the lateness any order gives the same mean. Nothing
here knows what the values mean.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta


class Rolling:
    """Time-weighted means over at most ``longest``; points later than ``lateness`` are dropped and counted."""

    __slots__ = ("_keep", "_lateness", "_times", "_values", "late", "longest")

    def __init__(self, longest: timedelta = timedelta(hours=1), lateness: timedelta = timedelta(minutes=5)) -> None:
        self.longest = longest
        self.late = 0
        self._lateness = lateness
        self._keep = longest + lateness
        self._times: list[datetime] = []
        self._values: list[float] = []

    def observe(self, value: float, at: datetime) -> None:
        """The value from ``at`` on (whole seconds). Of one second the last point told holds."""
        moment, times = at.replace(microsecond=0), self._times
        if times and times[-1] - moment > self._lateness:
            self.late += 1
            return
        index = bisect_left(times, moment)
        if index < len(times) and times[index] == moment:
            self._values[index] = value
            return
        times.insert(index, moment)
        self._values.insert(index, value)
        self._trim()

    def mean(self, window: timedelta, now: datetime) -> float | None:
        """Mean over ``[now - window, now]``, of the part that is known; None when none of it is.

        Raises ValueError for a window longer than what is kept.
        """
        if not timedelta(0) < window <= self.longest:
            raise ValueError(f"a window of {window} is not within {self.longest}")
        first = max(bisect_right(self._times, now - window) - 1, 0)
        begin, weight, total = now - window, 0.0, 0.0
        for index in range(first, bisect_right(self._times, now)):
            follows = self._times[index + 1] if index + 1 < len(self._times) else now
            span = (min(follows, now) - max(self._times[index], begin)).total_seconds()
            weight += span
            total += span * self._values[index]
        return total / weight if weight > 0 else self._at(now)

    def _at(self, now: datetime) -> float | None:
        """The value in force: a mean over no time."""
        index = bisect_right(self._times, now) - 1
        return self._values[index] if index >= 0 else None

    def _trim(self) -> None:
        """Forget what no window reaches; the point in force at its edge stays."""
        edge = bisect_right(self._times, self._times[-1] - self._keep) - 1
        if edge > 0:
            del self._times[:edge], self._values[:edge]
