"""Configured sources: foreign topics read in a group of their own, and what they say told on our topics.

One member of the group holds all partitions (a node's rows may be spread over them), the others stand by. Offsets are
committed only after everything before them is acknowledged: at least once, and a fault begins again from there. Our
own fact topics are followed too, to know which nodes and pods there are. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.intake import Intake
from rebalancer.adapters.streams.loader import came, consumer_at
from rebalancer.adapters.streams.oneholder import OneHolder
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.source_settings import SourceSettings
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.adapters.translate import WireError, read
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
GROUP = "gpu-rebalancer-collect-sources"
FETCH = 16 * 1024 * 1024
"""Bytes that one partition's fetch may bring: pods of more than a megabyte do occur."""
WAIT_MS, BATCH = 200, 500
"""How long a fetch waits for records, and how many are handled before they are acknowledged."""
COMMIT = 1.0  # seconds between commits
AGAIN = 2.0  # seconds before what failed is tried again
LEARN_WITHIN = 30.0
"""Seconds for which sources wait until our own facts are read; without them rows have no node."""
PLACES = (v1.FACT_TOPICS["node"], v1.FACT_TOPICS["pod"])


class Sources:
    """Runs until cancelled. ``cluster`` stands for sources that name none."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        kafka: KafkaSettings,
        sources: Iterable[SourceSettings],
        publisher: Publisher,
        cluster: str,
        metrics: Metrics,
        reading: Reading | None = None,
        *,
        group: str = GROUP,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        fetch_wait_ms: int | None = None,
    ) -> None:
        self.health = Health("collect", metrics)
        self._reading = reading or Reading()
        self.assigned = asyncio.Event()
        self._kafka, self._publisher, self._metrics, self._group = kafka, publisher, metrics, group
        named = (one if one.cluster else one.model_copy(update={"cluster": cluster}) for one in sources)
        self._sources = {one.topic: one for one in named}
        self._where = {one.cluster: Whereabouts() for one in self._sources.values()}
        self._learnt = asyncio.Event()
        self._now, self._fetch_wait_ms = now, fetch_wait_ms
        self._intake = self._afresh()

    async def run(self) -> None:
        """Follow our facts and read the sources; begins again from the last commit after a fault."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lasting(self._follow), name="sources-places")
            group.create_task(self._lasting(self._read), name="sources")

    def adopt(self, reading: Reading) -> None:
        """Another policy is in force: labels are read by its map from now."""
        self._reading = self._intake.reading = reading

    async def _lasting(self, work: Callable[[], Any]) -> None:
        while True:
            try:
                await work()
            except (KafkaError, ConnectionError, TimeoutError) as error:
                log.warning("sources interrupted, trying again", error=str(error) or type(error).__name__)
                self._metrics.failures.labels("collect").inc()
                await asyncio.sleep(AGAIN)

    def _afresh(self) -> Intake:
        return Intake(self._sources, self._publisher, self._metrics, self._where, self._reading, self._now)

    # -- the sources ---------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(LEARN_WITHIN):
                await self._learnt.wait()
        except TimeoutError:
            log.warning("our own facts are not read yet, rows may have no node")
        async with self._consumer() as consumer:
            committed: dict[Hashable, int] = {}
            saved = time.monotonic()
            while True:
                await self._round(consumer)
                wanted = self._intake.committable()
                if wanted != committed and time.monotonic() - saved >= COMMIT:
                    await self._commit(consumer, wanted)
                    committed, saved = wanted, time.monotonic()

    async def _round(self, consumer: Any) -> None:
        fetched, count = await consumer.getmany(timeout_ms=WAIT_MS, max_records=BATCH), 0
        intake = self._intake  # only now: while it was waited for, an assignment may have begun another
        for place, records in fetched.items():
            alone = len(consumer.partitions_for_topic(place.topic) or ()) == 1
            for record in records:
                await intake.take(record, place, alone=alone)
                count += 1
                if not count % 50:
                    await asyncio.sleep(0)  # large objects must not starve the other roles
        await intake.hand_on()
        self.health.round(count)
        places = consumer.assignment()
        behind = [(consumer.highwater(place) or 0) - await consumer.position(place) for place in places]
        self.health.lagged(sum(behind), 0.0, behind=False)

    async def _commit(self, consumer: Any, wanted: Mapping[Hashable, int]) -> None:
        ours = consumer.assignment()
        offsets = {place: offset for place, offset in wanted.items() if place in ours}
        if offsets:
            await consumer.commit(offsets)

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            **self._kafka.client_arguments(),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(OneHolder,),
            max_partition_fetch_bytes=FETCH,
            fetch_max_wait_ms=self._fetch_wait_ms if self._fetch_wait_ms is not None else 500,
        )
        consumer.subscribe(list(self._sources), listener=_Afresh(self))
        try:
            try:
                async with asyncio.timeout(self._kafka.timeout):
                    await consumer.start()
            except (TimeoutError, KafkaError, OSError) as error:
                raise Unreachable(self._kafka.bootstrap, str(error) or type(error).__name__) from error
            yield consumer
        finally:
            self.assigned.clear()
            await consumer.stop()

    def begin(self, places: Iterable[Any]) -> None:
        """Partitions were assigned, or none: what was held of them comes again from the last commit."""
        self._intake = self._afresh()
        if places:
            self.assigned.set()
        else:
            self.assigned.clear()

    # -- where nodes and pods are --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        async with consumer_at(self._kafka, self._fetch_wait_ms) as consumer:
            lanes = sorted({self._publisher.partition(cluster) for cluster in self._where})
            places = [TopicPartition(topic, lane) for topic in PLACES for lane in lanes]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            await consumer.seek_to_beginning(*places)
            while True:
                for records in (await consumer.getmany(timeout_ms=WAIT_MS)).values():
                    for record in records:
                        self._heard(record)
                if not self._learnt.is_set():
                    reached = [await consumer.position(place) >= ends[place] for place in places]
                    if all(reached):
                        self._learnt.set()

    def _heard(self, record: Any) -> None:
        one = came(record)
        try:
            said = read(one.topic, one.key, one.value, one.headers)
        except WireError:
            return  # decide reads the same topics and buries it
        if said.cluster in self._where:
            self._where[said.cluster].heard(said.content)


class _Afresh(ConsumerRebalanceListener):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to save: what is not committed comes again."""

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Begin again with these partitions."""
        self._sources.begin(assigned)
