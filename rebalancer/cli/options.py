"""Options that several commands share, and what they lead to: settings, and a store to read from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from rebalancer.cli import doors
from rebalancer.cli.exits import Code, Refused
from rebalancer.settings import Settings, load_settings

if TYPE_CHECKING:
    from rebalancer.adapters.store import RawRecord, Store

Json = Annotated[bool, typer.Option("--json", help="Answer as JSON on stdout.")]
From = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Read a folder tapped by `demo --out DIR`, not Kafka.")
]
Kafka = Annotated[str, typer.Option("--kafka", metavar="HOST:PORT,...", help="Brokers, instead of the settings'.")]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME", help="Cluster, instead of the settings'.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings (YAML); variables GPU_REBALANCER_... come first."),
]


def settings(config: Path | None, kafka: str = "", cluster: str = "", roles: str = "") -> Settings:
    """The settings in force; wrong ones end the command as wrong usage, with every fault named."""
    try:
        return load_settings(config, kafka=kafka, cluster=cluster, roles=roles)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise Refused("settings refused: " + "; ".join(faults), Code.USAGE) from None
    except ValueError as error:
        raise Refused(f"settings refused: {error}", Code.USAGE) from None


@dataclass(frozen=True, slots=True)
class Source:
    """Where a reading command reads: a tapped folder, or the topics of a cluster."""

    folder: Path | None
    settings: Settings | None

    def load(self, *parts: str) -> Store:
        """A store with everything that lies on the topics of these parts (all if none is named) now."""
        return asyncio.run(self.aload(*parts))

    async def aload(self, *parts: str) -> Store:
        """As :meth:`load`, inside a running loop."""
        if self.folder is not None or self.settings is None:
            return doors.read_store(self.folder or Path(), parts)
        return await doors.fetch_store(self.settings, parts)

    def follow(self, *parts: str) -> AsyncIterator[RawRecord]:
        """What comes from now on, until the caller stops."""
        return doors.follow(self.folder, self.settings, parts)


def source(folder: Path | None, config: Path | None, kafka: str, cluster: str) -> Source:
    """The source that the options name."""
    return Source(folder, None if folder is not None else settings(config, kafka, cluster))
