"""Whole numbers over time: how many GPUs, since when, and how many GPU-milliseconds that makes in each UTC hour.

Changes may come in any order: what a meter says does not depend on it, so a late one only moves the hours that it
concerns. No float is ever added up here, and nothing is known of what is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

HOUR = 3_600_000
"""Milliseconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def ms_of(moment: datetime) -> int:
    """Whole milliseconds since 1970."""
    return (moment - _EPOCH) // _MILLISECOND


def moment_of(ms: int) -> datetime:
    """The moment, in UTC."""
    return _EPOCH + ms * _MILLISECOND


class Meter:
    """A level in GPUs. For each hour with changes: their sum, and each times what was left of the hour."""

    __slots__ = ("_hours", "level")

    def __init__(self) -> None:
        """At zero since ever."""
        self.level = 0
        self._hours: dict[int, list[int]] = {}

    def move(self, change: int, at: int) -> None:
        """From ``at`` (ms) on there are ``change`` more."""
        hour = at // HOUR
        entry = self._hours.setdefault(hour, [0, 0])
        entry[0] += change
        entry[1] += change * ((hour + 1) * HOUR - at)
        self.level += change

    def add(self, amount: int, hour: int) -> None:
        """GPU-milliseconds that come on top in an hour."""
        self._hours.setdefault(hour, [0, 0])[1] += amount

    def total(self, hour: int) -> int:
        """GPU-milliseconds in an hour, if nothing changes any more."""
        later = sum(entry[0] for at, entry in self._hours.items() if at >= hour)
        return (self.level - later) * HOUR + (self._hours[hour][1] if hour in self._hours else 0)

    def until(self, hour: int, at: int) -> int:
        """The part of it up to ``at``, which no change is later than."""
        return self.total(hour) - self.level * max(0, min(HOUR, (hour + 1) * HOUR - at))

    def forget(self, before: int) -> None:
        """Hours before this one are not asked for any more."""
        for hour in [hour for hour in self._hours if hour < before]:
            del self._hours[hour]


def seconds_of(amounts: Iterable[int]) -> tuple[float, ...]:
    """GPU-milliseconds as GPU-seconds, each rounded once."""
    return tuple(amount / 1000 for amount in amounts)
