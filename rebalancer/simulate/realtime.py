"""A simulated cluster that lives by the machine's clock: for trying the roles as they run in production.

Simulated time is real time: the scenario starts now and a step is made whenever one has passed. Same ports as a
real cluster; never to be mistaken for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rebalancer.core.protocol.calls import Answer, Call
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.core.telemetry import DemandSample, NodeSample
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.scenario import Scenario

STEP_SECONDS = 5.0


class RealTime:
    """Hands and eyes over a simulated cluster that :meth:`live` moves."""

    def __init__(self, scenario: Scenario, now: datetime) -> None:
        begin = now.astimezone(UTC).replace(microsecond=0)
        self.world = SimulatedCluster(replace(scenario, start=begin, step_seconds=STEP_SECONDS))
        self._changed = asyncio.Event()

    async def live(self) -> AsyncIterator[tuple[Sequence[NodeSample], Sequence[DemandSample]]]:
        """Step for step as time passes; each yields its samples and demands. Ends with the scenario."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self.world.done():
            self.world.step()
            self._changed.set()
            yield self.world.samples(), self.world.demands()
            due = began + self.world.step_number * STEP_SECONDS
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def perform(self, call: Call) -> Answer:
        """Carry out one call."""
        answer = self.world.answer(call)
        self._changed.set()
        return answer

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind."""
        return self.world.listing(of)

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """What changed since the last call; waits until something may have."""
        await self._changed.wait()
        self._changed.clear()
        return self.world.drain()
