"""The command `why`: one sentence on stdout, or all that it was made from as JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from rebalancer.adapters.why import why as explain
from rebalancer.cli.options import Cluster, Config, From, Json, Kafka, source
from rebalancer.cli.output import put, put_json


def why(
    *,
    target: Annotated[str, typer.Argument(help="Decision, pod ([namespace/]name or uid), gang, node or loan.")],
    from_: From = None,
    json: Json = False,
    config: Config = None,
    kafka: Kafka = "",
    cluster: Cluster = "",
) -> None:
    """Say in one sentence why it happened, for whom, what was rejected and when one may borrow again."""
    story = explain(source(from_, config, kafka, cluster).load(), target)
    if json:
        put_json(story)
    else:
        put(story.sentence)
