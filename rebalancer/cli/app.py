"""The commands, put together. What each does stands in its own file."""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version as installed
from typing import Annotated

import typer

from rebalancer.cli import asking, brakes, days, doors, policies, preflight, reading, retire, topics, usage
from rebalancer.cli.exits import HELP, Code, Commands, Refused
from rebalancer.cli.options import Cluster, Config, Json, Kafka, settings
from rebalancer.cli.output import put, put_json

DISTRIBUTION = "gpu-pool-rebalancer"

app = typer.Typer(
    cls=Commands,
    help="Lends idle inference GPU nodes to training, takes them back by whole gangs, and explains every decision.",
    epilog=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    days.demo,
    days.simulate,
    days.replay,
    reading.status,
    reading.pools,
    reading.loans,
    reading.decisions,
    usage.usage,
    asking.why,
    brakes.pause,
    brakes.resume,
    brakes.recall,
    brakes.approve,
    brakes.mode,
    brakes.limit,
    preflight.preflight,
    retire.retire,
):
    app.command(epilog=HELP)(command)
app.add_typer(policies.app, name="policy")
app.add_typer(topics.app, name="topics")


@app.command(epilog=HELP)
def run(
    *,
    roles: Annotated[
        str, typer.Option("--roles", metavar="NAME,...", help="collect, telemetry, decide, act; all by default.")
    ] = "",
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Run the roles until told to stop (SIGTERM, SIGINT)."""
    held = settings(config, kafka, cluster, roles)
    if not held.policy.is_file():
        raise Refused(f"{held.policy} is no file; name the policy in the settings (policy)", Code.USAGE)
    asyncio.run(doors.run(held))


@app.command(epilog=HELP)
def version(*, json: Json = False) -> None:
    """Say which version this is."""
    told = {"version": installed(DISTRIBUTION), "python": platform.python_version(), "contract": "v1"}
    if json:
        put_json(told)
    else:
        put(f"{DISTRIBUTION} {told['version']} (Python {told['python']}, topics {told['contract']})")
