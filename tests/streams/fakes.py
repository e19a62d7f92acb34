"""A publisher that keeps what it is given, and records as a partition would hold them."""

import asyncio
from collections.abc import Iterable
from typing import Any

from rebalancer.adapters.streams.loader import Came, Loaded
from rebalancer.adapters.streams.publish import NotPublished, Posted
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call
from rebalancer.wire.envelope import Record, cluster_partition


class FakePublisher:
    """As `Publisher`; `away` makes every settling fail. `settled` tells how many were acknowledged when."""

    partitions = 4

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.settled: list[int] = []
        self.away = False

    def partition(self, cluster: str) -> int:
        return cluster_partition(cluster, self.partitions)

    async def post(self, record: Record, cluster: str) -> Posted:
        return await self.post_to(record, self.partition(cluster))

    async def post_to(self, record: Record, partition: int) -> Posted:
        self.records.append(record)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(type("Told", (), {"offset": len(self.records) - 1}))
        return Posted(record, partition, answer)

    async def settle(self, posted: Iterable[Posted], patience: float = 1.0, *, again: bool = True) -> None:
        del patience, again
        if self.away and list(posted):
            raise NotPublished("away")
        self.settled.append(len(self.records))

    async def send(self, records: Iterable[Record], cluster: str) -> list[Posted]:
        posted = [await self.post(record, cluster) for record in records]
        await self.settle(posted)
        return posted

    def on(self, topic: str) -> list[Record]:
        return [record for record in self.records if record.topic == topic]


class Noting:
    """Hands that remember what they are asked, and answer all of it alike."""

    def __init__(self, kind: AnswerKind = AnswerKind.OK) -> None:
        self.kind = kind
        self.asked: list[Call] = []

    async def perform(self, call: Call) -> Answer:
        self.asked.append(call)
        return Answer(self.kind)


def lying(records: Iterable[Record], partition: int = 0) -> Loaded:
    """Records as one partition of each topic would hold them, read whole."""
    found: dict[str, list[Came]] = {}
    for record in records:
        lane = found.setdefault(record.topic, [])
        lane.append(Came(record.topic, partition, len(lane), record.key, record.value, record.headers))
    ends = {topic: len(lane) for topic, lane in found.items()}
    return Loaded(found, dict.fromkeys(found, 0), ends)
