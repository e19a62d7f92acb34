"""The collect role: what a cluster's eyes see becomes facts on Kafka, with marks around full lists.

One holder at a time. A list is told on start, whenever somebody asks on the control topic, after changes were missed
or could not be published, and now and then. Its begin is told before the cluster is asked, so that an object that
appears meanwhile counts as listed, and so that a list that cannot be had is seen to hang. Everything is acknowledged;
what was not is never posted again by itself, behind something newer: a list follows. While the broker is silent each
attempt ends in time, so that the role is alive. Nothing is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import came, consumer_at
from rebalancer.adapters.streams.publish import PATIENCE, NotPublished, Posted, Publisher
from rebalancer.adapters.translate import (
    SnapshotRequested,
    WireError,
    encode_deleted,
    encode_demand,
    encode_fact,
    encode_sample,
    encode_snapshot,
    read,
)
from rebalancer.core.ports import Eyes, SightLost
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved, SnapshotBegan, SnapshotEnded
from rebalancer.core.telemetry import DemandSample, NodeSample
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record

log = structlog.get_logger(__name__)
KINDS: tuple[FactKind, ...] = ("node", "pod", "budget", "group", "namespace", "control")
AGAIN = 2.0  # seconds before what failed is tried again
IN_FLIGHT = 5_000
"""Records that may wait for their acknowledgement at once."""
Now = Callable[[], datetime]


class Teller:
    """Tells facts, lists and samples of one cluster; the simulator's driver uses it too.

    With ``again`` false what fails is not posted again, and telling ends with the first record that is not taken.
    """

    def __init__(self, publisher: Publisher, cluster: str, *, again: bool = True) -> None:
        self.cluster = cluster
        self._publisher, self._again = publisher, again
        self._posted: list[Posted] = []

    async def changes(self, changes: Iterable[FactObserved | FactDeleted]) -> None:
        """What changed, in the order seen."""
        for change in changes:
            if isinstance(change, FactObserved):
                await self.post(encode_fact(change.fact, self.cluster, change.at))
            else:
                await self.post(encode_deleted(change, self.cluster))

    async def listing(self, of: FactKind, facts: Sequence[Fact], at: datetime, name: str) -> None:
        """A full list between its marks."""
        await self.began(of, at, name)
        await self.listed(of, facts, at, name)

    async def began(self, of: FactKind, at: datetime, name: str) -> None:
        """A full list follows."""
        await self.post(encode_snapshot(SnapshotBegan(of, name, at), self.cluster))

    async def listed(self, of: FactKind, facts: Sequence[Fact], at: datetime, name: str) -> None:
        """The objects of the list that began, and its end."""
        for fact in facts:
            await self.post(encode_fact(fact, self.cluster, at))
        await self.post(encode_snapshot(SnapshotEnded(of, name, len(facts), at), self.cluster))

    async def samples(self, samples: Iterable[NodeSample]) -> None:
        """One record a node and scrape."""
        for sample in samples:
            await self.post(encode_sample(sample, self.cluster))

    async def demands(self, demands: Iterable[DemandSample]) -> None:
        """What pools want."""
        for demand in demands:
            await self.post(encode_demand(demand, self.cluster))

    async def post(self, record: Record) -> None:
        """Hand over any record; waits only when too many are in flight. Raises NotPublished unless told again."""
        posted = await self._publisher.post(record, self.cluster)
        self._posted.append(posted)
        if (not self._again and posted.refused) or len(self._posted) >= IN_FLIGHT:
            await self.settle()

    async def settle(self, patience: float = PATIENCE) -> None:
        """All that was told is acknowledged when this returns; raises NotPublished after so many seconds."""
        posted, self._posted = self._posted, []
        await self._publisher.settle(posted, patience, again=self._again)

    def forget(self) -> None:
        """What was told so far is nobody's concern any more: it will be told anew."""
        self._posted = []


