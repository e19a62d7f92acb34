"""Foreign topics and the reader of sources on whatever broker there is; what lies on our topics afterwards."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiokafka import AIOKafkaProducer

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came, read_to_end
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.source_settings import SourceSettings
from rebalancer.adapters.streams.sources import Sources
from rebalancer.adapters.translate import decode, encode_fact, read
from rebalancer.core.facts import Node
from rebalancer.core.stimuli import FactObserved
from rebalancer.core.telemetry import NodeSample
from rebalancer.core.units import OwnerClass
from rebalancer.wire import v1
from tests.decode import samples_here
from tests.streams.stage import eventually, until

CLUSTER = "sim"
SIX = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
NOW = datetime(2026, 3, 3, 6, 0, 20, tzinfo=UTC)
GPU_NODE = Node("u7", "gpu-h100-07", "train-h100", "H100", OwnerClass.TRAINING, 8, 8, SIX)
"""The node of all recorded metrics."""
POD_FACTS, NODE_FACTS = v1.FACT_TOPICS["pod"], v1.FACT_TOPICS["node"]
OURS = (*v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEVICE, f"{POD_FACTS}.dlq", f"{v1.SAMPLE_DEVICE}.dlq")


class Foreign:
    """Other people's topics, and ours as a subscriber sees them."""

    def __init__(self, kafka: KafkaSettings, fetch_wait_ms: int | None) -> None:
        self.kafka, self.fetch_wait_ms = kafka, fetch_wait_ms
        self.publisher = Publisher(kafka)
        self.metrics = Metrics()
        self.producer: Any = None

    async def put(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        pairs = [(name, text.encode()) for name, text in (headers or {}).items()]
        await self.producer.send_and_wait(topic, value, key=key, headers=pairs, partition=partition)

    async def put_sample(self, topic: str, name: str) -> None:
        """A recorded message, as its bridge would send it."""
        if name.endswith((".txt", ".prom")):
            await self.put(topic, samples_here.raw(name if "/" in name else f"kafka/{name}"))
            return
        recorded = samples_here.parsed(f"kafka/{name}.json")
        value = None if recorded["value"] is None else json.dumps(recorded["value"]).encode()
        key = recorded["key"].encode() if recorded["key"] else None
        await self.put(topic, value, key=key, headers=recorded["headers"])

    async def node(self, node: Node = GPU_NODE, cluster: str = CLUSTER) -> None:
        """A node that our facts know."""
        await self.publisher.send([encode_fact(node, cluster, SIX)], cluster)

    @asynccontextmanager
    async def reading(self, *sources: tuple[str, ...], group: str = "", holds: bool = True) -> AsyncIterator[Sources]:
        """The reader of these (topic, format[, cluster]) runs; ``holds``: wait until it has the partitions."""
        wanted = [SourceSettings(**dict(zip(("topic", "format", "cluster"), one, strict=False))) for one in sources]
        role = Sources(
            self.kafka,
            wanted,
            self.publisher,
            CLUSTER,
            self.metrics,
            group=group or uuid.uuid4().hex,
            now=lambda: NOW,
            fetch_wait_ms=self.fetch_wait_ms,
        )
        task = asyncio.create_task(role.run())
        try:
            await until(lambda: not holds or role.assigned.is_set() or task.done(), 40)
            if task.done():
                task.result()
            yield role
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def lying(self, topic: str) -> list[Came]:
        """All records of a topic, partition by partition."""
        found: list[Came] = []
        for partition in range(self.publisher.partitions):
            loaded = await read_to_end(self.kafka, [topic], partition, fetch_wait_ms=self.fetch_wait_ms)
            found += loaded.records[topic]
        return found

    async def said(self, topic: str, count: int = 1) -> list[Any]:
        """What the records of a topic say, once there are so many."""

        async def there() -> list[Any]:
            found = await self.lying(topic)
            return found if len(found) >= count else []

        return [decode(*one[:1], *one[3:]) for one in await eventually(there, 30)]

    async def samples(self, count: int = 1) -> dict[str, NodeSample]:
        """The last sample of each cluster, once there are so many."""
        found = {}
        await self.said(v1.SAMPLE_DEVICE, count)
        for one in await self.lying(v1.SAMPLE_DEVICE):
            received = read(one.topic, one.key, one.value, one.headers)
            if isinstance(received.content, NodeSample):
                found[received.cluster] = received.content
        return found

    async def facts(self, topic: str, count: int = 1) -> list[Any]:
        return [one.fact for one in await self.said(topic, count) if isinstance(one, FactObserved)]

    def counted(self, metric: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"gpu_rebalancer_{metric}_total", labels)
        assert value is not None
        return value

    async def counts(self, metric: str, least: float, **labels: str) -> float:
        """The counter, once it has come so far."""
        await until(lambda: self.counted(metric, **labels) >= least, 30)
        return self.counted(metric, **labels)


@asynccontextmanager
async def foreign(bootstrap: str, fetch_wait_ms: int | None = None) -> AsyncIterator[Foreign]:
    found = Foreign(KafkaSettings(bootstrap=bootstrap), fetch_wait_ms)
    found.producer = AIOKafkaProducer(**found.kafka.client_arguments(), max_request_size=16 << 20)
    await found.producer.start()
    try:
        async with found.publisher:
            yield found
    finally:
        await found.producer.stop()
