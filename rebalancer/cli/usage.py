"""The command that shows the invoice: who used how much of which loan, and where each pool's GPUs were.

From the usage topic or a tapped folder. It shows what was told and never reckons anew.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.adapters import words
from rebalancer.cli import doors
from rebalancer.cli.exits import Code, Refused
from rebalancer.cli.options import Cluster, Config, From, Json, Kafka, settings
from rebalancer.cli.output import put_json, put_table

if TYPE_CHECKING:
    from rebalancer.adapters.invoice import By, Position

CHOICES: dict[str, By] = {"loan": "loan", "gang": "gang", "namespace": "namespace", "pool": "pool"}
HOUR = 3600.0


def usage(
    *,
    by: Annotated[str, typer.Option("--by", metavar="|".join(CHOICES), help="Whose sums.")] = "gang",
    since: Annotated[str, typer.Option("--since", metavar="MOMENT", help="Hours from then on (UTC if no zone).")] = "",
    until: Annotated[str, typer.Option("--until", metavar="MOMENT", help="Hours that begin before then.")] = "",
    from_: From = None,
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Show the invoice: GPU-hours by gang, loan, namespace, or pool (capacity, own, lent, transit, idle, unhealthy)."""
    if by not in CHOICES:
        raise Refused(f"--by: {by!r} is none of {', '.join(CHOICES)}", Code.USAGE)
    span = (_moment("--since", since), _moment("--until", until))
    held = None if from_ is not None else settings(config, kafka, cluster)
    found = doors.invoice(from_, held, CHOICES[by], *span)
    if json:
        put_json(found)
        return
    fields = list(found[0].gpu_seconds) if found else []
    columns = (by, "from", "until", *(f"#{field}" for field in fields))
    put_table(columns, [_row(one) for one in found], empty="no usage has been told for these hours")


def _row(one: Position) -> tuple[str, ...]:
    amounts = (f"{spent / HOUR:.2f}" for spent in one.gpu_seconds.values())
    return (one.name or "(unknown)", words.moment(one.since), words.moment(one.until), *amounts)


def _moment(option: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        told = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{option}: {text!r} is no moment such as 2026-03-02 or 2026-03-02T21:00Z", Code.USAGE) from None
    return told.astimezone(UTC) if told.tzinfo is not None else told.replace(tzinfo=UTC)
