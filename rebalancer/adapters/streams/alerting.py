"""Reads the alerts of one cluster from their topic, from its beginning, and keeps the board that senders tell from.

Every process with role act does so: several senders are harmless, since the same alert has the same labels. While
Kafka is away what stood goes on standing. Nothing is raised or cleared here but by what decide has published.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import structlog

from rebalancer.adapters.alerts import Alertmanagers, Board
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.following import Following
from rebalancer.adapters.streams.loader import Came, latest, read_patiently
from rebalancer.adapters.translate import Tombstone, WireError, read
from rebalancer.core.instructions import ClearAlert, RaiseAlert
from rebalancer.wire import v1

log = structlog.get_logger(__name__)


class Alerting:
    """The board of a cluster and its senders, while it runs."""

    def __init__(
        self, kafka: KafkaSettings, cluster: str, partition: int, board: Board, senders: Alertmanagers
    ) -> None:
        self._kafka, self._cluster, self._partition = kafka, cluster, partition
        self._board, self._senders = board, senders

    async def run(self) -> None:
        """Until cancelled: what stands is known before anything is told."""
        loaded = await read_patiently(self._kafka, [v1.ALERT], self._partition, {})
        for one in _ordered(loaded.records[v1.ALERT]):
            self.take(one)
        following = Following(
            self._kafka, self._partition, self._take, _nothing, _silent, probing=False, fetch_wait_ms=None
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(following.run(loaded.ends, (v1.ALERT,)), name="alerts-read")
            group.create_task(self._senders.run(), name="alerts-told")

    async def _take(self, record: Came) -> None:
        if self.take(record):
            self._senders.changed()

    def take(self, record: Came) -> bool:
        """Whether the record changes what stands; one that cannot be read does not, decide buries it."""
        try:
            told = read(record.topic, record.key, record.value, record.headers, datetime.now(UTC))
        except WireError as error:
            log.warning("alert not read", offset=record.offset, error=str(error))
            return False
        if told.cluster and told.cluster != self._cluster:
            return False
        match told.content:
            case RaiseAlert() as alert:
                self._board.raised(alert)
            case ClearAlert(id=key, at=at):
                self._board.cleared(key, at)
            case Tombstone(name=name):
                self._board.forgotten(name.rpartition("/")[2])
            case _:
                return False
        return True


def _ordered(records: list[Came]) -> list[Came]:
    """Only the last of each key counts: what came and went before we began is nobody's news."""
    return latest(records)


def _nothing() -> None:
    """A sign of life of the broker; nothing follows from it."""


async def _silent(_: timedelta) -> None:
    """What stood goes on standing."""