class Collect:
    """Runs until cancelled."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        kafka: KafkaSettings,
        eyes: Eyes,
        publisher: Publisher,
        cluster: str,
        metrics: Metrics,
        now: Now = lambda: datetime.now(UTC),
        health: Health | None = None,
        lists_every: float | None = None,
    ) -> None:
        self.health = health or Health("collect", metrics)
        self._kafka, self._eyes, self._now = kafka, eyes, now
        # Each learns what of its own was not taken, and neither posts it again: the other may have told newer of it.
        self._publisher, self._teller = publisher, Teller(publisher, cluster, again=False)
        self._lister = Teller(publisher, cluster, again=False)
        self._asked: dict[FactKind, None] = dict.fromkeys(KINDS)
        self._asking = asyncio.Event()
        self._asking.set()
        self._lists_every = lists_every
        self._turn = asyncio.Lock()  # what a list says and what changed since are told in the order they were seen
        self._list_at = datetime.max.replace(tzinfo=UTC)
        self._overtaken: set[str] = set()
        """Objects that were seen deleted or changed since the list under way began; it says nothing new of them."""

    async def run(self) -> None:
        """Full lists of everything, then changes; lists again when asked for, after a failure, and now and then."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="collect-requests")
            group.create_task(self._answer(), name="collect-lists")
            group.create_task(self._follow(), name="collect-changes")
            if self._lists_every is not None:
                group.create_task(self._repeat(self._lists_every), name="collect-again")

    def ask(self, of: FactKind) -> None:
        """A full list of this kind is wanted."""
        self._asked[of] = None
        self._asking.set()

    async def _answer(self) -> None:
        while True:
            await self._asking.wait()
            self._asking.clear()
            wanted, self._asked = list(self._asked), {}
            for of in wanted:
                if not await self._tell_list(of):
                    await asyncio.sleep(AGAIN)
                    self.ask(of)

    async def _tell_list(self, of: FactKind) -> bool:
        self._lister.forget()
        try:
            async with asyncio.timeout(PATIENCE), self._turn:  # a change that overtakes it is not told before its begin
                at, name = self._now(), uuid4().hex  # before the read: what is seen after it is newer than the list
                self._list_at, self._overtaken = at, set()
                await self._lister.began(of, at, name)
            facts = await self._eyes.snapshot(of)
            async with asyncio.timeout(PATIENCE):
                async with self._turn:
                    facts = [fact for fact in facts if fact.uid not in self._overtaken]
                    await self._lister.listed(of, facts, at, name)
                await self._lister.settle()
        except (ConnectionError, TimeoutError) as error:
            log.warning("list not told, trying again", kind=of, error=str(error) or type(error).__name__)
            self.health.metrics.failures.labels("collect").inc()
            return False
        self.health.round(len(facts))
        return True

    async def _follow(self) -> None:
        while True:
            try:
                changes = await self._eyes.changes()
            except SightLost as lost:
                log.warning("changes may have been missed, lists will follow", error=str(lost))
                self._ask_all(lost.kinds)  # told once a loss: there is nothing to wait for
                continue
            except (ConnectionError, TimeoutError) as error:
                log.warning("changes not seen, lists will follow", error=str(error))
                await self._lost()
                continue
            try:
                await self._tell_changes(changes)
            except (NotPublished, TimeoutError) as error:
                why = str(error) or type(error).__name__
                log.warning("changes not told, lists will follow", count=len(changes), error=why)
                await self._lost()
            self.health.round(len(changes))
            await asyncio.sleep(0)  # eyes that have nothing to wait for must not starve the others

    async def _tell_changes(self, changes: Sequence[FactObserved | FactDeleted]) -> None:
        self._teller.forget()
        await self._in_turn()
        async with asyncio.timeout(PATIENCE):
            try:
                self._overtaken.update(
                    change.uid if isinstance(change, FactDeleted) else change.fact.uid
                    for change in changes
                    if isinstance(change, FactDeleted) or change.at > self._list_at
                )
                await self._teller.changes(changes)
            finally:
                self._turn.release()
            await self._teller.settle()

    async def _in_turn(self) -> None:
        """Our turn to tell; waiting for it is no sign of death, for whoever has it is bounded itself."""
        while True:
            try:
                async with asyncio.timeout(AGAIN):
                    await self._turn.acquire()
            except TimeoutError:
                self.health.round(0)
            else:
                return

    async def _lost(self) -> None:
        self._ask_all(KINDS)
        await asyncio.sleep(AGAIN)

    def _ask_all(self, kinds: Iterable[FactKind]) -> None:
        self.health.metrics.failures.labels("collect").inc()
        for of in kinds:
            self.ask(of)

    async def _repeat(self, every: float) -> None:
        """Repairs what no watch and no acknowledgement showed as missed."""
        while True:
            await asyncio.sleep(every)
            for of in KINDS:
                self.ask(of)

    async def _listen(self) -> None:
        """Requests on the control topic from now on; older ones were met by the list at the start."""
        while True:
            try:
                async with consumer_at(self._kafka) as consumer:
                    place = TopicPartition(v1.CONTROL, self._publisher.partition(self._teller.cluster))
                    consumer.assign([place])
                    await consumer.seek_to_end(place)
                    while True:
                        self._requests((await consumer.getmany(timeout_ms=500)).get(place, ()))
            except (KafkaError, ConnectionError) as error:
                log.warning("requests not heard, trying again", error=str(error))
                await asyncio.sleep(AGAIN)

    def _requests(self, records: Iterable[Any]) -> None:
        for record in map(came, records):
            try:
                told = read(record.topic, record.key, record.value, record.headers)
            except WireError:
                continue  # decide reads the same topic and buries it
            if told.cluster == self._teller.cluster and isinstance(told.content, SnapshotRequested):
                self.ask(told.content.of)
