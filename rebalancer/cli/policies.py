"""The commands `policy check` and `policy explain`: is a policy file legal, and what does it put in force.

No broker is needed. A refused file names every fault with its line and column, and ends with exit code 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rebalancer.adapters.policyfile import PolicyRefused, load_policy
from rebalancer.adapters.policywords import explain as explained
from rebalancer.cli.exits import Code, Commands
from rebalancer.cli.options import Json
from rebalancer.cli.output import put_json, put_table

app = typer.Typer(cls=Commands, no_args_is_help=True, help="Check and explain policy files.", rich_markup_mode=None)
File = Annotated[Path, typer.Argument(metavar="FILE", help="Policy file (YAML).")]


@app.command()
def check(file: File, json: Json = False) -> None:
    """Say whether a policy may be adopted; if not, all that is wrong, each with path, line and column."""
    try:
        policy = load_policy(file)
    except PolicyRefused as refused:
        if not json:
            raise
        put_json({"file": str(file), "ok": False, "problems": refused.flaws})
        raise typer.Exit(Code.FAILED) from None
    if json:
        put_json({"file": str(file), "ok": True, "problems": []})
    else:
        typer.echo(f"{file}: {len(policy.pools)} pools, nothing wrong", err=True)


@app.command()
def explain(
    file: File,
    changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the defaults.")] = False,
    json: Json = False,
) -> None:
    """Print every value in force with its default and unit."""
    lines = [line for line in explained(load_policy(file)) if line.changed or not changed]
    if json:
        put_json(lines)
        return
    rows = [(line.path, line.value, line.default, line.unit) for line in lines]
    put_table(("setting", "value", "default", "unit"), rows, empty="everything is as by default")
