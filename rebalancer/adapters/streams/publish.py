"""One producer a role: records to their partitions, in order, acknowledged by all replicas.

Posting only hands a record over; settling waits for the acknowledgements and posts again what failed, for a
bounded time, and with it all that it was posted before: an older word about something never comes to lie behind a
newer one. The producer keeps what is posted to a partition in order, also while it tries again by itself; it is not an
idempotent one, whose batches never expire and whose sender ends for good where a broker misses one. Where a record
goes is decided by its cluster (or its own key, for device samples). Nothing is encoded here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record, cluster_partition, key_partition

PATIENCE = 30.0
"""Seconds for which a record that the broker did not take is offered again before its sender is told."""
PAUSE, LONGEST_PAUSE = 0.5, 4.0
"""Seconds between two offers, twice as long each time: a record that is never taken repeats the others few times."""
LARGEST = 10 * 1024 * 1024
"""Bytes of the largest request: what topics.yaml allows a journal entry; the client's default is 1 MiB."""


class NotPublished(ConnectionError):  # noqa: N818 - says what happened
    """The broker did not acknowledge a record in time."""


@dataclass(slots=True)
class Posted:
    """A record on its way. ``offset`` is known once it is settled."""

    record: Record
    partition: int
    answer: asyncio.Future[Any] = field(repr=False)

    @property
    def refused(self) -> bool:
        """Whether it is known already that it was not taken."""
        return self.answer.done() and (self.answer.cancelled() or self.answer.exception() is not None)

    @property
    def offset(self) -> int:
        """Where the broker put it; only after settling."""
        return int(self.answer.result().offset)


class Publisher:
    """Sends records of one or more clusters. ``partitions``: as all our topics have; ``placed``: explicit map."""

    def __init__(
        self, kafka: KafkaSettings, partitions: int = 4, placed: Mapping[str, int] | None = None, *, linger_ms: int = 0
    ) -> None:
        self._kafka = kafka
        self.partitions = partitions
        self._placed = dict(placed or {})
        self._linger_ms = linger_ms
        self._producer: Any = None

    async def start(self) -> None:
        """Connect; raises Unreachable with the addresses tried."""
        self._producer = AIOKafkaProducer(
            **self._kafka.client_arguments(),
            acks="all",
            linger_ms=self._linger_ms,
            max_batch_size=1 << 18,
            max_request_size=LARGEST,
        )
        try:
            async with asyncio.timeout(self._kafka.timeout):
                await self._producer.start()
        except (TimeoutError, KafkaError, OSError) as error:
            await self._producer.stop()
            raise Unreachable(self._kafka.bootstrap, str(error) or type(error).__name__) from error

    async def stop(self) -> None:
        """Flush and disconnect, within the time that a request may take."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(self._kafka.timeout):
                    await producer.stop()
            except TimeoutError:
                await producer.client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def partition(self, cluster: str) -> int:
        """Where everything about a cluster lies."""
        return cluster_partition(cluster, self.partitions, self._placed)

    async def post(self, record: Record, cluster: str) -> Posted:
        """Hand over a record about a cluster."""
        spread = record.topic == v1.SAMPLE_DEVICE and not record.key.startswith(b"~")
        return await self.post_to(
            record, key_partition(record.key, self.partitions) if spread else self.partition(cluster)
        )

    async def post_to(self, record: Record, partition: int) -> Posted:
        """Hand over a record for this partition; waits only while the buffer is full."""
        return Posted(record, partition, await self._hand_over(record, partition))

    async def settle(self, posted: Iterable[Posted], patience: float = PATIENCE, *, again: bool = True) -> None:
        """Wait until all are acknowledged; raises NotPublished when the broker does not take one in time.

        With ``again`` false nothing is posted again: for records of a topic that another settles too, who may have
        posted something newer meanwhile.
        """
        deadline, pause = asyncio.get_running_loop().time() + patience, PAUSE
        left = list(posted)
        while left:
            left, error = await self._failed(left, deadline)
            if error is None:
                return
            if not again or asyncio.get_running_loop().time() + pause >= deadline:
                raise NotPublished(f"{left[0].record.topic}: {error!r}") from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._repeat(left, deadline)

    async def _failed(self, posted: Iterable[Posted], deadline: float) -> tuple[list[Posted], BaseException | None]:
        """What was not taken, and all that followed it to the same partition; with the first error."""
        lanes: set[tuple[str, int]] = set()
        found: list[Posted] = []
        first: BaseException | None = None
        for one in posted:
            error, lane = await self._error(one, deadline), (one.record.topic, one.partition)
            if error is not None:
                first = first or error
                lanes.add(lane)
            if lane in lanes:
                found.append(one)
        return found, first

    async def _repeat(self, posted: Iterable[Posted], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for one in posted:
                    one.answer = await self._hand_over(one.record, one.partition)
        except TimeoutError as error:
            raise NotPublished("the producer's buffer is full") from error

    async def send(self, records: Iterable[Record], cluster: str) -> list[Posted]:
        """Post and settle."""
        posted = [await self.post(record, cluster) for record in records]
        await self.settle(posted)
        return posted

    async def _hand_over(self, record: Record, partition: int) -> asyncio.Future[Any]:
        if self._producer is None:
            raise NotPublished("the publisher is not started")
        try:
            answer: asyncio.Future[Any] = await self._producer.send(
                record.topic, record.value, key=record.key, partition=partition, headers=record.headers
            )
        except KafkaError as error:
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(error)
        answer.add_done_callback(_seen)
        return answer

    @staticmethod
    async def _error(one: Posted, deadline: float) -> BaseException | None:
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait([one.answer], timeout=left) if not one.answer.done() else ({one.answer}, None)
        return one.answer.exception() if done else TimeoutError("no acknowledgement")


def _seen(answer: asyncio.Future[Any]) -> None:
    """Whoever settles reads the error; a record that nobody settles must not complain at the end of the loop."""
    if not answer.cancelled():
        answer.exception()
