"""The commands `topics plan`, `topics apply` and `topics acl`: the one list beside what a broker has.

`plan` ends with 3 when something would change, so that a pipeline can tell; `apply` ends with 3, having changed
nothing, when a partition count differs. Permissions are printed, never granted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rebalancer.cli import doors
from rebalancer.cli.exits import HELP, Code, Commands, say
from rebalancer.cli.options import Config, Json, Kafka, settings
from rebalancer.cli.output import put, put_json

if TYPE_CHECKING:
    from rebalancer.adapters.streams.admin import Change

app = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Compare, make and secure the topics.", rich_markup_mode=None, epilog=HELP
)


@app.command()
def plan(*, json: Json = False, config: Config = None, kafka: Kafka = "") -> None:
    """Say what `apply` would change; exit code 3 if anything would."""
    changes = asyncio.run(doors.compare_topics(settings(config, kafka)))
    tell(changes, json=json, empty="every topic is as it should be")
    raise typer.Exit(Code.UNSAFE if differing(changes) else Code.OK)


@app.command()
def apply(
    *,
    replication: Annotated[
        int | None, typer.Option("--replication", min=1, max=15, help="Copies of new topics; by default the broker's.")
    ] = None,
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
) -> None:
    """Create what is missing and set what differs. Partition counts are never changed: then nothing is."""
    changes = asyncio.run(doors.apply_topics(settings(config, kafka), replication))
    tell(changes, json=json, empty="every topic was as it should be")


@app.command()
def acl(
    role: Annotated[str, typer.Argument(help="collect, telemetry, decide, act, subscriber or auditor.")],
    *,
    principal: Annotated[str, typer.Option("--principal", help="Default: User:gpu-rebalancer-ROLE.")] = "",
    source: Annotated[list[str] | None, typer.Option("--source", help="A topic of others that the role reads.")] = None,
    json: Json = False,
) -> None:
    """Print the least that a role needs, as lines for Kafka's own tool."""
    found = doors.permissions(role, principal, tuple(source or ()))
    if json:
        put_json([one.as_json() for one in found])
        return
    for one in found:
        put(one.line)


def differing(changes: list[Change]) -> list[Change]:
    """Those that are not as they should be."""
    return [change for change in changes if change.action != "nothing"]


def tell(changes: list[Change], *, json: bool, empty: str) -> None:
    """What differs, a line each; JSON has every topic."""
    if json:
        put_json([as_json(change) for change in changes])
        return
    for change in differing(changes):
        put(change.sentence)
    if not differing(changes):
        say(empty)


def as_json(change: Change) -> dict[str, Any]:
    """A change by stable key."""
    wanted = {name: {"is": was, "should": to} for name, (was, to) in change.settings.items()}
    return {"topic": change.topic.name, "action": change.action, "settings": wanted, "why": change.why}
