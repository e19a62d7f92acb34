"""One cluster's engine and what surrounds it: the journal before the plan, and every instruction acknowledged.

Owned by one task at a time, so the engine needs no lock; planning runs in a thread, so that the loop (and with it
the consumer's heartbeat) goes on. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.gate import Gate
from rebalancer.adapters.streams.journal import Journal
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.translate import Barrier, TermRecord, encode_barrier, encode_instruction, encode_term
from rebalancer.core.engine import Engine
from rebalancer.core.instructions import Instruction, PublishPlan
from rebalancer.core.policy import Policy
from rebalancer.core.reasons import sentence
from rebalancer.core.stimuli import (
    HeartbeatHeard,
    PolicyAdopted,
    Restored,
    Stimulus,
    StreamLagged,
    TermBegan,
    TimePassed,
)
from rebalancer.core.telemetry import Heartbeat
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record

log = structlog.get_logger(__name__)
AGAIN = 1.0
"""Seconds between attempts to publish what must be published; it goes on until the partition is taken away."""


class Decider:
    """Decides for one cluster while its partition is ours. ``waiting`` is told of each try that was refused."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        cluster: str,
        policy: Policy,
        digest: str,
        gate: Gate,
        publisher: Publisher,
        metrics: Metrics,
        name: str,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster, self.gate = cluster, gate
        self.engine = Engine(cluster, policy)
        self.term = 0
        self._policy, self._digest, self._name = policy, digest, name
        self._publisher, self._metrics, self._waiting = publisher, metrics, waiting
        self._journal = Journal(publisher, cluster)
        metrics.adopt(policy.pools)
        self._asked: list[tuple[Instruction, datetime]] = []
        self._behind: bool | None = None

    async def claim(self) -> int:
        """Begin a term: its number is the offset of its record. To be done before plans are read."""
        record = encode_term(TermRecord(self._name, datetime.now(self.gate.now().tzinfo)), self.cluster)
        (posted,) = await self._publisher.send([record], self.cluster)
        self.term = posted.offset
        self._metrics.term.set(self.term)
        return self.term

    async def begin(self, stimuli: Iterable[Stimulus]) -> None:
        """Tell a fresh engine the policy, what was restored, and the term."""
        self._journal.begin(self.term)
        for stimulus in (PolicyAdopted(self._policy, self._digest), *stimuli, TermBegan(self.term)):
            await self.apply(stimulus)
        await self.lagged(0.0, behind=not self.gate.lockstep)
        await self.publish()

    async def apply(self, stimulus: Stimulus) -> None:
        """Take a stimulus in and journal it; what it asks for waits for :meth:`publish`."""
        now = self.gate.now()
        if isinstance(stimulus, Restored) and self._metrics.pools is not None:
            self._metrics.pools.restored(stimulus.loans, stimulus.alerts)
        asked = self.engine.handle(stimulus, now)
        self._asked += [(one, now) for one in asked]
        await self._journal.append(stimulus, now)

    async def lagged(self, seconds: float, *, behind: bool) -> None:
        """How far the inputs are behind; the engine is told when that changes."""
        if behind is not self._behind:
            self._behind = behind
            await self.apply(StreamLagged(behind, seconds))

    async def adopt(self, policy: Policy, digest: str) -> None:
        """A new policy is in force."""
        self._policy, self._digest = policy, digest
        self._metrics.adopt(policy.pools)
        await self.apply(PolicyAdopted(policy, digest))

    async def plan(self) -> None:
        """Make plans once from all that was applied."""
        now, began = self.gate.now(), time.perf_counter()
        asked = await asyncio.to_thread(self.engine.handle, TimePassed(), now)
        self._metrics.planning.observe(time.perf_counter() - began)
        state = self.engine.state
        self._metrics.max_loans.set(state.policy.pace.loans_limit(state.inventory.control.max_loans))
        self._asked += [(one, now) for one in asked]
        await self._journal.append(TimePassed(), now)

    async def step(self, barrier: Barrier) -> None:
        """A simulated step is complete: plan, publish, and say so on the plan topic.

        The forwarded barriers prove that telemetry judged every sample partition up to now, as a heartbeat does.
        """
        beat = Heartbeat("lockstep", barrier.now, tuple(range(self._publisher.partitions)), 0, 0.0)
        await self.apply(HeartbeatHeard(beat))
        await self.plan()
        await self.publish()
        await self.answer(barrier)

    async def answer(self, barrier: Barrier) -> None:
        """Tell act that all plans of this step are there."""
        await self._publisher.post(encode_barrier(v1.PLAN, barrier, self.cluster), self.cluster)

    async def publish(self) -> None:
        """Everything asked for is acknowledged when this returns, the journal before it.

        Tried until it succeeds: only losing the partition (cancellation) ends it.
        """
        if not self._asked:
            if not self.gate.lockstep:
                await self._insist(self._journal.post)
            return
        asked, self._asked = self._asked, []
        records = [encode_instruction(one, self.cluster, now) for one, now in asked]
        await self._insist(self._journal.settle)
        await self._insist(lambda: self._send(records))
        for one, _ in asked:
            self._count(one)

    def close(self) -> None:
        """The partition is taken away: what was counted of it is no longer ours to tell."""
        if self._metrics.pools is not None:
            self._metrics.pools.lost()

    def _count(self, told: Instruction) -> None:
        """What is acknowledged shows in the metrics; a plan also in the log, under its id."""
        if self._metrics.pools is not None:
            self._metrics.pools.published(told)
        if isinstance(told, PublishPlan):
            plan = told.plan
            self._metrics.plans.labels(plan.method.value, plan.mode.value, plan.because.reason.value).inc()
            told_as = {"plan": plan.id, "pool": plan.pool, "method": plan.method.value, "mode": plan.mode.value}
            log.info("decided", **told_as, reason=plan.because.reason.value, sentence=sentence(plan.because))

    async def _send(self, records: list[Record]) -> None:
        await self._publisher.send(records, self.cluster)

    async def _insist(self, attempt: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await attempt()
            except NotPublished as error:
                self._metrics.failures.labels("decide").inc()
                self._waiting()
                log.warning("not published, trying again", cluster=self.cluster, error=str(error))
                await asyncio.sleep(AGAIN)
            else:
                return
