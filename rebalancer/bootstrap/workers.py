"""Roles of a day in lockstep: workers of telemetry and decide, act, and the publishers they speak through.

The same classes that run in production; only their gates are the simulator's. Started and stopped as one.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.store import RawRecord, Store
from rebalancer.adapters.streams import decide
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.gate import BarrierGate, decide_inputs
from rebalancer.adapters.streams.lockstep import BarrierWatch, act_inputs
from rebalancer.adapters.streams.publish import Posted, Publisher
from rebalancer.bootstrap.aside import errand, send_aside
from rebalancer.core.engine import Engine
from rebalancer.core.policy import Policy
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record

SEEN = frozenset({v1.STATE_POOL, v1.PLAN})
"""Topics whose records a live view shows as they are published."""


class Overheard(Publisher):
    """A publisher whose pools and plans also reach a store, for the live view of the same process."""

    def __init__(self, store: Store, kafka: KafkaSettings) -> None:
        super().__init__(kafka)
        self._store = store

    async def post_to(self, record: Record, partition: int) -> Posted:
        """Hand the record over; show it if it is one that people look at."""
        if record.topic in SEEN and record.value is not None and not record.key.startswith(b"~"):
            self._store.feed(RawRecord(record.topic, record.key, record.value, tuple(record.headers)))
        return await super().post_to(record, partition)


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a day is lived: brokers, cluster name, policy, and the world that answers."""

    kafka: KafkaSettings
    cluster: str
    policy: Policy
    world: SimulatedCluster
    scratch: Path
    fetch_wait_ms: int | None = None


class Workers:
    """All roles of one day; an asynchronous context. ``seen`` holds the pools and plans published so far."""

    def __init__(self, ground: Ground, count: int = 1) -> None:
        self.watch = BarrierWatch()
        self.seen = Store(cluster=ground.cluster)
        self._ground, self._count = ground, count
        self._stack = AsyncExitStack()
        self._deciders: list[Decide] = []
        self._act: Act | None = None
        self._acting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def alone(self, now: datetime) -> None:
        """Act goes on by itself while Kafka is away."""
        if self._act is not None:
            await self._act.alone(now)

    async def back(self) -> None:
        """Kafka is there again."""
        if self._act is not None:
            await self._act.back()

    def engine(self) -> Engine | None:
        """The engine that decides at present, if one is loaded."""
        found = (one.decider(self._ground.cluster) for one in self._deciders)
        return next((decider.engine for decider in found if decider is not None), None)

    def check(self) -> None:
        """Raise what ended act, if something did: a day without hands must not seem to go on."""
        if self._acting is not None and self._acting.done():
            self._acting.result()

    # -- beginning and end -----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        await self._begin_act()
        for index in range(self._count):
            await self._telemetry(index)
        self._deciders = [await self._decide(index) for index in range(self._count)]
        async with asyncio.timeout(60.0):
            while self.engine() is None:  # noqa: ASYNC110 - which worker gets the partition is the broker's choice
                await asyncio.sleep(0.02)

    def _app(self, group: str, index: int, partition: int) -> AppSettings:
        ground, only = self._ground, frozenset({partition})
        scratch = ground.scratch / f"worker-{index}"
        return AppSettings(group, ground.kafka, fetch_wait_ms=ground.fetch_wait_ms, only=only, data_dir=scratch)

    async def _publisher(self) -> Publisher:
        return await self._stack.enter_async_context(Overheard(self.seen, self._ground.kafka))

    async def _telemetry(self, index: int) -> None:
        ground, name = self._ground, f"telemetry-{index}"
        scratch = ground.scratch / name
        what = errand(ground.kafka.bootstrap, ground.cluster, name, scratch, ground.fetch_wait_ms, ground.policy)
        await send_aside(what, self._stack)

    async def _decide(self, index: int) -> Decide:
        ground = self._ground
        publisher = await self._publisher()
        start = ground.world.moment

        def gate_of(_: str) -> BarrierGate:
            return BarrierGate(decide_inputs(range(publisher.partitions)), start)

        policies = {ground.cluster: (ground.policy, "scenario")}
        app = self._app(decide.GROUP, index, publisher.partition(ground.cluster))
        role = Decide(app, policies, publisher, Metrics(), gate_of, f"decide-{index}")
        await self._running(role)
        return role

    async def _running(self, role: Decide) -> None:
        await role.start()
        self._stack.push_async_callback(role.stop)

    async def _begin_act(self) -> None:
        ground = self._ground
        gate = BarrierGate(act_inputs(), ground.world.moment)
        self._act = Act(
            ground.kafka,
            ground.cluster,
            ground.policy,
            ground.world,
            ground.world,
            await self._publisher(),
            Metrics(),
            gate=gate,
            on_barrier=self.watch.note,
            fetch_wait_ms=ground.fetch_wait_ms,
        )
        self._acting = asyncio.create_task(self._act.run(), name="act")
        self._stack.push_async_callback(_ended, self._acting)
        ready = asyncio.create_task(self._act.ready.wait())
        await asyncio.wait({ready, self._acting}, timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        self.check()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
