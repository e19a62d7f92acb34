"""The policy as people write it: a YAML file in, the core's policy out, or everything that is wrong with it.

Keys are the policy's own field names; durations carry their unit, zones must exist, unknown keys are refused.
A file is adopted whole or not at all: there is no default for something misspelt. What a legal policy is,
only `core.policy.problems` says; here its answers get the line they belong to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from rebalancer.adapters import scalars
from rebalancer.adapters.windownodes import window
from rebalancer.adapters.yamlnodes import Flaw, Sheet, is_null
from rebalancer.core.facts import Taint
from rebalancer.core.policy import Acting, Activities, Borrowing, Pace, Policy, PoolPolicy, Signals, problems
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window

S = TypeVar("S")
SECTIONS: Mapping[str, type[Any]] = {
    "activities": Activities,
    "pace": Pace,
    "borrowing": Borrowing,
    "signals": Signals,
    "acting": Acting,
}
LISTS = ("protected_namespaces", "models")
Read = Callable[[Sheet, yaml.Node, str], Any]


class PolicyRefused(ValueError):  # noqa: N818 - says what happened; callers read it in sentences
    """A policy that cannot be adopted. ``flaws`` are all that is wrong, in the order of the file."""

    def __init__(self, source: str, flaws: tuple[Flaw, ...]) -> None:
        super().__init__("\n".join(f"{source}:{flaw}" for flaw in flaws))
        self.source = source
        self.flaws = flaws


def load_policy(path: Path) -> Policy:
    """Read and check a policy file.

    Raises:
        PolicyRefused: with every problem, each with its path, line and column.
        OSError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyRefused(str(path), (Flaw("", 1, 1, f"not UTF-8: {error.reason}"),)) from None
    return parse_policy(text, str(path))


def parse_policy(text: str, source: str = "policy") -> Policy:
    """As :func:`load_policy`, from text; ``source`` is what messages call it."""
    sheet = Sheet(text)
    policy = _policy(sheet)
    if policy is not None and not sheet.flaws:
        for problem in problems(policy):
            sheet.blame(problem.path, problem.message)
    if policy is None or sheet.flaws:
        raise PolicyRefused(source, tuple(sorted(sheet.flaws, key=lambda flaw: (flaw.line, flaw.column))))
    return policy


def digest(policy_text: bytes) -> str:
    """Names a policy: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(policy_text).hexdigest()[:16]


def _policy(sheet: Sheet) -> Policy | None:
    if sheet.root is None:
        if not sheet.flaws:
            sheet.blame("", "the file is empty; at least one pool is needed")
        return None
    found = sheet.fields(sheet.root, "", ("pools", *SECTIONS, *LISTS))
    given: dict[str, Any] = {"pools": {}}
    for key, node in found.items():
        if key == "pools":
            given[key] = {name: _pool(sheet, below, name) for name, below in sheet.mapping(node, key).items()}
        elif key in SECTIONS:
            given[key] = _section(sheet, SECTIONS[key], node, key)
        else:
            given[key] = _many(scalars.word)(sheet, node, key)
    if "pools" not in found:
        sheet.blame("pools", "at least one pool is needed")
    return None if sheet.flaws else Policy(**given)


def _pool(sheet: Sheet, node: yaml.Node, name: str) -> PoolPolicy | None:
    path = f"pools.{name}"
    read = _values(sheet, PoolPolicy, node, path, without=("name",))
    missing = [key for key in ("model", "owner") if not sheet.stands(f"{path}.{key}")]
    for key in missing:
        sheet.blame(f"{path}.{key}", "is needed")
    return None if sheet.flaws else PoolPolicy(name=name, **read)


def _section(sheet: Sheet, kind: type[S], node: yaml.Node, path: str) -> S | None:
    read = {} if is_null(node) else _values(sheet, kind, node, path)
    return None if sheet.flaws else kind(**read)


def _values(sheet: Sheet, kind: type[Any], node: yaml.Node, path: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.name not in without]
    found = sheet.fields(node, path, known)
    return {key: READERS[hints[key]](sheet, below, f"{path}.{key}") for key, below in found.items()}


def _one(parse: Callable[[str], Any]) -> Read:
    return lambda sheet, node, path: sheet.value(node, path, parse)


def _perhaps(parse: Callable[[str], Any]) -> Read:
    return lambda sheet, node, path: None if is_null(node) else sheet.value(node, path, parse)


def _many(parse: Callable[[str], Any]) -> Read:
    def read(sheet: Sheet, node: yaml.Node, path: str) -> tuple[Any, ...]:
        return tuple(sheet.value(item, at, parse) for at, item in sheet.items(node, path))

    return read


def _windows(sheet: Sheet, node: yaml.Node, path: str) -> tuple[Window | None, ...]:
    entries = [(path + ".0", node)] if isinstance(node, yaml.MappingNode) else list(sheet.items(node, path))
    return tuple(window(sheet, item, at) for at, item in entries)


READERS: Mapping[Any, Read] = {
    timedelta: _one(scalars.duration),
    float: _one(scalars.number),
    int: _one(scalars.integer),
    bool: _one(scalars.boolean),
    str: _one(str.strip),
    Mode: _one(scalars.choice(Mode)),
    OwnerClass: _one(scalars.choice(OwnerClass)),
    float | None: _perhaps(scalars.number),
    Taint | None: _perhaps(scalars.taint),
    tuple[OwnerClass, ...]: _many(scalars.choice(OwnerClass)),
    tuple[Window, ...]: _windows,
}
"""How each type of field is read; a field of another type fails the tests, not a user."""
