"""How people write single values in files and options: durations, shares, taints, zones, choices.

Each parser takes text and gives a value, or raises ValueError with what would have been right. Nothing here
guesses a unit: `20` is no duration.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rebalancer.core.facts import Taint

E = TypeVar("E", bound=StrEnum)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_LENGTHS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EFFECTS = ("NoSchedule", "PreferNoSchedule")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def duration(text: str) -> timedelta:
    """``20m``, ``1h30m``, ``90s``, ``250ms``, ``2d``; a number without a unit is refused."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f"{text!r} is no duration; write for example 90s, 20m, 1h30m or 2d")
    try:
        return timedelta(seconds=sum(float(number) * _LENGTHS[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than can be counted") from None


def spoken(length: timedelta) -> str:
    """A duration as :func:`duration` reads it: the largest units first, nothing that is zero."""
    left, parts = length.total_seconds(), []
    for unit in ("d", "h", "m"):
        whole, left = divmod(left, _LENGTHS[unit])
        parts += [f"{int(whole)}{unit}"] if whole else []
    return "".join(parts) + (f"{left:g}s" if left or not parts else "")


def number(text: str) -> float:
    """A finite decimal number; ``70%`` is 0.7."""
    share = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    return value / 100 if share else value


def integer(text: str) -> int:
    """A whole number, digits only."""
    if not re.fullmatch(r"[+-]?\d{1,15}", text.strip()):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def boolean(text: str) -> bool:
    """``true`` or ``false`` (also yes/no, on/off)."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def word(text: str) -> str:
    """Any text that is not empty."""
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def choice(kind: type[E]) -> Callable[[str], E]:
    """A parser for the values of an enum."""
    allowed = [str(member) for member in kind]

    def parse(text: str) -> E:
        if text.lower() not in allowed:
            raise ValueError(f"{text!r} is none of {', '.join(allowed)}")
        return kind(text.lower())

    return parse


def taint(text: str) -> Taint:
    """``key=value:Effect`` or ``key:Effect``. NoExecute is refused: it would kill what still runs there."""
    found = re.fullmatch(r"([^=:\s]+)(?:=([^=:\s]*))?:(\w+)", text.strip())
    if not found:
        raise ValueError(f"{text!r} is no taint; write key=value:NoSchedule")
    if found[3] not in _EFFECTS:
        raise ValueError(f"effect {found[3]!r} must be {' or '.join(_EFFECTS)}")
    return Taint(found[1], found[2] or "", found[3])


def zone(text: str) -> ZoneInfo:
    """An IANA zone that exists; ``UTC`` must be said, it is never assumed."""
    try:
        return ZoneInfo(text.strip())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = get_close_matches(text.strip(), sorted(available_timezones()), n=1)
        hint = f", did you mean {near[0]}?" if near else "; write an IANA name such as Europe/Berlin, or UTC"
        raise ValueError(f"unknown zone {text!r}{hint}") from None
