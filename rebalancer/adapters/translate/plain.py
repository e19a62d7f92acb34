"""JSON bytes of the core's dataclasses, in the two ways that are needed.

``internal`` is the fast way: orjson's own reading of dataclasses, for objects without a because. ``public``
walks dataclasses itself, to add the sentence to each because and to keep numbers that JSON cannot hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from pydantic import TypeAdapter

from rebalancer.core.reasons import Because, sentence

_WALK = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
_DURATION = TypeAdapter(timedelta)
_FIELDS: dict[type, tuple[str, ...]] = {}
"""Names of a dataclass's fields, looked up once; as many entries as there are dataclasses."""


def internal(value: Any) -> bytes:
    """Fields as they are; a float that is not a number becomes null (device readings: not reported)."""
    return orjson.dumps(value, default=_other, option=orjson.OPT_UTC_Z)


def public(value: Any) -> bytes:
    """As ``internal``, each because with its sentence; non-finite ``numbers`` become text."""
    return orjson.dumps(value, default=_public, option=_WALK)


def exact(value: Any) -> bytes:
    """For the journal: every float comes back bit for bit, also NaN and infinities (as text)."""
    return orjson.dumps(value, default=_exact, option=_WALK)


def shallow(value: Any, *without: str) -> bytes:
    """``public`` of a dataclass, less the fields that the envelope holds."""
    return public({name: getattr(value, name) for name in _names(type(value)) if name not in without})


def _names(kind: Any) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(entry.name for entry in fields(kind))
    return _FIELDS[kind]


def _other(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, timedelta):
        return _DURATION.dump_python(value, mode="json")
    if isinstance(value, ZoneInfo):
        return value.key
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no place in a record")


def _public(value: Any) -> Any:
    if not is_dataclass(value):
        return _other(value)
    told = {name: getattr(value, name) for name in _names(type(value))}
    if "numbers" in told:
        told["numbers"] = {key: _readable(number) for key, number in told["numbers"].items()}
    if isinstance(value, Because):
        told["sentence"] = sentence(value)
    return told


def _exact(value: Any) -> Any:
    if not is_dataclass(value):
        return _other(value)
    return {name: _spelled(getattr(value, name)) for name in _names(type(value))}


def _readable(number: Any) -> Any:
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number


def _spelled(value: Any) -> Any:
    """Floats that JSON lacks, by the names that pydantic reads back; looks into tuples and maps of floats."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NAMES[str(value)]
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        return [_spelled(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _spelled(each) if isinstance(each, float) else each for key, each in value.items()}
    return value


_NAMES: Mapping[str, str] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
