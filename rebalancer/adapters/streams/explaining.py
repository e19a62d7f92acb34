"""Keeps a store of what lies on the topics of one partition, for the pages that explain; nothing is decided from it.

It reads by manual assignment, leaves no trace on the broker, and is bounded: facts, loans and workloads as they are
now, plans and outcomes of the last days. While the broker is away it answers from what it has.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rebalancer.adapters.store import GROWING, TOPICS, RawRecord, Store
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.following import Following
from rebalancer.adapters.streams.loader import Came, read_patiently

SINCE = timedelta(days=3)
"""How far back plans and outcomes are read at the start: a night that is asked about the morning after a weekend."""
KEPT_PLANS = 2_000
"""Plans in memory, the oldest out first: a bound on memory; the topics have all of them."""


class Explaining:
    """A store that follows its topics while it runs. ``loaded`` once it knows what there was."""

    def __init__(self, kafka: KafkaSettings, cluster: str, partition: int) -> None:
        self.store = Store(cluster=cluster, kept_plans=KEPT_PLANS)
        self.loaded = False
        self._kafka, self._partition = kafka, partition

    async def run(self) -> None:
        """Until cancelled: what was there, then what comes."""
        since = dict.fromkeys(GROWING, datetime.now(UTC) - SINCE)
        read = await read_patiently(self._kafka, list(TOPICS), self._partition, since)
        for topic in TOPICS:
            for record in read.records[topic]:
                self._feed(record)
        self.loaded, ends = True, dict(read.ends)
        del read  # the store has what counts of it
        following = Following(
            self._kafka, self._partition, self._take, _nothing, _silent, probing=False, fetch_wait_ms=None
        )
        await following.run(ends, TOPICS)

    async def _take(self, record: Came) -> None:
        self._feed(record)

    def _feed(self, record: Came) -> None:
        self.store.feed(RawRecord(record.topic, record.key, record.value, list(record.headers)))


def _nothing() -> None:
    """A sign of life of the broker; nothing follows from it."""


async def _silent(_: timedelta) -> None:
    """What is known stays known."""
