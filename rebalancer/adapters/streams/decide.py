"""The decide role: a Faust app on everything a decision needs, one engine for each cluster of its partitions.

All inputs of a cluster lie on one partition number, which Faust co-assigns. The agent only reads, buries what
cannot be read, and hands over to the partition's desk; offsets are committed when the desk is done with them.
No exception leaves a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from aiokafka.errors import IllegalStateError
from faust.types import TP

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.app import AppSettings, highwater, make_app
from rebalancer.adapters.streams.decider import Decider
from rebalancer.adapters.streams.desk import Desk, Item, Left
from rebalancer.adapters.streams.dlq import DeadLetters
from rebalancer.adapters.streams.gate import Gate, ImmediateGate
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import Received, read
from rebalancer.core.policy import Policy
from rebalancer.core.stimuli import PolicyAdopted, PolicyRefused
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
INPUTS = (
    *v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEMAND, v1.STATE_NODE, v1.STATE_TELEMETRY, v1.OUTCOME,
)  # fmt: skip
GROUP = "gpu-rebalancer-decide"


class Decide:
    """One worker. ``policies``: policy and its digest by cluster; clusters that are not named are nobody's here."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        settings: AppSettings,
        policies: Mapping[str, tuple[Policy, str]],
        publisher: Publisher,
        metrics: Metrics,
        gate_of: Callable[[str], Gate] = lambda _: ImmediateGate(),
        name: str = "decide",
    ) -> None:
        self.health = Health("decide", metrics)
        self.desks: dict[int, Desk] = {}
        self.app = make_app(settings)
        self.health.ended = lambda: bool(self.app.crashed)
        self._settings, self._policies, self._gate_of, self._name = settings, dict(policies), gate_of, name
        self._publisher, self._metrics = publisher, metrics
        self._dead = DeadLetters(publisher, metrics, "decide")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wire_up()

    async def start(self) -> None:
        """Join the group."""
        await self.app.start()

    async def stop(self) -> None:
        """Leave the group; what is not handled stays uncommitted."""
        await self._drop(list(self._tasks))
        await self.app.stop()

    async def ready(self, within: float = 60.0) -> None:
        """Wait until partitions are assigned and loaded; raises TimeoutError."""
        async with asyncio.timeout(within):
            while not self._all_ready():  # noqa: ASYNC110 - desks come and go, no event outlives them
                await asyncio.sleep(0.02)

    def _all_ready(self) -> bool:
        return bool(self.desks) and all(desk.ready.is_set() for desk in self.desks.values())

    def decider(self, cluster: str) -> Decider | None:
        """The decider of a cluster, if it is ours and loaded."""
        return next((desk.deciders[cluster] for desk in self.desks.values() if cluster in desk.deciders), None)

    async def adopt(self, cluster: str, policy: Policy, digest: str) -> None:
        """A new policy is in force for a cluster, here and for whatever is assigned later."""
        self._policies[cluster] = (policy, digest)
        await self._tell(cluster, PolicyAdopted(policy, digest))

    async def refuse(self, cluster: str, why: str) -> None:
        """A policy was refused; the engine raises the alert."""
        await self._tell(cluster, PolicyRefused(why, self._gate_of(cluster).now()))

    async def _tell(self, cluster: str, stimulus: PolicyAdopted | PolicyRefused) -> None:
        """Through the desk, like everything else: its task owns the engine."""
        desk = self.desks.get(self._publisher.partition(cluster))
        if desk is not None:
            told = Received("policy", cluster, "", None, stimulus)
            await desk.put(Item(Came("policy", desk.partition, 0, b"", None, ()), told, _nothing))

    def _wire_up(self) -> None:
        self.app.agent(self.app.topic(*INPUTS), name="decide", concurrency=1)(self._consume)
        self.app.on_partitions_assigned.connect(self._assigned, weak=False)
        self.app.on_partitions_revoked.connect(self._revoked, weak=False)

    async def _consume(self, stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            came = Came(
                message.topic, message.partition, message.offset, message.key or b"", message.value, _headers(message)
            )
            await self._take(came, partial(stream.ack, event))

    async def _take(self, came: Came, done: Callable[[], Any]) -> None:
        try:
            told = read(came.topic, came.key, came.value, came.headers, datetime.now(UTC))
        except Exception as error:  # noqa: BLE001 - nothing that a record holds may stop the stream
            await self._dead.bury_surely(came, error)
            await done()
            return
        await self._desk(came.partition).put(Item(came, told, done))

    # -- assignments -----------------------------------------------------------------------------------------

    async def _assigned(self, _: Any, assigned: Iterable[Any], **__: Any) -> None:
        for partition in sorted({tp.partition for tp in assigned if tp.topic in INPUTS}):
            self._desk(partition)

    async def _revoked(self, _: Any, revoked: Iterable[Any], **__: Any) -> None:
        await self._drop(sorted({tp.partition for tp in revoked if tp.topic in INPUTS}))

    def _desk(self, partition: int, left: Left | None = None) -> Desk:
        """The partition's desk; begun by its assignment, or by its first event, which may come earlier."""
        desk = self.desks.get(partition)
        if desk is None:
            make = partial(self._deciders, partition)
            wait = self._settings.fetch_wait_ms
            desk = Desk(partition, self._settings.kafka, make, self._dead, self.health, self, wait, left)
            self.desks[partition] = desk
            self._tasks[partition] = asyncio.create_task(desk.run(), name=f"desk-{partition}")
            self._tasks[partition].add_done_callback(partial(self._ended, partition))
        return desk

    def _ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """A desk that failed is dropped; a new one loads again, and is told what the old one did not finish."""
        if task.cancelled() or self._tasks.get(partition) is not task:
            return
        log.error("desk ended", partition=partition, error=repr(task.exception()))
        del self._tasks[partition]
        old = self.desks.pop(partition, None)
        lost = isinstance(task.exception(), ConnectionError)
        self._desk(partition, old.unfinished(again=lost) if old is not None else None)

    async def _drop(self, partitions: Collection[int]) -> None:
        tasks = [self._tasks.pop(one) for one in partitions if one in self._tasks]
        dropped = [self.desks.pop(one) for one in partitions if one in self.desks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for desk in dropped:
            desk.close()

    def _deciders(self, partition: int) -> dict[str, Decider]:
        waiting = partial(self.health.round, 0)  # who waits for the broker is alive: a restart would not bring it back
        return {
            cluster: Decider(
                cluster, policy, digest, self._gate_of(cluster), self._publisher, self._metrics, self._name, waiting
            )
            for cluster, (policy, digest) in sorted(self._policies.items())
            if self._publisher.partition(cluster) == partition
        }

    # -- progress, as the desks ask for it ----------------------------------------------------------------------

    async def position(self, topic: str, partition: int) -> int | None:
        """The next offset that the consumer will fetch; None while the partition changes hands."""
        try:
            found: int | None = await self.app.consumer.position(TP(topic, partition))
        except IllegalStateError:
            return None
        return found

    def highwater(self, topic: str, partition: int) -> int:
        """The end as the broker last told it."""
        return highwater(self.app, topic, partition)


def _headers(message: Any) -> list[tuple[str, bytes]]:
    found = message.headers or ()
    return list(found.items()) if isinstance(found, Mapping) else list(found)


async def _nothing() -> None:
    """What is told from here has no offset."""
