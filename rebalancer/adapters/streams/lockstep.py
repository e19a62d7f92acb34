"""Drives a simulated cluster through Kafka, step by step: events, then barriers, then wait until act has answered.

The roles behind the topics are those of production; only their gates differ. Steps come as an asynchronous
generator, so that a view can follow. A barrier that got lost with a killed worker is sent again. In a declared
outage nothing is sent, act is ticked directly, and full lists follow when Kafka is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiokafka import TopicPartition

from rebalancer.adapters.streams.collect import KINDS, Teller
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import consumer_at
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import Barrier, WireError, decode, encode_barrier
from rebalancer.core.ports import World
from rebalancer.wire import v1

RESEND = 5.0
"""Seconds without an answer after which a step's barriers are sent again."""
PATIENCE = 90.0
"""Seconds that one step may take: a killed worker's session must run out and its successor load."""
PLAIN = (*v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEMAND)


class StepStuck(TimeoutError):  # noqa: N818 - says what happened
    """A step was not answered in time."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that is over. ``away``: Kafka was out of reach by the scenario."""

    number: int
    now: datetime
    away: bool = False


class BarrierWatch:
    """Knows the last step that act has answered: told in process, or by following the outcome topic."""

    def __init__(self) -> None:
        self._step = -1
        self._changed = asyncio.Event()

    def note(self, barrier: Barrier) -> None:
        """Act has answered this step."""
        if barrier.step > self._step:
            self._step = barrier.step
            self._changed.set()

    async def reached(self, step: int, within: float) -> bool:
        """Whether the step is answered within so many seconds."""
        try:
            async with asyncio.timeout(within):
                while self._step < step:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def follow(self, kafka: KafkaSettings, partition: int, fetch_wait_ms: int | None = None) -> None:
        """Read answers of an act that runs elsewhere, until cancelled."""
        async with consumer_at(kafka, fetch_wait_ms) as consumer:
            place = TopicPartition(v1.OUTCOME, partition)
            consumer.assign([place])
            await consumer.seek_to_end(place)
            async for record in consumer:
                try:
                    found = decode(record.topic, record.key, record.value, record.headers)
                except WireError:
                    continue  # decide reads the same topic and buries it
                if isinstance(found, Barrier):
                    self.note(found)


class Lockstep:
    """One world, one cluster. ``alone`` is called with simulated now while Kafka is away, ``back`` after it."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        world: World,
        publisher: Publisher,
        cluster: str,
        watch: BarrierWatch,
        alone: Callable[[datetime], Awaitable[None]] | None = None,
        resend: float = RESEND,
        patience: float = PATIENCE,
        back: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._world, self._publisher, self._cluster = world, publisher, cluster
        self._watch, self._alone, self._back = watch, alone, back
        self._away = False
        self._resend, self._patience = resend, patience
        self._teller = Teller(publisher, cluster)
        self._step = 0
        self._lists_due = True
        self._before = world.moment

    async def steps(self) -> AsyncIterator[Step]:
        """Live through the scenario; raises StepStuck when the roles do not answer."""
        await self._answered(Barrier(0, self._before))
        number = 0
        while not self._world.done():
            number += 1
            self._world.step()
            now, away = self._world.moment, self._world.kafka_away()
            if away:
                await self._without_kafka(now)
            else:
                await self._through_kafka(now)
            yield Step(number, now, away)

    async def _without_kafka(self, now: datetime) -> None:
        """What happens meanwhile is lost to the streams, as with a collector that cannot publish."""
        self._world.drain()
        self._world.samples()
        self._world.demands()
        self._lists_due = self._away = True
        if self._alone is not None:
            await self._alone(now)

    async def _through_kafka(self, now: datetime) -> None:
        self._step += 1
        if self._away and self._back is not None:
            await self._back()
        self._away = False
        barrier = Barrier(self._step, now)
        await self._tell(now)
        await self._close(barrier)
        waited = 0.0
        while not await self._watch.reached(self._step, self._resend):
            waited += self._resend
            if waited >= self._patience:
                raise StepStuck(f"step {self._step} was not answered within {waited:.0f} s")
            # No barrier may overtake what a broker that was away did not take.
            await self._teller.settle(self._patience)
            await self._answered(Barrier(self._step - 1, self._before))
            await self._close(barrier)
        await self._teller.settle()
        self._before = now

    async def _tell(self, now: datetime) -> None:
        gap: Any = getattr(self._world, "take_snapshot_due", bool)
        if gap() or self._lists_due:
            self._lists_due = False
            for of in KINDS:
                facts = await self._world.snapshot(of)
                await self._teller.listing(of, facts, now, f"{of}/{self._step}")
        await self._teller.samples(self._world.samples())
        await self._teller.changes(self._world.drain())
        await self._teller.demands(self._world.demands())

    async def _close(self, barrier: Barrier) -> None:
        """The step's last record on every partition of every input, behind its data."""
        sample = encode_barrier(v1.SAMPLE_DEVICE, barrier, self._cluster)
        for partition in range(self._publisher.partitions):
            await self._publisher.post_to(sample, partition)
        for topic in PLAIN:
            await self._teller.post(encode_barrier(topic, barrier, self._cluster))

    async def _answered(self, barrier: Barrier) -> None:
        """Act's answer to the step before, for the first step and for a decider that lost it."""
        await self._teller.post(encode_barrier(v1.OUTCOME, barrier, self._cluster))


def act_inputs() -> frozenset[tuple[str, str]]:
    """What act waits for in a step: brakes, approvals and plans."""
    return frozenset({(v1.FACT_TOPICS["control"], ""), (v1.CONTROL, ""), (v1.PLAN, "")})
