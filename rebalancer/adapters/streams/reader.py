"""Plain reading and sending for people's commands: topics to their end, what follows, requests acknowledged.

No consumer group, no commit, no offset kept: reading leaves no trace on the broker. Bounded in time; a broker
that does not answer is an :class:`Unreachable` that names the addresses tried.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from rebalancer.adapters.store import GROWING, RawRecord
from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable, asked_of
from rebalancer.wire.envelope import Record

SINCE = timedelta(days=7)
"""How far back topics that only grow are read."""
BATCH_WAIT = 500  # milliseconds


class NoTopics(FileNotFoundError):  # noqa: N818 - says what is missing
    """The brokers answer, but hold none of the topics wanted."""


async def read_to_end(
    kafka: KafkaSettings, topics: Collection[str], since: datetime | None = None
) -> AsyncIterator[RawRecord]:
    """All records up to the ends as they are now; growing topics only from the last days.

    ``since``: of all topics only what was appended from then on.
    """
    async with _consumer(kafka) as consumer:
        places = await _assign(kafka, consumer, topics)
        ends = await asked_of(kafka, consumer.end_offsets(places)) if places else {}
        await asked_of(kafka, _seek(consumer, places, since))
        open_ = await asked_of(kafka, _open(consumer, places, ends))
        heard = time.monotonic()
        while open_:
            batches = await asked_of(kafka, consumer.getmany(timeout_ms=BATCH_WAIT))
            for records in batches.values():
                for record in records:
                    yield _raw(record)
            open_ = await asked_of(kafka, _open(consumer, open_, ends))
            heard = time.monotonic() if batches else heard
            if time.monotonic() - heard > kafka.timeout:  # a consumer says nothing of brokers that went away
                raise Unreachable(kafka.bootstrap, f"nothing came for {kafka.timeout:g} s")


async def follow(kafka: KafkaSettings, topics: Collection[str]) -> AsyncGenerator[RawRecord, None]:
    """What comes from now on, until the caller stops asking."""
    async with _consumer(kafka) as consumer:
        places = await _assign(kafka, consumer, topics)
        await consumer.seek_to_end(*places)
        while True:
            batches = await consumer.getmany(timeout_ms=BATCH_WAIT)
            for records in batches.values():
                for record in records:
                    yield _raw(record)


async def publish(kafka: KafkaSettings, records: Sequence[Record], partition: int) -> None:
    """Send records to one partition each of their topics and wait for every acknowledgement."""
    producer = AIOKafkaProducer(**kafka.client_arguments(), acks="all", enable_idempotence=True)
    async with _started(kafka, producer):
        for record in records:
            sent = producer.send_and_wait(
                record.topic, record.value, record.key, partition=partition, headers=record.headers
            )
            await asked_of(kafka, sent)


def _consumer(kafka: KafkaSettings) -> Any:
    consumer = AIOKafkaConsumer(
        **kafka.client_arguments(), group_id=None, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    return _started(kafka, consumer)


@asynccontextmanager
async def _started(kafka: KafkaSettings, client: Any) -> AsyncIterator[Any]:
    try:
        await asked_of(kafka, client.start())
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _assign(kafka: KafkaSettings, consumer: Any, topics: Collection[str]) -> list[TopicPartition]:
    # All topics and not only ours: asking for one by name may create it where the broker auto-creates.
    async with _started(kafka, AIOKafkaAdminClient(**kafka.client_arguments())) as admin:
        described = await asked_of(kafka, admin.describe_topics(None))
    places = sorted(
        TopicPartition(topic["topic"], part["partition"])
        for topic in described
        if topic["topic"] in topics
        for part in topic["partitions"]
    )
    if not places:
        raise NoTopics(f"none of our topics exist at {kafka.bootstrap}; `rebalancer topics apply` makes them")
    consumer.assign(places)
    return places


async def _open(consumer: Any, places: Collection[TopicPartition], ends: Mapping[Any, int]) -> set[TopicPartition]:
    """Those that are not read to their end yet."""
    return {place for place in places if await consumer.position(place) < ends[place]}


async def _seek(consumer: Any, places: Sequence[TopicPartition], since: datetime | None) -> None:
    growing = [place for place in places if since is not None or place.topic in GROWING]
    await consumer.seek_to_beginning(*places)
    first = int((since or datetime.now(UTC) - SINCE).timestamp() * 1000)
    found = await consumer.offsets_for_times(dict.fromkeys(growing, first)) if growing else {}
    for place, offset in found.items():
        if offset is not None:
            consumer.seek(place, offset.offset)


def _raw(record: Any) -> RawRecord:
    return RawRecord(record.topic, record.key or b"", record.value, tuple(record.headers))
