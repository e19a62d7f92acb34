"""How our objects are spelled as JSON for people and scripts, on the command line and over HTTP alike.

Keys are the fields' own names in their order, moments are RFC 3339 in UTC, durations seconds; keys are only ever
added. Records on topics are the contract's and never go through here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from rebalancer.core.reasons import Because, sentence

OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


SPELLINGS: Mapping[type, Callable[[Any], Any]] = {
    timedelta: timedelta.total_seconds,
    ZoneInfo: lambda zone: zone.key,
    frozenset: sorted,
    set: sorted,
    Mapping: dict,
}


def plain(value: Any) -> Any:
    """What orjson does not know: our dataclasses (a because gets its sentence), durations, zones, sets."""
    if isinstance(value, Because):
        return {"reason": value.reason, "numbers": dict(value.numbers), "sentence": sentence(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    for kind, spell in SPELLINGS.items():
        if isinstance(value, kind):
            return spell(value)
    return str(value)


def encoded(value: Any, *, line: bool = False) -> str:
    """A value as JSON text, indented, or on one line."""
    options = OPTIONS & ~orjson.OPT_INDENT_2 if line else OPTIONS
    return orjson.dumps(value, default=plain, option=options).decode()
