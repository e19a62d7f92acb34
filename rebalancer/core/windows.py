"""Lending windows: half-open spans of local time in an IANA zone, right on DST nights.

A window belongs to the day it starts on. It opens when the local clock first reaches or passes its start,
and closes when the clock first reaches or passes its end: a start in the skipped hour opens at the next
valid instant, a repeated hour neither opens nor closes anything twice. Zones are built at the edge, where
an unknown one is refused. This room reads no clock and knows nothing of loans; every question takes one
``now``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
WEEK = 7 * DAY
HORIZON_DAYS = 15
"""How far an opening is followed: what neither began nor ends within two weeks counts as without beginning
or end."""
"""How far the next opening is looked for: exception dates may cover weeks."""
SMALLEST_HOLE = timedelta(minutes=5)
"""A window that closes this shortly before it opens again was meant to stay open (`23:59` for `24:00`)."""


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end) local time, on the weekdays it starts (0 = Monday), ``end_days`` days after the start day.

    ``end`` 06:00 with ``start`` 22:00 has ``end_days`` 1; Friday 20:00 to Monday 07:00 has 3.
    ``except_dates`` are local start dates on which it does not open. ``always`` ignores all else.
    """

    name: str
    zone: ZoneInfo
    start: time = time(0)
    end: time = time(0)
    days: frozenset[int] = frozenset(range(7))
    end_days: int = 0
    except_dates: frozenset[date] = frozenset()
    always: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """One continuous time in which lending is allowed, in UTC, however many windows it is made of.

    None stands for "not within the horizon": ``always``, or windows that join up without end. ``name`` is the
    window that is open at the moment asked about.
    """

    opened_at: datetime | None
    closes_at: datetime | None
    name: str


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    opens: datetime
    closes: datetime
    name: str


def problems(window: Window) -> tuple[str, ...]:
    """All that is wrong with a window; empty when it may be used."""
    if window.always:
        return ()
    starts, ends = _since_midnight(window.start), _since_midnight(window.end) + max(window.end_days, 0) * DAY
    length, hole = ends - starts, (starts - ends) % DAY
    holed = timedelta(0) < hole < SMALLEST_HOLE and length >= DAY - SMALLEST_HOLE
    checks = (
        (
            bool(window.days) and window.days <= frozenset(range(7)),
            "days: at least one, each 0 (Monday) to 6",
        ),
        (window.end_days >= 0, "end_days: must not be negative"),
        (bool(length), "end: is its start; write 24:00 for the end of the day, or always"),
        (length >= timedelta(0), "end: lies before its start; end_days says how many days later it ends"),
        (length <= WEEK, "end: lies more than a week after its start"),
        (not holed, "end: leaves a hole of minutes before it opens again; write 24:00, or always"),
    )
    return tuple(message for holds, message in checks if not holds)


def opening(windows: Sequence[Window], now: datetime) -> Opening | None:
    """What is open at ``now``, windows that overlap or adjoin taken as one; None when all are closed."""
    always = next((window for window in windows if window.always), None)
    if always is not None:
        return Opening(None, None, always.name)
    spans = _spans(windows, now)
    near = (HORIZON_DAYS - 1) * DAY
    for merged in _merged(spans):
        if merged.opens <= now < merged.closes:
            name = next(span.name for span in spans if span.opens <= now < span.closes)
            begun = merged.opens if now - merged.opens < near else None
            return Opening(begun, merged.closes if merged.closes - now < near else None, name)
    return None


def _since_midnight(clock: time) -> timedelta:
    return datetime.combine(date.min, clock) - datetime.combine(date.min, time(0))


def _spans(windows: Iterable[Window], now: datetime) -> list[_Span]:
    """All occurrences that start on the local days around now, sorted."""
    found = []
    for window in windows:
        today = now.astimezone(window.zone).date()
        days = (today + offset * DAY for offset in range(-HORIZON_DAYS, HORIZON_DAYS + 1))
        found += [span for span in (_occurrence(window, day) for day in days) if span is not None]
    return sorted(found)


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """Overlapping and adjoining spans as one; named after the first."""
    merged: list[_Span] = []
    for span in spans:
        if merged and span.opens <= merged[-1].closes:
            last = merged.pop()
            merged.append(_Span(last.opens, max(last.closes, span.closes), last.name))
        else:
            merged.append(span)
    return merged


@lru_cache(maxsize=8192)  # a plan asks for the same days again and again
def _occurrence(window: Window, day: date) -> _Span | None:
    """The occurrence of a local day; None on other days, and where the skipped hour swallows it."""
    if day.weekday() not in window.days or day in window.except_dates:
        return None
    opens = _instant(datetime.combine(day, window.start), window.zone)
    closes = _instant(datetime.combine(day + window.end_days * DAY, window.end), window.zone)
    return _Span(opens, closes, window.name) if opens < closes else None


def _instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant (UTC) at which the local clock shows ``wall`` or, having skipped it, a later time."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    # Skipped (PEP 495): with fold=0 the instant lies after the change of the clock, with fold=1 before it.
    before, after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        passed = middle.astimezone(zone).replace(tzinfo=None) >= wall
        before, after = (before, middle) if passed else (middle, after)
    return after.replace(microsecond=0)
