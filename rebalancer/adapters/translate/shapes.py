"""From a validated wire model to the core's dataclass: constructors compiled once from the core's type hints.

The models have judged the input already; here nothing is checked twice. What remains is to make enumerations
and nested dataclasses. A word that the core's enumeration does not know raises ValueError.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from rebalancer.core.instructions import PoolMemory

Convert: TypeAlias = Callable[[Any], Any]


@cache
def constructor(kind: type) -> Callable[..., Any]:
    """A function (model, **given) -> instance of ``kind``; ``given`` are fields that the model has not."""
    hints = get_type_hints(kind)
    names = tuple(entry.name for entry in fields(kind))
    nested = [(name, convert) for name in names if (convert := _field(kind, name, hints[name])) is not None]

    def build(model: BaseModel, **given: Any) -> Any:
        values = model.__dict__
        chosen = {name: values[name] for name in names if name in values}
        for name, convert in nested:
            if name in chosen:
                chosen[name] = convert(chosen[name])
        return kind(**chosen, **given)

    return build


def default_of(entry: Field[Any]) -> Any:
    """A dataclass field's default, made if need be; MISSING if it must be given."""
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def _field(kind: type, name: str, hint: Any) -> Convert | None:
    if kind is PoolMemory and name == "history":
        return _gaps
    return _convert(hint)


def _gaps(history: tuple[float | None, ...]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in history)


def _convert(hint: Any) -> Convert | None:
    """What turns a validated value into the core's, or None where it is already that."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _union(get_args(hint))
    if origin is tuple:
        inner = _convert(get_args(hint)[0])
        return None if inner is None else _each(inner)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner = _convert(get_args(hint)[1])
        return None if inner is None else _values(inner)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return constructor(hint) if is_dataclass(hint) and isinstance(hint, type) else None


def _each(inner: Convert) -> Convert:
    return lambda found: tuple([inner(value) for value in found])


def _values(inner: Convert) -> Convert:
    return lambda found: {key: inner(value) for key, value in found.items()}


def _union(members: tuple[Any, ...]) -> Convert | None:
    real = [member for member in members if member is not type(None)]
    converts = [convert for convert in map(_convert, real) if convert is not None]
    if not converts:
        return None
    if len(real) == 1:
        only = converts[0]
        return lambda value: None if value is None else only(value)
    by_kind = {tag(member): constructor(member) for member in real}
    return lambda model: by_kind[model.kind](model)


def tag(kind: type) -> str:
    """The value of a dataclass's ``kind`` field, which is a Literal of one word."""
    hint = get_type_hints(kind)["kind"]
    if get_origin(hint) is not Literal:
        raise TypeError(f"{kind.__name__} has no tag")
    return str(get_args(hint)[0])
