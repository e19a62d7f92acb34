"""How answers are written: a table or JSON on stdout, never both.

JSON keys are the fields' own names in their order, moments are RFC 3339 in UTC, durations seconds; keys are
only ever added. Tables are for people and may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

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


def put_json(value: Any, *, line: bool = False) -> None:
    """A value as JSON on stdout."""
    typer.echo(encoded(value, line=line))


def put(text: str) -> None:
    """A line of data on stdout."""
    typer.echo(text)


def put_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "nothing") -> None:
    """Rows as a table on stdout; columns that begin with ``#`` are numbers. Never cut off when piped."""
    if not rows:
        typer.echo(empty, err=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        wraps = column in ("sentence", "why", "idle GPU-hours by blocker")
        table.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            no_wrap=not wraps,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = console.width if console.is_terminal else 200
    console.print(table)
