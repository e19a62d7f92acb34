"""Moments in foreign spellings: RFC 3339 with any fraction, and epoch numbers in any unit.

Everything becomes aware UTC. What cannot be read is None; the caller says whether that matters.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone

UNKNOWN_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands where a fact must have a moment and the object had none: so long ago that it opens nothing."""
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,12}))?\s*(Z|z|[+-]\d\d:?\d\d)", re.ASCII
)
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which size on an epoch number counts in nano-, micro- or milliseconds: 1e11 s is the year 5138."""


def moment(value: object) -> datetime | None:
    """Read an RFC 3339 text; fractions beyond microseconds are cut, not rounded."""
    found = _RFC3339.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    fraction = int((found[7] or "").ljust(6, "0")[:6])
    try:
        year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
        # a leap second is the last one that datetime has
        local = datetime(year, month, day, hour, minute, min(second, 59), fraction, _zone(found[8]))
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def epoch(value: object) -> datetime | None:
    """Read seconds, milli-, micro- or nanoseconds since 1970, told apart by their size; text is fine too."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number) or number < 0.0:
        return None
    divisor = 1.0
    for least, unit in _UNITS:
        if number >= least:
            divisor = unit
            break
    try:
        return UNKNOWN_MOMENT + timedelta(microseconds=round(number / divisor * 1e6))
    except OverflowError:
        return None
