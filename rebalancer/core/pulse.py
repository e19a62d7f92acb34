"""Signs of life of a card's telemetry: is the exporter measuring, or repeating itself?

A helper of ``cards``. It also holds the two rules by which raw numbers are believed and merged. It knows
nothing of thresholds of utilisation, and nothing of time but whether two rows belong to one scrape.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

Witness: TypeAlias = tuple[float | None, float | None, float | None]
"""Energy, power, temperature of one scrape, None where not reported."""
NOTHING: Witness = (None, None, None)


def sane(value: float | None, most: float) -> float | None:
    """The value if it lies in 0..most; None for NaN, blanks, spikes and what was not reported."""
    return value if value is not None and 0.0 <= value <= most else None


def larger(one: float | None, other: float | None) -> float | None:
    """The larger of what is known: of two rows of one moment, the lesser must not hide load."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


class Pulse:
    """Counts scrapes in a row in which nothing moved, and scrapes in a row without any witness.

    A growing energy counter is the plainest proof of life; any other value that moved is one too. Rows of
    one scrape are merged, so that repeating a row counts for nothing.
    """

    __slots__ = ("_at", "_before", "_gone_before", "_moved", "_now", "_repeats_before", "gone", "repeats")

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._now = self._before = NOTHING
        self._moved = False
        self._repeats_before = self._gone_before = 0
        self.repeats = self.gone = 0

    def take(self, values: Witness, at: datetime, *, moved: bool) -> None:
        """One row of the scrape at ``at``; ``moved``: another value of it differs from the scrape before."""
        if at != self._at:
            self._at, self._moved = at, False
            self._before, self._now = _filled(self._now, self._before), NOTHING
            self._repeats_before, self._gone_before = self.repeats, self.gone
        now = self._now
        self._now = now = (larger(values[0], now[0]), larger(values[1], now[1]), larger(values[2], now[2]))
        self._moved = self._moved or moved
        came = now != NOTHING
        self.gone = 0 if came else self._gone_before + 1
        self.repeats = 1 if self._moved or _differ(now, self._before) else self._repeats_before + came

    def witnessed(self, scrapes: int) -> bool:
        """Whether a witness came within the last ``scrapes`` scrapes."""
        return self.gone < scrapes and (self._now != NOTHING or self._before != NOTHING)

    def frozen(self, scrapes: int) -> bool:
        """Whether a witness exists and nothing has moved over ``scrapes`` scrapes."""
        return self.repeats >= scrapes and self.witnessed(scrapes)


def _filled(new: Witness, old: Witness) -> Witness:
    """The last known of each: a gap neither moves nor resets anything."""
    first, second, third = new
    return (
        old[0] if first is None else first,
        old[1] if second is None else second,
        old[2] if third is None else third,
    )


def _differ(new: Witness, old: Witness) -> bool:
    return any(one is not None and other is not None and one != other for one, other in zip(new, old, strict=True))
