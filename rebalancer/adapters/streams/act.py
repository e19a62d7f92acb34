"""The act role: reads plans by manual assignment, drives the pure actor, performs its calls, tells what became.

Calls run side by side, each bounded in time, so that one hanging victim delays nobody; in lockstep they run one
after the other as of the step's time. While Kafka is silent, what falls due is taken home from the marks on the
nodes alone, and outcomes wait, bounded, to be told later. What may be done is the core's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import structlog
from structlog.contextvars import bound_contextvars

from rebalancer.adapters.brakestold import BrakesTold
from rebalancer.adapters.logs import concerned
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.beside import Beside
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.dlq import DeadLetters, refused
from rebalancer.adapters.streams.following import Following, unheard
from rebalancer.adapters.streams.gate import Gate, ImmediateGate
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came, Loaded, read_patiently
from rebalancer.adapters.streams.optouts import Respectful
from rebalancer.adapters.streams.outbox import LOOK, Outbox, answer, brakes_now, due_now
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.translate import Barrier, Received, TermRecord, encode_barrier, read
from rebalancer.core.plan import Plan
from rebalancer.core.policy import Policy
from rebalancer.core.ports import Eyes, Hands
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import Call, writes
from rebalancer.core.protocol.strays import Strays
from rebalancer.core.stimuli import Approved, OutcomeReported
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
INPUTS = (v1.FACT_TOPICS["control"], v1.CONTROL, v1.PLAN)
"""In the order in which a step's records are told to the actor: brakes and approvals before plans."""
TAIL = timedelta(hours=2)
"""How far back plans and outcomes are read at the start: longer than any plan is valid."""
AT_ONCE = 64
"""Calls under way at the same time."""
ROUNDS = 1_000
"""Rounds of calls that one simulated step may take."""


