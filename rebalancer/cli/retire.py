"""`rebalancer retire`: every loan home, every trace of ours out of the cluster. Also the chart's pre-delete hook.

Asks before it begins, tells on stderr what it waits for, and ends within its time-out. What is done, and in which
order, is the cluster room's.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rebalancer.cli import clusterdoors
from rebalancer.cli.exits import Code, Refused, say
from rebalancer.cli.output import put, put_json
from rebalancer.cli.requesting import Asked, request

SECONDS = 1800.0
"""The lead time of a return (20 minutes by default) and the deadline of its retries (10), one after the other."""


@request
def retire(
    asked: Asked,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it begins.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1.0, help="Wait so long.")] = SECONDS,
    alone: Annotated[bool, typer.Option("--alone", help="Bring loans home by itself where no act is alive.")] = False,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="DEPLOYMENT", help="Scale this Deployment of ours to 0 once all is home."),
    ] = None,
) -> None:
    """Bring every loan home, restore every node, and take every trace of ours out of the cluster.

    Ends with 0 only when nothing is left, the control object and the Leases included; with 3 when it is not
    finished, and says what to do. Until then nothing is lent. It can be run again at any time.
    """
    from rebalancer.adapters.cluster.retire import Retiring  # noqa: PLC0415 - the client is heavy, help is not

    held = asked.settings
    if held.kubernetes is None:
        raise Refused("the settings name no cluster (kubernetes) to retire from", Code.USAGE)
    if not yes:
        _ask(f"Retire the rebalancer from cluster {held.cluster}: recall every loan and remove every trace?")
    wanted = Retiring(asked.by, asked.why or "retire", timeout, alone, tuple(stop or ()))
    ended = clusterdoors.retire(held, wanted, say)
    if asked.json:
        put_json(ended)
    else:
        put(ended.sentence)
    raise typer.Exit(Code.OK if ended.done else Code.UNSAFE)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise Refused("say --yes where nobody can be asked", Code.USAGE)
    if not typer.confirm(question, err=True):
        raise Refused("nothing was done")
