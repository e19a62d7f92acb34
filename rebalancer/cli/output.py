"""How answers are written: a table or JSON on stdout, never both.

JSON is spelled by `adapters.spelling`. Tables are for people and may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from rebalancer.adapters.spelling import encoded


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
