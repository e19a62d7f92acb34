"""One assigned partition of decide: load, then handle what comes, batch by batch, then let offsets be committed.

Events wait in a bounded mailbox while the state is loaded or a plan is made, so they coalesce and none is handled
before its partition is ready. Any exception while handling one event sends that event to the dead letters and the
stream goes on. When the partition is taken away, everything here is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import structlog
from aiokafka.errors import KafkaError

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decider import Decider
from rebalancer.adapters.streams.dlq import DeadLetters, refused
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came, Loaded, read_to_end
from rebalancer.adapters.streams.restore import LOADED, TAILS, counts, rebuild
from rebalancer.adapters.translate import Barrier, Received, SnapshotRequested, Tombstone, WireError
from rebalancer.core.stimuli import FactDeleted, FactObserved, HeartbeatHeard, VerdictGiven
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
MAILBOX = 4_096
BATCH = 1_000
TICK = 1.0
"""Seconds after which time alone is a reason to plan."""
TAIL = timedelta(hours=2)
"""How far back plans and outcomes are read: longer than any plan is valid."""
AGAIN = 2.0  # seconds between attempts to load
STREAMED = (v1.CONTROL, v1.SAMPLE_DEMAND)
"""Inputs that are not loaded: the stream tells them from where the group left off."""


class Item(NamedTuple):
    """An event that could be read. ``done`` lets its offset be committed."""

    came: Came
    told: Received
    done: Callable[[], Awaitable[object]]


class Left(NamedTuple):
    """What a desk was handed and did not finish: the mailbox itself, since somebody may wait to put into it."""

    mailbox: asyncio.Queue[Item]
    batch: Sequence[Item]


class Progress(Protocol):
    """What the consumer knows about a partition of a topic."""

    async def position(self, topic: str, partition: int) -> int | None:
        """The next offset to be fetched."""

    def highwater(self, topic: str, partition: int) -> int:
        """The end as the broker last told it."""


class Desk:
    """Runs while its partition is assigned. ``left``: what the desk before it took and did not finish."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        partition: int,
        kafka: KafkaSettings,
        make: Callable[[], Mapping[str, Decider]],
        dead: DeadLetters,
        health: Health,
        progress: Progress,
        fetch_wait_ms: int | None = None,
        left: Left | None = None,
    ) -> None:
        self.partition = partition
        self.deciders: Mapping[str, Decider] = {}
        self._kafka, self._make, self._fetch_wait_ms = kafka, make, fetch_wait_ms
        self._dead, self._health, self._progress = dead, health, progress
        self._loaded = Loaded({}, {}, {})
        self._mailbox, self._batch = left or Left(asyncio.Queue(MAILBOX), ())
        self._handled: dict[str, int] = {}
        self._catching_up = True
        self.ready = asyncio.Event()

    async def put(self, item: Item) -> None:
        """Hand over an event; waits while the mailbox is full."""
        await self._mailbox.put(item)

    async def run(self) -> None:
        """Load, then handle events until cancelled."""
        self._health.began(self.partition)
        try:
            await self._begin()
            self._health.loaded(self.partition)
            self.ready.set()
            while True:
                self._batch = self._batch or await self._take()
                await self._round(self._batch)
                self._batch = ()
        except Exception:
            await asyncio.sleep(AGAIN)  # a successor begins at once: it must not spin
            raise
        finally:
            self._health.loaded(self.partition)

    def close(self) -> None:
        """Nobody takes from the mailbox any more: whoever waits to put into it must not wait for ever."""
        for decider in self.deciders.values():
            decider.close()
        while not self._mailbox.empty():
            self._mailbox.get_nowait()

    def unfinished(self, *, again: bool) -> Left:
        """What was handed over and is not done: the stream does not tell it again.

        ``again``: with the batch under way; without it, a batch that is itself what nobody can stand is let go.
        """
        return Left(self._mailbox, self._batch if again else ())

    # -- beginning -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        while True:
            try:
                await self._load()
            except (KafkaError, ConnectionError, TimeoutError) as error:
                log.warning("cannot load, trying again", partition=self.partition, error=str(error))
                self._health.round(0)  # who waits for the broker is alive
                await asyncio.sleep(AGAIN)
            else:
                return

    async def _load(self) -> None:
        """The term comes first: whatever an older decider publishes after it is refused, so nothing is missed."""
        deciders = self._make()
        for decider in deciders.values():
            await decider.claim()
        now = datetime.now(UTC)
        since = {**dict.fromkeys(TAILS, now - TAIL), **dict.fromkeys(STREAMED, now)}
        topics = (*LOADED, *STREAMED)
        loaded = await read_to_end(self._kafka, topics, self.partition, since, self._fetch_wait_ms)
        for decider in deciders.values():
            found = await asyncio.to_thread(rebuild, loaded, decider.cluster, decider.gate.now())
            if found.barrier is not None:
                decider.gate.resume(found.barrier)
            if found.unreadable:
                log.error("records passed over while loading", cluster=decider.cluster, count=found.unreadable)
            await decider.begin(found.stimuli)
            log.info("loaded", cluster=decider.cluster, term=decider.term, **counts(found.stimuli))
        self._loaded, self.deciders = loaded, deciders

    # -- rounds ----------------------------------------------------------------------------------------------

    async def _take(self) -> Sequence[Item]:
        """Everything that has arrived; after a tick also nothing."""
        try:
            async with asyncio.timeout(TICK):
                first = await self._mailbox.get()
        except TimeoutError:
            return ()
        batch = [first]
        while len(batch) < BATCH and not self._mailbox.empty():
            batch.append(self._mailbox.get_nowait())
        return batch

    async def _round(self, batch: Sequence[Item]) -> None:
        for item in batch:
            try:
                await self._handle(item)
            except ConnectionError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever one event does, the stream goes on
                await self._dead.bury(item.came, refused(error))
        for decider in self.deciders.values():
            await self._plan(decider, batch)
            await decider.publish()
        for item in batch:
            self._handled[item.came.topic] = item.came.offset
            await item.done()
        self._health.round(len(batch))

    async def _handle(self, item: Item) -> None:
        content = item.told.content
        decider = self.deciders.get(item.told.cluster)
        if decider is None and isinstance(content, FactDeleted | Tombstone) and not item.told.cluster:
            await self._forget(item)
        elif decider is None:
            raise WireError("route", f"nobody here decides for cluster {item.told.cluster!r:.80}")
        elif isinstance(content, Barrier):
            await self._barrier(decider, item.came.topic, content)
        elif not isinstance(content, Tombstone | SnapshotRequested) and not self._known(item, decider):
            await decider.apply(content)  # type: ignore[arg-type]  # what else lies on our inputs is a stimulus

    async def _forget(self, item: Item) -> None:
        """A tombstone without headers: uids are unique everywhere, so all engines may hear of it."""
        if isinstance(item.told.content, FactDeleted):
            for decider in self.deciders.values():
                await decider.apply(item.told.content)

    def _known(self, item: Item, decider: Decider) -> bool:
        """Whether it was loaded already; in lockstep barriers stand for heartbeats, which come in no order."""
        if decider.gate.lockstep and isinstance(item.told.content, HeartbeatHeard):
            return True
        return item.came.topic in LOADED and self._loaded.covers(item.came.topic, item.came.offset)

    async def _barrier(self, decider: Decider, topic: str, barrier: Barrier) -> None:
        before = decider.gate.now()
        complete = decider.gate.arrived(topic, barrier)
        if complete is None:
            return
        if decider.gate.now() == before:
            await decider.answer(complete)  # asked again: it was planned, the answer may have been lost
        else:
            await decider.step(complete)

    async def _plan(self, decider: Decider, batch: Sequence[Item]) -> None:
        if decider.gate.lockstep:
            return
        await self._measure(decider, batch)
        if not batch or decider.engine.dirty:
            await self._guarded(decider)

    async def _guarded(self, decider: Decider) -> None:
        try:
            await decider.plan()
        except ConnectionError:
            raise
        except Exception:
            self._health.metrics.failures.labels("decide").inc()
            log.exception("planning failed", cluster=decider.cluster)

    async def _measure(self, decider: Decider, batch: Sequence[Item]) -> None:
        """Tell the engine and the metrics how far the inputs are behind (CASES D10)."""
        if self._catching_up:
            self._catching_up = await self._unread()
        waiting = sum(max(0, self._progress.highwater(t, self.partition) - at - 1) for t, at in self._handled.items())
        newest = max((at for at in map(_moment, batch) if at is not None), default=None)
        seconds = (decider.gate.now() - newest).total_seconds() if waiting and newest is not None else 0.0
        freshness = decider.engine.state.policy.activities.freshness.total_seconds()
        behind = self._catching_up or seconds > freshness
        self._health.lagged(waiting, max(0.0, seconds), behind=behind)
        await decider.lagged(max(0.0, seconds), behind=behind)

    async def _unread(self) -> bool:
        """Whether records that lay there at assignment, and are not loaded, have not been fetched yet."""
        for topic in STREAMED:
            end = self._loaded.ends.get(topic, 0)
            position = await self._progress.position(topic, self.partition) if end else None
            if position is not None and position < end:
                return True
        return not self._mailbox.empty()


def _moment(item: Item) -> datetime | None:
    return item.told.at if isinstance(item.told.content, FactObserved | VerdictGiven) else None
