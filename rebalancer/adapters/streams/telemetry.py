"""The telemetry role: a Faust app on device samples, one judge a node, verdicts told when they change.

Volume ends here. The windows live in memory and refill after a restart; windows of partitions that stay ours over
a rebalance are kept, since each sample carries its own time. What a verdict is worth is the core's to say; no
exception leaves a handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.app import AppSettings, highwater, make_app
from rebalancer.adapters.streams.dlq import DeadLetters
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.publish import NotPublished, Posted, Publisher
from rebalancer.adapters.translate import Barrier, encode_barrier, encode_heartbeat, encode_verdict, read
from rebalancer.core.activity import NodeJudge
from rebalancer.core.policy import Policy
from rebalancer.core.telemetry import Heartbeat, NodeSample, Verdict, after, worth_telling
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
GROUP = "gpu-rebalancer-telemetry"
BEAT = 30.0
"""Seconds between heartbeats, at most."""
BEATS_WITHIN = 3
"""Heartbeats within the shortest freshness: what they cover stays fresh though one is late."""
LOOK = 5.0
"""Seconds between looks for nodes that fell silent, at most."""
FORGET_AFTER = 86_400.0
"""Seconds of silence after which a node's judge is forgotten: it was deleted long ago."""


@dataclass(slots=True)
class Window:
    """What is known of one sample partition. ``told`` is the last verdict published, by (cluster, node)."""

    judges: dict[tuple[str, str], NodeJudge] = field(default_factory=dict)
    told: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    last: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """Of when the last verdict was that was handed over, whether or not it was acknowledged."""
    outdated: set[tuple[str, str]] = field(default_factory=set)
    """Whose judge goes by a policy that is no longer in force; it still tells when its node falls silent."""
    newest: datetime | None = None
    now: datetime | None = None
    """Simulated time of the last barrier; None outside of lockstep."""
    offset: int = -1


