"""The stage of a story: world, act, driver and tap here, the workers as processes; lived step by step.

Everything that reached the world is kept with its answer, so that a story can say what was done and how often.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.store import TOPICS, Store
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.gate import BarrierGate
from rebalancer.adapters.streams.lockstep import BarrierWatch, Lockstep, Step, act_inputs
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.tap import Tap
from rebalancer.adapters.tapfolder import read_folder
from rebalancer.core.units import Mode
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from tests.stories.afar import serve
from tests.stories.processes import Child
from tests.stories.world import HERE, Watched

WITHIN = 60.0  # seconds that anything waited for may take


class Stage:
    """One night, while its context is open. ``scenario`` is a file beside this one, without its ending.

    ``epoch``: of the act in this process; 0 has none here.
    """

    def __init__(
        self, kafka: KafkaSettings, folder: Path, scenario: str = "night", *, mode: Mode = Mode.ACT, epoch: int = 1
    ) -> None:
        self.file = HERE / f"{scenario}.yaml"
        self.kafka, self.folder, self.mode = kafka, folder, mode
        self.scenario = open_scenario(str(self.file))
        self.cluster = self.scenario.cluster
        self.policy = policy_of(self.scenario, mode)
        self.world = Watched(self.scenario)
        self.watch = BarrierWatch()
        self.run = uuid.uuid4().hex[:8]
        self.act: Act | None = None
        self.driver = Publisher(kafka)
        self._epoch = epoch
        self._stack = AsyncExitStack()
        self._children: list[Child] = []
        self._steps: AsyncIterator[Step]
        self._tap: Tap

    # -- beginning and end -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        self._stack.push_async_callback(self._end_children)
        await self._stack.enter_async_context(self.driver)
        self._tap = Tap(self.kafka, self.folder, [self.driver.partition(self.cluster)])
        await self._tap.start()
        self._stack.push_async_callback(self._end_tap)
        alone = back = None
        if self._epoch:
            await self.act_here()
            assert self.act is not None
            alone, back = self.act.alone, self.act.back
        else:
            partition = self.driver.partition(self.cluster)
            self.background(self.watch.follow(self.kafka, partition), "answers")
        self._steps = Lockstep(self.world, self.driver, self.cluster, self.watch, alone, back=back).steps()

    async def act_here(self) -> None:
        """Act in this process, with the world itself as its hands."""
        publisher = await self._stack.enter_async_context(Publisher(self.kafka))
        gate = BarrierGate(act_inputs(), self.world.moment)
        self.act = Act(
            self.kafka, self.cluster, self.policy, self.world, self.world, publisher, Metrics(),
            epoch=self._epoch, gate=gate, on_barrier=self.watch.note,
        )  # fmt: skip
        self.background(self.act.run(), "act")
        await asyncio.wait_for(self.act.ready.wait(), 30.0)

    def background(self, work: Any, name: str) -> "asyncio.Task[Any]":
        """Something that runs until the stage closes."""
        task = asyncio.create_task(work, name=name)
        self._stack.push_async_callback(_cancelled, task)
        return task

    async def worker(self, name: str = "w0", *, wait: bool = True) -> Child:
        """Start a worker; the same name again takes the place of the one before."""
        child = await self.child(
            "worker", name, kafka=self.kafka.bootstrap, scenario=self.file, run=self.run, name=name,
            scratch=self.folder, mode=self.mode.value,
        )  # fmt: skip
        if wait:
            await child.ready()
        return child

    async def actor(self, epoch: int) -> Child:
        """Start an act of its own process, whose hands are the world here."""
        socket = self.folder / "world"
        if not socket.exists():
            server = await serve(self.world, socket)
            self._stack.push_async_callback(server.wait_closed)
            self._stack.callback(server.close)
        child = await self.child(
            "actor", "act", kafka=self.kafka.bootstrap, scenario=self.file, world=socket, epoch=epoch
        )
        await child.ready()
        return child

    async def child(self, module: str, log: str, **options: object) -> Child:
        """Start a process of this room; it is killed with the stage if it still runs."""
        child = await Child.start(f"tests.stories.{module}", self.folder / f"{log}.log", **options)
        self._children.append(child)
        return child

    async def _end_children(self) -> None:
        await asyncio.gather(*(child.kill() for child in self._children))

    async def _end_tap(self) -> None:
        await self._tap.finish()

    # -- living ----------------------------------------------------------------------------------------------------

    async def live(self, upto: int | None = None) -> None:
        """Live until this step is over; without a number, to the end, and the tap has everything."""
        async for step in self._steps:
            if step.number == upto:
                return
        await self._tap.finish()

    async def told(self, step: int) -> None:
        """Wait until the world has moved to this step: its records are on their way."""
        async with asyncio.timeout(WITHIN):
            while self.world.step_number < step:  # noqa: ASYNC110 - the world has no loop to tell us
                await asyncio.sleep(0)

    async def touched(self, evictions: int) -> None:
        """Wait until so many pods were told to go."""
        async with asyncio.timeout(WITHIN):
            while sum(self.world.evicted().values()) < evictions:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)

    @property
    def store(self) -> Store:
        """What the topics say, read as a subscriber would."""
        return Store(cluster=self.cluster).feed_all(read_folder(self.folder, TOPICS))


async def _cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
