"""What decides when plans may be made, and what time it is: the one seam between production and lockstep.

In production the gate is always open and the clock is the machine's. In lockstep it opens when every input of a
step has reached its barrier, and `now` stands still in between. The loop behind the gate is the same. Nothing
here touches Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Protocol

from rebalancer.adapters.translate import Barrier
from rebalancer.wire import v1

Input = tuple[str, str]
"""A topic, and who speaks on it (the ``source`` of its barriers)."""


class Gate(Protocol):
    """When to plan, and as of when."""

    lockstep: bool

    def now(self) -> datetime:
        """The time that the core is told."""

    def arrived(self, topic: str, barrier: Barrier) -> Barrier | None:
        """A barrier has come; returns it if the step is complete on every input, which opens the gate."""

    def resume(self, barrier: Barrier) -> None:
        """After a restart: this step was complete before."""


class ImmediateGate:
    """Always open: plans follow whatever has arrived. Barriers mean nothing here."""

    lockstep = False

    def now(self) -> datetime:
        """The machine's time."""
        return datetime.now(UTC)

    def arrived(self, topic: str, barrier: Barrier) -> Barrier | None:
        """Never complete: nobody steps a real clock."""
        del topic, barrier
        return None

    def resume(self, barrier: Barrier) -> None:
        """Nothing to resume."""


class BarrierGate:
    """Opens once a step, when its barrier has come on all ``inputs``; time is that of the last open step.

    Barriers of steps that are over are answered as complete again, so that whoever waits for an answer that was
    lost gets another; steps ahead are remembered, at most ``AHEAD`` of them.
    """

    lockstep = True
    AHEAD = 4

    def __init__(self, inputs: Collection[Input], start: datetime) -> None:
        self._inputs = frozenset(inputs)
        self._now = start
        self._done = -1
        self._arrived: dict[int, set[Input]] = {}
        self._times: dict[int, datetime] = {}

    def now(self) -> datetime:
        """Simulated time of the last complete step."""
        return self._now

    @property
    def step(self) -> int:
        """The last complete step; -1 before the first."""
        return self._done

    def missing(self, step: int) -> list[Input]:
        """Inputs that have not reached this step yet, for people."""
        return sorted(self._inputs - self._arrived.get(step, set()))

    def arrived(self, topic: str, barrier: Barrier) -> Barrier | None:
        """Count a barrier; returns the step's when it was the last one missing, or the step is over already."""
        step = barrier.step + (topic == v1.OUTCOME)
        if step <= self._done:
            return Barrier(step, self._now) if step == self._done and topic != v1.OUTCOME else None
        if topic != v1.OUTCOME:
            self._times[step] = barrier.now
        arrived = self._arrived.setdefault(step, set())
        arrived.add((topic, barrier.source))
        while len(self._arrived) > self.AHEAD:
            del self._arrived[min(self._arrived)]
        if not self._inputs <= arrived or step not in self._times:
            return None
        complete = Barrier(step, self._times[step])
        self.resume(complete)
        return complete

    def resume(self, barrier: Barrier) -> None:
        """This step and all before it are over."""
        if barrier.step > self._done:
            self._done, self._now = barrier.step, barrier.now
            self._arrived = {step: seen for step, seen in self._arrived.items() if step > barrier.step}
            self._times = {step: time for step, time in self._times.items() if step > barrier.step}


def decide_inputs(sample_partitions: Iterable[int]) -> frozenset[Input]:
    """What decide waits for in a step: each fact topic, requests, demand, and every sample partition's verdicts.

    An outcome barrier counts for the step that follows: what act did in one step is known in the next.
    """
    plain = [(topic, "") for topic in (*v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEMAND, v1.OUTCOME)]
    return frozenset([*plain, *((v1.STATE_NODE, str(partition)) for partition in sample_partitions)])