class Telemetry:
    """One worker. ``lockstep``: judge at barriers, as of their time, instead of at each sample."""

    def __init__(
        self,
        settings: AppSettings,
        policies: Mapping[str, Policy],
        publisher: Publisher,
        metrics: Metrics,
        worker: str = "telemetry",
        *,
        lockstep: bool = False,
    ) -> None:
        self.health = Health("telemetry", metrics)
        self.windows: dict[int, Window] = {}
        self.app = make_app(settings)
        self.health.ended = lambda: bool(self.app.crashed)
        self._policies, self._worker, self._lockstep = dict(policies), worker, lockstep
        self._publisher, self._metrics = publisher, metrics
        self._dead = DeadLetters(publisher, metrics, "telemetry")
        self._beaten: datetime | None = None
        self._posted: list[Posted] = []
        self._timer: asyncio.Task[None] | None = None
        self.app.agent(self.app.topic(v1.SAMPLE_DEVICE), name="telemetry", concurrency=1)(self._consume)
        self.app.on_partitions_assigned.connect(self._assigned, weak=False)

    async def start(self) -> None:
        """Join the group."""
        await self.app.start()
        if not self._lockstep:
            self._timer = asyncio.create_task(self._watch(), name="telemetry-timer")

    async def stop(self) -> None:
        """Leave the group."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)
        await self.app.stop()

    async def ready(self, within: float = 60.0) -> None:
        """Wait until partitions are assigned; raises TimeoutError."""
        async with asyncio.timeout(within):
            while not self.windows:  # noqa: ASYNC110 - windows come and go, no event outlives them
                await asyncio.sleep(0.02)

    def adopt(self, cluster: str, policy: Policy) -> None:
        """Another policy is in force: each node is judged by it, from an empty window, when its next sample comes."""
        before, self._policies[cluster] = self._policies[cluster], policy
        if before.activities == policy.activities and _believes(before) == _believes(policy):
            return
        for window in self.windows.values():
            window.outdated |= {key for key in window.judges if key[0] == cluster}

    async def _assigned(self, _: Any, assigned: Iterable[Any], **__: Any) -> None:
        ours = {tp.partition for tp in assigned if tp.topic == v1.SAMPLE_DEVICE}
        self.windows = {one: self.windows.get(one) or Window() for one in sorted(ours)}

    async def _consume(self, stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            headers = message.headers or ()
            pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
            await self.take(
                Came(message.topic, message.partition, message.offset, message.key or b"", message.value, pairs)
            )
            await stream.ack(event)

    async def take(self, came: Came) -> None:
        """Handle one record, whatever it holds; what it says is acknowledged or the record is a dead letter."""
        try:
            told = read(came.topic, came.key, came.value, came.headers)
            if isinstance(told.content, NodeSample):
                await self._sample(told.content, told.cluster, came)
            elif isinstance(told.content, Barrier):
                await self._barrier(told.content, told.cluster, came.partition)
        except NotPublished:
            self._retell(came.partition)
        except Exception as error:  # noqa: BLE001 - nothing that a record holds may stop the stream
            await self._dead.bury_surely(came, error)
        self.health.round(1)

    async def _sample(self, sample: NodeSample, cluster: str, came: Came) -> None:
        window = self.windows.setdefault(came.partition, Window())
        window.offset = came.offset
        key = (cluster, sample.node)
        judge = window.judges.get(key)
        if judge is None or key in window.outdated:
            judge = window.judges[key] = self._judge(cluster)
            window.outdated.discard(key)
        now = (window.now or sample.at) if self._lockstep else datetime.now(UTC)
        before = sum(judge.dropped.values())
        judge.observe(sample, now)
        self._metrics.late.inc(sum(judge.dropped.values()) - before)
        if window.newest is None or sample.at > window.newest:
            window.newest = sample.at
        if not self._lockstep and await self._tell(window, key, judge.verdict(now, came.partition)):
            await self._settle()

    def _judge(self, cluster: str) -> NodeJudge:
        policy = self._policies[cluster]
        return NodeJudge(policy.activities, _believes(policy))

    async def _tell(self, window: Window, key: tuple[str, str], verdict: Verdict) -> bool:
        if not verdict.node or not worth_telling(window.told.get(key), verdict):
            return False
        window.told[key], cluster = verdict, key[0]
        verdict = after(window.last.get(key), verdict)
        window.last[key] = verdict.at
        self._posted.append(await self._publisher.post(encode_verdict(verdict, cluster), cluster))
        return True

    async def _settle(self) -> None:
        posted, self._posted = self._posted, []
        await self._publisher.settle(posted)

    # -- lockstep ------------------------------------------------------------------------------------------------

    async def _barrier(self, barrier: Barrier, cluster: str, partition: int) -> None:
        """All samples of the step are in: judge, tell, and pass the barrier on behind what was told."""
        window = self.windows.setdefault(partition, Window())
        if window.now == barrier.now:
            await self._settle()  # asked again: what was told may have been lost with the broker
        await self._look(partition, window, barrier.now)
        window.now = barrier.now
        await self._beat(barrier.now)
        onward = Barrier(barrier.step, barrier.now, str(partition))
        self._posted.append(await self._publisher.post(encode_barrier(v1.STATE_NODE, onward, cluster), cluster))
        if len(self._posted) > 1_000:
            await self._settle()

    # -- time ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Nodes that fell silent turn unknown, and the heartbeat says that we are here."""
        while True:
            await asyncio.sleep(min(LOOK, self._beat_every / 2))
            self.health.round(0)  # a worker that nobody sends samples to is alive
            now = datetime.now(UTC)
            try:
                for partition, window in list(self.windows.items()):
                    await self._look(partition, window, now)
                await self._beat(now)
                await self._settle()
            except NotPublished:
                self._retell(*self.windows)

    def _retell(self, *partitions: int) -> None:
        """What was not acknowledged counts as never told, so that the next look tells it."""
        self._metrics.failures.labels("telemetry").inc()
        for window in [self.windows[one] for one in partitions if one in self.windows]:
            window.told.clear()

    async def _look(self, partition: int, window: Window, now: datetime) -> None:
        for key, judge in sorted(window.judges.items()):
            await self._tell(window, key, judge.verdict(now, partition))
            if judge.newest is not None and (now - judge.newest).total_seconds() > FORGET_AFTER:
                del window.judges[key]
                window.told.pop(key, None)
                window.last.pop(key, None)
                window.outdated.discard(key)

    @property
    def _beat_every(self) -> float:
        """Seconds between heartbeats: a policy that believes nothing for long is told often."""
        shortest = min(policy.activities.freshness for policy in self._policies.values())
        return min(BEAT, shortest.total_seconds() / BEATS_WITHIN)

    async def _beat(self, now: datetime) -> None:
        """One heartbeat a cluster every so often; while behind, only up to what was judged."""
        if self._beaten is not None and (now - self._beaten).total_seconds() < self._beat_every:
            return
        self._beaten = now
        windows = () if self._lockstep else self.windows.values()
        late = [one.newest for one in windows if one.newest is not None and self._behind(one)]
        upto = min([now, *late])
        lag = (now - upto).total_seconds()
        self.health.lagged(0, lag, behind=lag > BEAT)
        for cluster in sorted(self._policies):
            nodes = sum(key[0] == cluster for window in self.windows.values() for key in window.judges)
            beat = Heartbeat(self._worker, upto, tuple(sorted(self.windows)), nodes, lag)
            self._posted.append(await self._publisher.post(encode_heartbeat(beat, cluster), cluster))

    def _behind(self, window: Window) -> bool:
        """Whether records of the window's partition wait to be judged."""
        partition = next(one for one, each in self.windows.items() if each is window)
        return 0 <= window.offset < highwater(self.app, v1.SAMPLE_DEVICE, partition) - 1


def _believes(policy: Policy) -> bool:
    """Samples do not say the node's pool, so idle without a witness is believed only if every pool does."""
    return all(pool.believe_idle_without_witness for pool in policy.pools.values())
