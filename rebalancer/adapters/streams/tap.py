"""Taps our topics into a folder, one JSON-lines file a topic, so that a run can be read and replayed afterwards.

Each line is `{topic, partition, offset, key, headers, value}`. Bounded: a topic's file ends at its limit, with a
line in the log. Device samples are left out unless asked for: they are the bulk and nothing is decided from them
twice. A tap never disturbs what it listens to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import orjson
import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came, came, consumer_at
from rebalancer.wire import v1
from rebalancer.wire.topics import topics

log = structlog.get_logger(__name__)
MAX_BYTES = 2 << 30
"""Bytes a topic's file may have."""
TAPPED = tuple(one.name for one in topics() if one.name != v1.SAMPLE_DEVICE and one.dead_letters_of is None)


class Tap:
    """Runs while a day is lived; ``finish`` reads to the ends before it stops."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        kafka: KafkaSettings,
        folder: Path,
        partitions: Collection[int] = range(4),
        names: Collection[str] = TAPPED,
        fetch_wait_ms: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.folder, self.records = folder, 0
        self._kafka, self._fetch_wait_ms, self._max_bytes = kafka, fetch_wait_ms, max_bytes
        self._places = [TopicPartition(name, part) for name in sorted(names) for part in partitions]
        self._files: dict[str, IO[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._finishing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    async def start(self) -> None:
        """Begin; what was on the topics before is not tapped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._task = asyncio.create_task(self._run(), name="tap")
        waiting = asyncio.create_task(self.ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()

    async def finish(self, within: float = 30.0) -> None:
        """Write what is there by now, and stop; raises TimeoutError."""
        self._finishing.set()
        if self._task is not None:
            async with asyncio.timeout(within):
                await self._task

    async def _run(self) -> None:
        try:
            async with consumer_at(self._kafka, self._fetch_wait_ms) as consumer:
                consumer.assign(self._places)
                await consumer.seek_to_end(*self._places)
                self.ready.set()
                await self._follow(consumer)
        finally:
            for file in self._files.values():
                file.close()

    async def _follow(self, consumer: Any) -> None:
        ends: dict[Any, int] | None = None
        while ends is None or not await self._reached(consumer, ends):
            if ends is None and self._finishing.is_set():
                ends = await consumer.end_offsets(self._places)
            try:
                batches = await consumer.getmany(timeout_ms=200)
            except KafkaError as error:
                log.warning("tap missed a fetch", error=str(error))
                continue
            for records in batches.values():
                for record in records:
                    self._write(came(record))

    @staticmethod
    async def _reached(consumer: Any, ends: dict[Any, int]) -> bool:
        return all([await consumer.position(place) >= end for place, end in ends.items()])

    def _write(self, record: Came) -> None:
        line = to_line(record)
        size = self._sizes.get(record.topic, 0) + len(line)
        if size > self._max_bytes:
            if self._sizes.get(record.topic, 0) <= self._max_bytes:
                log.warning("the tap of a topic is full", topic=record.topic, bytes=self._max_bytes)
            self._sizes[record.topic] = self._max_bytes + 1
            return
        self._sizes[record.topic] = size
        if record.topic not in self._files:
            self._files[record.topic] = (self.folder / f"{record.topic}.jsonl").open("ab")
        self._files[record.topic].write(line)
        self.records += 1


def to_line(record: Came) -> bytes:
    """One record as a line; a value that is no JSON is kept as text."""
    value: Any = None
    if record.value is not None:
        try:
            orjson.loads(record.value)
            value = orjson.Fragment(record.value)
        except orjson.JSONDecodeError:
            value = record.value.decode(errors="replace")
    entry = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key.decode(errors="replace"),
        "headers": [[name, (raw or b"").decode(errors="replace")] for name, raw in record.headers],
        "value": value,
    }
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)


def from_line(line: bytes) -> Came:
    """The record of a line; raises ValueError for a line that is none."""
    entry = orjson.loads(line)
    value = entry["value"]
    raw = None if value is None else value.encode() if isinstance(value, str) else orjson.dumps(value)
    headers = [(name, text.encode()) for name, text in entry["headers"]]
    return Came(entry["topic"], entry["partition"], entry["offset"], entry["key"].encode(), raw, headers)
