"""The example client of the topics, as it lies there: loaded as a script would load it, never as a part of ours."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from rebalancer.wire.envelope import Record

FOLDER = Path(__file__).parents[2] / "topics" / "client"


@cache
def part(name: str) -> ModuleType:
    """One of its files as a module."""
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def imported() -> set[str]:
    """Everything that its files import, by first word."""
    found: set[str] = set()
    for path in FOLDER.glob("*.py"):
        for item in ast.walk(ast.parse(path.read_text())):
            if isinstance(item, ast.Import):
                found |= {name.name.partition(".")[0] for name in item.names}
            elif isinstance(item, ast.ImportFrom):
                found.add((item.module or "").partition(".")[0])
    return found


def messages(records: Iterable[Record]) -> list[Any]:
    """Records as it has them, by topic in the order written."""
    message = part("contract").Message
    told = [
        message(
            one.topic, 0, number, one.key.decode(), {name: raw.decode() for name, raw in one.headers},
            None if one.value is None else orjson.loads(one.value),
        )
        for number, one in enumerate(records)
    ]  # fmt: skip
    return sorted(told, key=lambda one: (one.topic, one.offset))


def differences_of(records: Iterable[Record]) -> list[str]:
    """Where its invoice differs from the usage records among these."""
    history = part("history").History(messages(records))
    found: list[str] = part("invoice").differences(history)
    return found
