"""Lending windows: half-open spans of local time in an IANA zone, right on DST nights.

(to be completed)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Window:
    """[start, end) local time, on the weekdays it starts (0 = Monday), ``end_days`` days after the start day.

    ``end`` 06:00 with ``start`` 22:00 has ``end_days`` 1; Friday 20:00 to Monday 07:00 has 3. ``except_dates``
    are local start dates on which it does not open. ``always`` ignores all else.
    """

    name: str
    zone: ZoneInfo
    start: time = time(0)
    end: time = time(0)
    days: frozenset[int] = frozenset(range(7))
    end_days: int = 0
    except_dates: frozenset[date] = frozenset()
    always: bool = False
