"""Reads some topics of one partition by manual assignment, for as long as it runs, and notices a silent broker.

Where nothing comes for a while the broker is asked for a sign of life; what silence means is the caller's to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came, came, consumer_at

log = structlog.get_logger(__name__)
PROBE = 10.0
"""Seconds without a record after which the broker is asked for a sign of life."""
AGAIN = 2.0


async def unheard(loaded: asyncio.Event, bound: timedelta, silent: Callable[[timedelta], Awaitable[None]]) -> None:
    """Until all is loaded: a broker from which nothing can be read is silent, from the beginning on."""
    began, pace = time.monotonic(), min(PROBE, bound.total_seconds())
    while not loaded.is_set():
        await asyncio.sleep(pace)
        if not loaded.is_set():
            await silent(timedelta(seconds=time.monotonic() - began))


class Following:
    """Hands every record over in turn; ``heard`` is called at every sign of life, ``silent`` when there was none."""

    def __init__(
        self,
        kafka: KafkaSettings,
        partition: int,
        take: Callable[[Came], Awaitable[None]],
        heard: Callable[[], None],
        silent: Callable[[timedelta], Awaitable[None]],
        *,
        probing: bool,
        fetch_wait_ms: int | None,
    ) -> None:
        self._kafka, self._partition, self._fetch_wait_ms = kafka, partition, fetch_wait_ms
        self._take, self._heard, self._silent, self._probing = take, heard, silent, probing
        self._contact = time.monotonic()

    async def run(self, ends: Mapping[str, int], topics: Sequence[str]) -> None:
        """From these offsets on, until cancelled; a lost connection is made again."""
        nexts = {topic: ends[topic] for topic in topics}
        while True:
            try:
                async with consumer_at(self._kafka, self._fetch_wait_ms) as consumer:
                    await self._follow(consumer, nexts)
            except (KafkaError, ConnectionError) as error:
                log.warning("records not read, trying again", error=str(error))
                await self._quiet()
                await asyncio.sleep(AGAIN)

    async def _follow(self, consumer: Any, nexts: dict[str, int]) -> None:
        places = {topic: TopicPartition(topic, self._partition) for topic in nexts}
        consumer.assign(list(places.values()))
        for topic, offset in nexts.items():
            consumer.seek(places[topic], offset)
        while True:
            batches = await consumer.getmany(timeout_ms=200)
            for records in batches.values():
                for record in map(came, records):
                    await self._take(record)
                    nexts[record.topic] = record.offset + 1
            if batches:
                self._met()
            elif self._probing:
                await self._probe(consumer, list(places.values()))

    async def _probe(self, consumer: Any, places: Sequence[Any]) -> None:
        """Nothing came for a while: is the broker there?"""
        if time.monotonic() - self._contact < PROBE:
            return
        try:
            async with asyncio.timeout(self._kafka.timeout):
                await consumer.end_offsets(places)
        except (KafkaError, TimeoutError):
            await self._quiet()
        else:
            self._met()

    def _met(self) -> None:
        self._contact = time.monotonic()
        self._heard()

    async def _quiet(self) -> None:
        silent = timedelta(seconds=time.monotonic() - self._contact)
        if silent >= timedelta(seconds=PROBE):
            await self._silent(silent)
