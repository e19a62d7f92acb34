"""A simulated cluster whose exporters speak text: pages are read and assembled as those of a real exporter.

Everything but the samples is the world's own. Here and not in `simulate`, which must not know any decoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rebalancer.adapters.decode.dcgm_devices import assemble
from rebalancer.adapters.decode.dcgm_text import decode_page
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.core.protocol.calls import Answer, Call
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.core.telemetry import DemandSample, NodeSample
from rebalancer.simulate.cluster import SimulatedCluster


class TextWorld:
    """Implements ``core.ports.World`` over a cluster. ``failed`` counts pages that held no sample at all."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._world = world
        self.dropped: Counter[str] = Counter()
        self.failed = 0

    def samples(self) -> Sequence[NodeSample]:
        """Telemetry of this step out of the exporters' pages."""
        at, where = self._world.moment, Whereabouts()
        for fact in (*self._world.listing("node"), *self._world.listing("pod")):
            where.saw(fact)
        known = where.known(0.0)
        found: list[NodeSample] = []
        for page in self._world.pages().values():
            try:
                rows = decode_page(page.encode()).rows
            except SourceFailedError:
                self.failed += 1
                continue
            made = assemble(rows, known, at)
            self.dropped.update(made.dropped)
            found += made.samples
        return found

    # -- the world's own ---------------------------------------------------------------------------------------------

    @property
    def moment(self) -> datetime:
        """Simulated now."""
        return self._world.moment

    def step(self) -> None:
        """Move one step."""
        self._world.step()

    def done(self) -> bool:
        """Whether the scenario is over."""
        return self._world.done()

    def drain(self) -> Sequence[FactObserved | FactDeleted]:
        """Object changes since the last call."""
        return self._world.drain()

    def listing(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind."""
        return self._world.listing(of)

    def take_snapshot_due(self) -> bool:
        """Whether full lists should be told now."""
        return self._world.take_snapshot_due()

    def demands(self) -> Sequence[DemandSample]:
        """What the demand topic says in this step."""
        return self._world.demands()

    def kafka_away(self) -> bool:
        """Whether Kafka is out of reach in this step."""
        return self._world.kafka_away()

    def answer(self, call: Call) -> Answer:
        """Carry out one call now."""
        return self._world.answer(call)

    async def perform(self, call: Call) -> Answer:
        """Carry out one call now."""
        return await self._world.perform(call)

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind."""
        return await self._world.snapshot(of)

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """Object changes since the last call."""
        return await self._world.changes()
