"""What all commands that ask for something have in common: the settings, who asks, why, and how to answer.

A command names its own options only and is handed the rest as one value. Nothing is asked of anybody here.
"""

from __future__ import annotations

import getpass
import inspect
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from rebalancer.cli.options import Cluster, Config, Json, Kafka, settings
from rebalancer.settings import Settings

P = ParamSpec("P")
Why = Annotated[str, typer.Option("--why", help="Told to everyone who asks later.")]
By = Annotated[str, typer.Option("--by", help="Who asks; by default user@host.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks for something, why, of which installation, and whether the answer is to be JSON."""

    settings: Settings
    by: str
    why: str
    json: bool


def request(command: Callable[Concatenate[Asked, P], None]) -> Callable[..., None]:
    """The command as typed: its own options, then the shared ones."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = list(inspect.signature(_shared, eval_str=True).parameters.values())

    @wraps(command)
    def asks(**given: Any) -> None:
        asked = _shared(**{one.name: given.pop(one.name) for one in shared})
        command(asked, **given)  # type: ignore[call-arg]  # which options there are, typer has checked

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    asks.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    asks.__annotations__ = {one.name: one.annotation for one in parameters}
    return asks


def whoami() -> str:
    """user@host, for the audit."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _shared(
    *, why: Why = "", by: By = "", json: Json = False, config: Config = None, kafka: Kafka = "", cluster: Cluster = ""
) -> Asked:
    return Asked(settings(config, kafka, cluster), by or whoami(), why, json)
