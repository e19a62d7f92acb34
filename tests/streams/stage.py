"""Roles on a real broker of a test's own: topics made, workers started as a test wants them, topics read back."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.admin import apply
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.loader import Came, read_to_end
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.adapters.translate import encode_fact, encode_snapshot
from rebalancer.core.stimuli import SnapshotBegan, SnapshotEnded
from rebalancer.wire.envelope import Record
from tests.servers.kafka import KafkaServer
from tests.streams.things import CLUSTER, POLICY, node

PARTITIONS = 4


class Stage:
    """One broker, our topics on it, and a publisher for the test's own records."""

    def __init__(self, server: KafkaServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.kafka = KafkaSettings(bootstrap=server.bootstrap)
        self.publisher = Publisher(self.kafka, PARTITIONS)
        self.partition = self.publisher.partition(CLUSTER)
        self.group = uuid.uuid4().hex[:8]

    @asynccontextmanager
    async def decide(self, name: str = "d0", group: str = "", partitions: int = 1) -> AsyncIterator[Decide]:
        """A worker that owns at least so many partitions and has loaded them."""
        settings = AppSettings(f"decide-{group or self.group}", self.kafka, data_dir=self.folder / name)
        async with Publisher(self.kafka, PARTITIONS) as publisher:
            role = Decide(settings, {CLUSTER: (POLICY, "test")}, publisher, Metrics(), name=name)
            await role.start()
            try:
                await role.ready(40)
                await until(lambda: len(role.desks) >= partitions)
                yield role
            finally:
                await role.stop()

    @asynccontextmanager
    async def telemetry(self, name: str = "t0") -> AsyncIterator[Telemetry]:
        settings = AppSettings(f"telemetry-{self.group}", self.kafka, data_dir=self.folder / name)
        async with Publisher(self.kafka, PARTITIONS) as publisher:
            role = Telemetry(settings, {CLUSTER: POLICY}, publisher, Metrics(), name)
            await role.start()
            try:
                await role.ready(40)
                yield role
            finally:
                await role.stop()

    async def send(self, *records: Record) -> None:
        await self.publisher.send(records, CLUSTER)

    async def nodes(self, *uids: str) -> None:
        """A complete list of nodes and of no pods."""
        now = datetime.now(UTC)
        facts = [encode_fact(node(uid, now), CLUSTER, now) for uid in uids]
        pods = (SnapshotBegan("pod", "1", now), SnapshotEnded("pod", "1", 0, now))
        marks = [encode_snapshot(mark, CLUSTER) for mark in (*pods, SnapshotBegan("node", "1", now))]
        await self.send(*marks, *facts, encode_snapshot(SnapshotEnded("node", "1", len(facts), now), CLUSTER))

    async def lying(self, topic: str, partition: int | None = None) -> list[Came]:
        """All records of the cluster's partition of a topic, as they lie there now."""
        place = self.partition if partition is None else partition
        return list((await read_to_end(self.kafka, [topic], place)).records[topic])


@asynccontextmanager
async def staged(server: KafkaServer, folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(server, folder)
    await apply(stage.kafka)
    async with stage.publisher:
        yield stage


async def until(holds: Callable[[], Any], within: float = 20.0) -> None:
    """Wait for a condition; fails with TimeoutError."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - any condition, wherever it lives
            await asyncio.sleep(0.02)


async def eventually(ask: Callable[[], Awaitable[Any]], within: float = 20.0) -> Any:
    """Wait for an awaited answer that is true, and return it."""
    async with asyncio.timeout(within):
        while not (found := await ask()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
        return found


def known(role: Decide) -> set[str]:
    """Uids of the nodes that the cluster's engine knows."""
    decider = role.decider(CLUSTER)
    return set(decider.engine.state.inventory.nodes) if decider is not None else set()


def of_kind(records: Iterable[Came], kind: type) -> list[Came]:
    from rebalancer.adapters.translate import WireError, decode

    found = []
    for record in records:
        try:
            content = decode(record.topic, record.key, record.value, record.headers)
        except WireError:
            continue
        if isinstance(content, kind):
            found.append(record)
    return found
