"""What the core's shells need from the outside, as protocols.

Real adapters and the simulator implement the same ports; the core itself calls none of them. Methods return
awaitables instead of being coroutines, so that this room stays synchronous.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Protocol

from rebalancer.core.protocol.calls import Answer, Call
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.core.telemetry import DemandSample, NodeSample


class Clock(Protocol):
    """Where ``now`` comes from: the machine's clock, or the simulator's."""

    def now(self) -> datetime:
        """The present moment, aware, UTC."""


class Hands(Protocol):
    """Performs calls against a cluster. Never raises: what went wrong is an answer."""

    def perform(self, call: Call) -> Awaitable[Answer]:
        """Carry out one call, bounded in time."""


class SightLost(ConnectionError):  # noqa: N818 - says what happened
    """Changes of these kinds may have been missed: only a new list shows what there is now."""

    def __init__(self, kinds: Sequence[FactKind], why: str) -> None:
        super().__init__(f"{', '.join(kinds)}: {why}")
        self.kinds = tuple(kinds)


class Eyes(Protocol):
    """Sees a cluster's objects."""

    def snapshot(self, of: FactKind) -> Awaitable[Sequence[Fact]]:
        """A full live list of one kind, read from the cluster after this was called."""

    def changes(self) -> Awaitable[Sequence[FactObserved | FactDeleted]]:
        """What changed since the last call; waits until something did, up to the adapter's own bound.

        Raises:
            SightLost: changes of some kinds may have been missed.
            ConnectionError, TimeoutError: of any kind.
        """


class World(Hands, Eyes, Protocol):
    """A simulated cluster that a lockstep driver moves; everything of a step is available after ``step``."""

    @property
    def moment(self) -> datetime:
        """Simulated now."""

    def step(self) -> None:
        """Move one step: arrivals, load, scheduler, kubelets, faults."""

    def done(self) -> bool:
        """Whether the scenario is over."""

    def drain(self) -> Sequence[FactObserved | FactDeleted]:
        """Object changes since the last call (synchronous twin of ``changes``)."""

    def samples(self) -> Sequence[NodeSample]:
        """Telemetry of this step, one per node that reported."""

    def demands(self) -> Sequence[DemandSample]:
        """What the demand topic says in this step."""

    def answer(self, call: Call) -> Answer:
        """Synchronous twin of ``perform``."""

    def kafka_away(self) -> bool:
        """Whether the scenario declares Kafka unreachable in this step."""
