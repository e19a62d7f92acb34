"""Options that several commands share, and what they lead to: settings, and a store to read from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from rebalancer.adapters.store import TOPICS, RawRecord, Store
from rebalancer.adapters.streams.reader import follow, read_to_end
from rebalancer.adapters.tapfolder import follow_folder, read_folder
from rebalancer.cli.exits import Code, Refused
from rebalancer.settings import Settings, load_settings

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


def settings(config: Path | None, kafka: str = "", cluster: str = "") -> Settings:
    """The settings in force; wrong ones end the command as wrong usage, with every fault named."""
    try:
        return load_settings(config, kafka=kafka, cluster=cluster)
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

    def load(self, topics: Collection[str] = TOPICS) -> Store:
        """A store with everything that lies on these topics now."""
        return asyncio.run(self.aload(topics))

    async def aload(self, topics: Collection[str] = TOPICS) -> Store:
        """As :meth:`load`, inside a running loop."""
        if self.folder is not None:
            return Store().feed_all(read_folder(self.folder, topics))
        held = self._held
        store = Store(cluster=held.cluster)
        async for record in read_to_end(held.kafka, topics):
            store.feed(record)
        return store

    def follow(self, topics: Collection[str]) -> AsyncIterator[RawRecord]:
        """What comes from now on, until the caller stops."""
        if self.folder is not None:
            return follow_folder(self.folder, topics)
        return follow(self._held.kafka, topics)

    @property
    def _held(self) -> Settings:
        if self.settings is None:
            raise Refused("neither a folder nor Kafka was named", Code.USAGE)
        return self.settings


def source(folder: Path | None, config: Path | None, kafka: str, cluster: str) -> Source:
    """The source that the options name."""
    return Source(folder, None if folder is not None else settings(config, kafka, cluster))
