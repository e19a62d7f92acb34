"""Lending windows as a policy file has them.

`always`, or a mapping: `zone` (IANA, needed), `from`, `to`, and optionally `days`, `except`, `name`. Times
are `22:00`, or `fri 20:00` for a span over several days; `24:00` ends a day. A window belongs to the day it
starts. When it is open is the core's knowledge; here it is only read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, time
from typing import TypeVar
from zoneinfo import ZoneInfo

import yaml

from rebalancer.adapters import scalars
from rebalancer.adapters.yamlnodes import Sheet, is_null
from rebalancer.core.windows import Window, problems

T = TypeVar("T")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_KEYS = ("name", "zone", "from", "to", "days", "except", "always")
_MOMENT = re.compile(r"(?:(?P<day>[a-z]{3})[a-z]*\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})", re.IGNORECASE)
_MINUTES = 24 * 60
_WRITTEN = {"start": "from", "end": "to", "end_days": "to", "except_dates": "except"}
Moment = tuple[int | None, int]
"""Weekday (0 = Monday) if one is said, and minutes since midnight, up to 1440."""


def window(sheet: Sheet, node: yaml.Node, path: str) -> Window | None:
    """One window, or None with a flaw on the sheet."""
    if isinstance(node, yaml.ScalarNode):
        return sheet.value(node, path, _bare)
    found = sheet.fields(node, path, _KEYS)
    name = _read(sheet, found, path, "name", scalars.word) or path.rpartition(".")[2]
    if _read(sheet, found, path, "always", scalars.boolean):
        return Window(name, ZoneInfo("UTC"), always=True)
    missing = [key for key in ("zone", "from", "to") if key not in found]
    for key in missing:
        sheet.blame(f"{path}.{key}", "is needed" + (" (an IANA zone, or UTC)" if key == "zone" else ""))
    zone = _read(sheet, found, path, "zone", scalars.zone)
    begin, end = (_read(sheet, found, path, key, moment) for key in ("from", "to"))
    listed = _days(sheet, found.get("days"), f"{path}.days")
    skipped = frozenset(_dates(sheet, found.get("except"), f"{path}.except"))
    if zone is None or begin is None or end is None or sheet.flaws:
        return None
    span = _span(sheet, path, begin, end, listed)
    if span is None:
        return None
    read = Window(name, zone, *span, except_dates=skipped)
    for problem in problems(read):
        field, _, message = problem.partition(": ")
        sheet.blame(f"{path}.{_WRITTEN.get(field, field)}", message)
    return read


def _bare(text: str) -> Window:
    if text.strip() != "always":
        raise ValueError(f"{text!r} is no window; write always, or zone, from and to")
    return Window("always", ZoneInfo("UTC"), always=True)


def _read(sheet: Sheet, found: dict[str, yaml.Node], path: str, key: str, parse: Callable[[str], T]) -> T | None:
    return sheet.value(found[key], f"{path}.{key}", parse) if key in found else None


def moment(text: str) -> Moment:
    """``22:00``, ``24:00`` or ``fri 20:00``."""
    found = _MOMENT.fullmatch(text.strip())
    minutes = int(found["hour"]) * 60 + int(found["minute"]) if found else -1
    if not found or int(found["minute"]) > 59 or minutes > _MINUTES:
        raise ValueError(f"{text!r} is no time of day; write 22:00, 24:00 or fri 20:00")
    return (weekday(found["day"]) if found["day"] else None, minutes)


def weekday(text: str) -> int:
    """A weekday by its first three letters, 0 = Monday."""
    if text.strip()[:3].lower() not in DAYS:
        raise ValueError(f"{text!r} is no weekday; write {', '.join(DAYS)}")
    return DAYS.index(text.strip()[:3].lower())


def weekdays(text: str) -> frozenset[int]:
    """``daily``, ``fri``, ``mon-fri``, ``sun-thu`` (around the week's end), or several of them."""
    if text.strip().lower() == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.replace(",", " ").split():
        first, dash, last = part.partition("-")
        begin, end = weekday(first), weekday(last if dash else first)
        found |= {(begin + step) % 7 for step in range((end - begin) % 7 + 1)}
    return frozenset(found)


def _days(sheet: Sheet, node: yaml.Node | None, path: str) -> frozenset[int] | None:
    if node is None or is_null(node):
        return None
    parts = [sheet.value(item, at, weekdays) for at, item in sheet.items(node, path)]
    found = frozenset(day for part in parts if part is not None for day in part)
    if not found and not sheet.flaws:
        sheet.blame(path, "names no day; it would never open")
    return found


def _dates(sheet: Sheet, node: yaml.Node | None, path: str) -> list[date]:
    items = [] if node is None else list(sheet.items(node, path))
    read = [sheet.value(item, at, date.fromisoformat) for at, item in items]
    return [day for day in read if day is not None]


def _span(
    sheet: Sheet, path: str, begin: Moment, end: Moment, listed: frozenset[int] | None
) -> tuple[time, time, frozenset[int], int] | None:
    (first, start), (last, stop) = begin, end
    if (first is None) != (last is None):
        sheet.blame(path, "say the weekday in both `from` and `to`, or in neither")
    elif first is not None and listed is not None:
        sheet.blame(f"{path}.days", "the weekdays stand in `from` and `to` already")
    elif start == _MINUTES:
        sheet.blame(f"{path}.from", "a window begins at 00:00, not at 24:00")
    if sheet.flaws:
        return None
    apart = (stop < start) if first is None or last is None else (last - first) % 7 or 7 * (stop < start)
    days = frozenset(range(7)) if first is None else frozenset({first})
    return _time(start), _time(stop), days if listed is None else listed, int(apart) + stop // _MINUTES


def _time(minutes: int) -> time:
    return time(*divmod(minutes % _MINUTES, 60))