class Act:
    """Acts for one cluster while we hold its lease. ``epoch`` fences what is written."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        kafka: KafkaSettings,
        cluster: str,
        policy: Policy,
        hands: Hands,
        eyes: Eyes,
        publisher: Publisher,
        metrics: Metrics,
        epoch: int = 1,
        gate: Gate | None = None,
        on_barrier: Callable[[Barrier], None] | None = None,
        fetch_wait_ms: int | None = None,
        outbox: Outbox | None = None,
        health: Health | None = None,
    ) -> None:
        metrics.adopt(policy.pools)
        self.actor = Actor(policy, epoch)
        self.health = health or Health("act", metrics)
        self.policy, self.ready = policy, asyncio.Event()
        self._kafka, self._cluster, self._fetch_wait_ms = kafka, cluster, fetch_wait_ms
        self._hands, self._eyes, self._publisher = hands, Respectful(eyes, policy), publisher
        self._gate: Gate = gate or ImmediateGate()
        self._on_barrier, self._dead = on_barrier, DeadLetters(publisher, metrics, "act")
        self._partition = publisher.partition(cluster)
        self._held: list[tuple[Came, Received]] = []
        self._told = outbox or Outbox(publisher, cluster, metrics)
        self._beside = Beside()
        self._slots, self._wake = asyncio.Semaphore(AT_ONCE), asyncio.Event()
        self._following = Following(
            kafka, self._partition, self._take, self._heard, self._silent,
            probing=not self._gate.lockstep, fetch_wait_ms=fetch_wait_ms,
        )  # fmt: skip
        self._silent_since: datetime | None = None
        self._strays, self._brakes = Strays(), BrakesTold()
        self._may_act = asyncio.Event()
        self._may_act.set()

    async def run(self) -> None:
        """Until cancelled: what was there, then what comes. Calls under way are abandoned with it."""
        try:
            async with asyncio.TaskGroup() as group:
                if not self._gate.lockstep:
                    group.create_task(self._drive(), name="act-calls")
                    group.create_task(
                        unheard(self.ready, self.policy.acting.kafka_silent, self._silent), name="act-alone"
                    )
                loaded = await self._restore()
                group.create_task(self._following.run(loaded.ends, INPUTS), name="act-plans")
        finally:
            await self._beside.end()

    @property
    def _within(self) -> float:
        return self.policy.acting.call_timeout.total_seconds()

    def adopt_policy(self, policy: Policy) -> None:
        """A new policy is in force."""
        self.policy = self._eyes.policy = policy
        self.health.metrics.adopt(policy.pools)
        self.actor.adopt_policy(policy)

    # -- beginning -------------------------------------------------------------------------------------------

    async def _restore(self) -> Loaded:
        """Outcomes first: steps that are final are not done again. Then brakes, approvals, terms and plans."""
        since = dict.fromkeys((v1.PLAN, v1.OUTCOME, v1.CONTROL), datetime.now(UTC) - TAIL)
        topics = [*INPUTS, v1.OUTCOME]
        loaded = await read_patiently(self._kafka, topics, self._partition, since, self._fetch_wait_ms)
        self._may_act.clear()  # a plan must not begin before the later record that calls it off was read
        outcomes = [await self._understood(one) for one in loaded.records[v1.OUTCOME]]
        told = [one.content for one in outcomes if one is not None]
        self.actor.adopt(one.outcome for one in told if isinstance(one, OutcomeReported))
        for barrier in [one for one in told if isinstance(one, Barrier)][-1:]:
            self._gate.resume(barrier)
        for topic in INPUTS:
            for one in loaded.records[topic]:
                await self._take(one)
        self._heard()
        self.ready.set()
        self._may_act.set()
        return loaded

    async def _understood(self, record: Came) -> Received | None:
        """What a record says if it is about our cluster; what cannot be read becomes a dead letter."""
        try:
            told = read(record.topic, record.key, record.value, record.headers, datetime.now(UTC))
        except ValueError as error:
            if record.topic == v1.PLAN:  # the other topics have a reader already that buries theirs
                await self._bury(record, error)
            return None
        return told if told.cluster == self._cluster else None

    async def _bury(self, record: Came, error: Exception) -> None:
        try:
            await self._dead.bury(record, refused(error))
        except NotPublished:
            log.warning("dead letter not published", topic=record.topic, offset=record.offset)

    # -- reading ---------------------------------------------------------------------------------------------

    async def _take(self, record: Came) -> None:
        told = await self._understood(record)
        if told is None:
            return
        if isinstance(told.content, Barrier):
            await self._barrier(record.topic, told.content)
        elif self._gate.lockstep and self.ready.is_set():
            self._held.append((record, told))
        else:
            await self._hear_safely(record, told)
        self._wake.set()
        self.health.round(1)

    async def _hear_safely(self, record: Came, told: Received) -> None:
        try:
            self._hear(record, told)
        except Exception as error:  # noqa: BLE001 - one plan that the actor cannot stand must not stop the others
            await self._bury(record, error)

    def _hear(self, record: Came, told: Received) -> None:
        now = self._gate.now()
        match told.content:
            case TermRecord():
                self.actor.seen_term(record.offset)
            case Plan() as plan:
                if plan.term <= record.offset:  # a term is an offset before its plans, whatever else it claims
                    self.actor.seen_term(plan.term)
                self._told.heard(plan)
                self._told.add(self.actor.plan(plan, now))
            case Approved() as approved:
                self.actor.approve(approved.plan)
            case content if (brakes := self._brakes.read(content)) is not None:
                self._told.add(self.actor.control(brakes, now))

    # -- acting ----------------------------------------------------------------------------------------------

    async def _drive(self) -> None:
        while True:
            await self._sleep()
            await self._may_act.wait()
            self.health.round(0)  # an act with nothing to do is alive
            calls = self.actor.advance(self._gate.now())
            self._told.add(self.actor.outcomes())
            if not self._told.empty and not self._told.offering:
                self._beside.begin(self._flush())
            for call_id, call in calls:
                self._beside.begin(self._perform(call_id, call))

    async def _flush(self) -> None:
        if self._silent_since is None:
            await self._told.flush(self._within)

    async def _sleep(self) -> None:
        """Until something came, or the actor wants to be woken; never longer than its own polling pace."""
        now = self._gate.now()
        due = self.actor.next_wake(now)
        longest = self.policy.acting.poll.total_seconds()
        left = longest if due is None else min(longest, max(0.0, (due - now).total_seconds()))
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.clear()

    async def _perform(self, call_id: int, call: Call) -> None:
        with bound_contextvars(**concerned(call)):  # whatever is logged on the way says which plan, gang and loan
            if writes(call):  # what was told of it comes first, so that a successor knows what may be half done
                await self._flush()
            async with self._slots:
                came_back = await answer(self._hands, call, self._within)
            try:
                self._told.add(self.actor.answered(call_id, came_back, self._gate.now()))
            except Exception:
                log.exception("an answer could not be taken in", call=call.kind)
                self.health.metrics.failures.labels("act").inc()
        self._wake.set()

    # -- lockstep ----------------------------------------------------------------------------------------------

    async def _barrier(self, topic: str, barrier: Barrier) -> None:
        before = self._gate.now()
        complete = self._gate.arrived(topic, barrier)
        if complete is None:
            return
        if self._gate.now() != before:
            self._silent_since = None
            held, self._held = self._held, []
            for record, told in sorted(held, key=lambda one: (INPUTS.index(one[0].topic), one[0].offset)):
                await self._hear_safely(record, told)
            await self._until_quiet(self._gate.now())
        await self._told.flush(self._within)
        if not self._told.empty:
            return  # the barrier may not overtake what it stands for; it is asked for again
        await self._publisher.post(encode_barrier(v1.OUTCOME, complete, self._cluster), self._cluster)
        if self._on_barrier is not None:
            self._on_barrier(complete)

    async def _until_quiet(self, moment: datetime) -> None:
        for _ in range(ROUNDS):
            calls = self.actor.advance(moment)
            self._told.add(self.actor.outcomes())
            if not calls:
                return
            for call_id, call in calls:
                came_back = await answer(self._hands, call, self._within)
                self._told.add(self.actor.answered(call_id, came_back, moment))

    # -- without Kafka -----------------------------------------------------------------------------------------

    async def alone(self, now: datetime) -> None:
        """A moment without Kafka: go on with what is open, and after a while take home what falls due."""
        self._silent_since = self._silent_since or now
        await self._take_home(now, now - self._silent_since)
        if self._gate.lockstep:
            await self._until_quiet(now)
        self._wake.set()

    async def back(self) -> bool:
        """Kafka hears again: what waited is told before anybody decides; whether all of it was taken."""
        await self._told.flush(self._within)
        return self._told.empty

    def _heard(self) -> None:
        self._silent_since = None
        self._strays.forget()

    async def _silent(self, silent: timedelta) -> None:
        if not self._may_act.is_set():
            return
        self._silent_since = self._silent_since or self._gate.now() - silent
        await self.alone(self._gate.now())

    async def _take_home(self, now: datetime, silent: timedelta) -> None:
        """Eyes that cannot see either must not end what is still under way: they are asked again in the next moment."""
        try:
            async with asyncio.timeout(LOOK):
                brakes = await brakes_now(self._eyes, self.actor.brakes)
                plans = await due_now(self._eyes, self.policy, now, self.actor.term, silent, brakes, self._strays)
        except Exception:
            self.health.metrics.failures.labels("act").inc()
            log.exception("what falls due cannot be seen")
            return
        self._told.add(self.actor.control(brakes, now))
        for plan in plans:
            self._told.decided(plan)
            self._told.add(self.actor.plan(plan, now))
