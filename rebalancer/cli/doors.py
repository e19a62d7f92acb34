"""The few doors through which commands reach the rest: `bootstrap` for days and roles, streams, the store.

Everything heavy is imported on use, so that `--help`, `version` and `policy check` start at once. Nothing is done
here but passing on.
"""

# ruff: noqa: PLC0415 - that imports happen on use is what this file is for

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.cli.exits import Code, Refused

if TYPE_CHECKING:
    from rebalancer.adapters.invoice import By, Position
    from rebalancer.adapters.store import RawRecord, Store
    from rebalancer.adapters.streams.acl import Acl
    from rebalancer.adapters.streams.admin import Change
    from rebalancer.core.facts import Control
    from rebalancer.core.stimuli import Approved, RecallRequested
    from rebalancer.settings import Settings
    from rebalancer.simulate.stepview import DemoOptions, DemoResult, Replayed, StepView
    from rebalancer.wire.envelope import Record


def demo(options: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
    """A simulated day through Kafka: a view a step, and last the result."""
    from rebalancer import bootstrap

    return bootstrap.demo(options)


async def run(settings: Settings) -> None:
    """The roles of the settings until they are told to stop; ConnectionError names what could not be reached."""
    from rebalancer import bootstrap

    bootstrap.unhindered()
    await bootstrap.run(settings)


def replay(path: Path) -> Replayed:
    """Folds a journal (file or tapped folder) and compares the plans with those recorded."""
    from rebalancer import bootstrap

    return bootstrap.replay(path)


def read_store(folder: Path, parts: tuple[str, ...]) -> Store:
    """A store of these parts from a tapped folder."""
    from rebalancer.adapters.store import Store, topics_of
    from rebalancer.adapters.tapfolder import read_folder

    return Store().feed_all(read_folder(folder, topics_of(parts)))


async def fetch_store(settings: Settings, parts: tuple[str, ...]) -> Store:
    """A store of these parts from Kafka, as it is now."""
    from rebalancer.adapters.store import Store, topics_of
    from rebalancer.adapters.streams.reader import read_to_end

    store = Store(cluster=settings.cluster)
    async for record in read_to_end(settings.kafka, topics_of(parts)):
        store.feed(record)
    return store


def invoice(
    folder: Path | None, settings: Settings | None, by: By, since: datetime | None, until: datetime | None
) -> list[Position]:
    """What was told of usage, added up; from a tapped folder or else from Kafka."""
    from rebalancer.adapters.invoice import charges, positions
    from rebalancer.adapters.tapfolder import read_folder
    from rebalancer.wire.v1 import USAGE_LOAN

    if folder is not None or settings is None:
        return positions(charges(read_folder(folder or Path(), (USAGE_LOAN,))), by, since, until)
    records = asyncio.run(_appended(settings, USAGE_LOAN, since))
    return positions(charges(records, settings.cluster), by, since, until)


async def _appended(settings: Settings, topic: str, since: datetime | None) -> list[RawRecord]:
    from rebalancer.adapters.streams.reader import read_to_end

    return [record async for record in read_to_end(settings.kafka, (topic,), since)]


def follow(folder: Path | None, settings: Settings | None, parts: tuple[str, ...]) -> AsyncIterator[RawRecord]:
    """What comes from now on, from the folder or else from Kafka, until the caller stops."""
    from rebalancer.adapters.store import topics_of
    from rebalancer.adapters.streams import reader
    from rebalancer.adapters.tapfolder import follow_folder

    if folder is not None or settings is None:
        return follow_folder(folder or Path(), topics_of(parts))
    return reader.follow(settings.kafka, topics_of(parts))


async def compare_topics(settings: Settings) -> list[Change]:
    """What `topics apply` would change."""
    from rebalancer.adapters.streams import admin

    return await admin.plan(settings.kafka, partitions=settings.partitions)


async def apply_topics(settings: Settings, replication: int | None) -> list[Change]:
    """Create and set what differs; Refused, with nothing changed, where a partition count would have to."""
    from rebalancer.adapters.streams import admin

    try:
        wanted = admin.BROKER_DEFAULT if replication is None else replication
        return await admin.apply(settings.kafka, partitions=settings.partitions, replication=wanted)
    except admin.TopicsRefused as refused:
        raise Refused(f"nothing was changed: {refused}", Code.UNSAFE) from None


def permissions(role: str, principal: str, sources: tuple[str, ...]) -> list[Acl]:
    """The least that a role needs."""
    from rebalancer.adapters.streams.acl import NEEDS, acl

    if role not in NEEDS:
        raise Refused(f"{role!r} is none of {', '.join(NEEDS)}", Code.USAGE)
    return acl(next(one for one in NEEDS if one == role), principal, sources=sources)


def brake(settings: Settings, control: Control, now: datetime) -> Record:
    """Publish the brakes' state; returns what the broker has acknowledged."""
    from rebalancer.adapters.translate import encode_fact

    return _published(settings, encode_fact(control, settings.cluster, now))


def ask(settings: Settings, request: Approved | RecallRequested) -> Record:
    """Publish a request; returns what the broker has acknowledged."""
    from rebalancer.adapters.translate import encode_request

    return _published(settings, encode_request(request, settings.cluster))


def _published(settings: Settings, record: Record) -> Record:
    from rebalancer.adapters.streams.reader import publish

    asyncio.run(publish(settings.kafka, [record], settings.partition))
    return record
