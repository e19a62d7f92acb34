"""All roles of one simulated cluster in one process, stepped through whatever broker there is."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.gate import BarrierGate, decide_inputs
from rebalancer.adapters.streams.lockstep import BarrierWatch, Lockstep, Step, act_inputs
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.core.policy import Policy
from rebalancer.simulate.cluster import SimulatedCluster

PARTITIONS = 4
LINGER = 2  # milliseconds: fewer and larger requests


class Rig:
    """Runs while its context is open. ``workers`` are telemetry and decide workers."""

    def __init__(
        self,
        world: SimulatedCluster,
        policy: Policy,
        kafka: KafkaSettings,
        folder: Path,
        *,
        cluster: str = "sim",
        workers: int = 1,
        fetch_wait_ms: int | None = None,
    ) -> None:
        self.world, self.cluster, self.kafka = world, cluster, kafka
        self.metrics = Metrics()
        self.publisher = Publisher(kafka, PARTITIONS, linger_ms=LINGER)
        self.watch = BarrierWatch()
        suffix = uuid.uuid4().hex[:8]
        start = world.moment

        def settings(role: str, number: int) -> AppSettings:
            return AppSettings(
                f"gpu-rebalancer-{role}-{suffix}", kafka, fetch_wait_ms=fetch_wait_ms, data_dir=folder / str(number)
            )

        self.telemetries = [
            Telemetry(
                settings("telemetry", number),
                {cluster: policy},
                self.publisher,
                self.metrics,
                f"t{number}",
                lockstep=True,
            )
            for number in range(workers)
        ]
        self.decides = [
            Decide(
                settings("decide", number),
                {cluster: (policy, "rig")},
                self.publisher,
                self.metrics,
                lambda _: BarrierGate(decide_inputs(range(PARTITIONS)), start),
                f"d{number}",
            )
            for number in range(workers)
        ]
        self.act = Act(
            kafka,
            cluster,
            policy,
            world,
            world,
            self.publisher,
            self.metrics,
            gate=BarrierGate(act_inputs(), start),
            on_barrier=self.watch.note,
            fetch_wait_ms=fetch_wait_ms,
        )
        self.lockstep = Lockstep(world, self.publisher, cluster, self.watch, self.act.alone)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.publisher)
        roles: list[Telemetry | Decide] = [*self.telemetries, *self.decides]
        for role in roles:
            await role.start()
            await role.ready()  # one joins after the other: fewer rebalances
            self._stack.push_async_callback(role.stop)
        acting = asyncio.create_task(self.act.run())
        self._stack.push_async_callback(_cancelled, acting)
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def settled(self, within: float = 60.0) -> None:
        """All partitions are assigned, each once, and loaded."""
        async with asyncio.timeout(within):
            while not self._settled():  # noqa: ASYNC110 - it lives in several objects
                await asyncio.sleep(0.05)

    def _settled(self) -> bool:
        desks = [(n, desk) for one in self.decides for n, desk in one.desks.items()]
        windows = [n for one in self.telemetries for n in one.windows]
        spread = sorted(n for n, _ in desks) == sorted(windows) == list(range(PARTITIONS))
        return spread and all(desk.ready.is_set() for _, desk in desks) and self.act.ready.is_set()

    async def steps(self) -> AsyncIterator[Step]:
        async for step in self.lockstep.steps():
            yield step


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
