"""Looks at the GPUs every few seconds and tells one sample a node, for the nodes that are this process's share.

The share: the nodes whose sample partitions this process's own telemetry reads; a process without telemetry takes
all. So run collect and telemetry together in every replica, or apart in every one. Not under a Lease: a sample told
twice is one sample, since it carries its own time. What could not be had is counted and not told: silence makes a
node unknown, and unknown is never idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import CollectorRegistry, Counter

from rebalancer.adapters.cluster.exporters import ExporterSource
from rebalancer.adapters.cluster.places import Places
from rebalancer.adapters.decode.dcgm_devices import Assembled, assemble
from rebalancer.adapters.decode.dcgm_nodes import Directory
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.adapters.metrics import NAMESPACE, Metrics
from rebalancer.adapters.prometheus import PrometheusSource, rows_of
from rebalancer.adapters.streams.collect import Teller
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.core.telemetry import NodeSample
from rebalancer.core.units import NodeUid

log = structlog.get_logger(__name__)
FIRST_PLACES = 30.0
"""Seconds to wait for the first list of nodes: before it no row has a node."""
OLD = timedelta(hours=1)
"""Samples older than this say nothing that anybody may act on."""
FAILURES = ("unreachable", "answer", "exporter")
Ours = Callable[[NodeUid], bool]


class Sampling:
    """Runs until cancelled. ``ours`` says whether a node is this process's share."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        source: PrometheusSource | ExporterSource,
        places: Places,
        publisher: Publisher,
        cluster: str,
        metrics: Metrics,
        every: float,
        ours: Ours = lambda _: True,
    ) -> None:
        self._source, self._places, self._ours, self._every = source, places, ours, every
        self._teller, self._metrics = Teller(publisher, cluster), metrics
        self._told: dict[NodeUid, datetime] = {}
        self._failures, self._samples = _counters(metrics.registry)

    async def run(self) -> None:
        """Look, tell, wait; nothing that a look brings ends it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._places.run(), name="places")
            group.create_task(self._sample(), name="sampling")

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(FIRST_PLACES):
                await self._places.ready.wait()
        except TimeoutError:
            log.warning("nodes are not listed yet, samples may have none")
        while True:
            due = loop.time() + self._every
            await self.look()
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def look(self) -> None:
        """One look at all nodes of our share."""
        try:
            found = await self._looked()
        except (ConnectionError, TimeoutError, SourceFailedError, OSError) as error:
            self._fail("answer" if isinstance(error, SourceFailedError) else "unreachable", 1)
            log.warning("GPUs not seen", error=str(error) or type(error).__name__)
            return
        except Exception:  # an answer that no decoder foresaw must not end the sampling of all others
            self._fail("answer", 1)
            log.exception("GPUs not seen")
            return
        await self._tell(self._news(found))

    async def _looked(self) -> list[NodeSample]:
        """Reading thousands of rows takes a while, so it is done beside the loop."""
        known, source = self._places.known(), self._source
        if isinstance(source, PrometheusSource):
            raw = await source.answer()
            made = [await asyncio.to_thread(_whole, raw, known)]
        else:
            uids = {name: entry.uid for name, entry in known.nodes.items()}
            mine = [one for one in self._places.exporters() if one.node in uids and self._ours(uids[one.node])]
            pages = await source.pages(mine)
            self._fail("exporter", pages.failed)
            made = [await asyncio.to_thread(_by_node, pages.rows, known)]
        for reason, count in ((reason, count) for one in made for reason, count in one.dropped.items()):
            self._metrics.source_rows_dropped.labels(reason).inc(count)
        return [sample for one in made for sample in one.samples]

    def _news(self, samples: Sequence[NodeSample]) -> list[NodeSample]:
        """Samples of our nodes that were not told yet: a scrape is seen by several looks."""
        now = datetime.now(UTC)
        fresh = [
            sample
            for sample in samples
            if self._ours(sample.node) and now - sample.at < OLD and self._told.get(sample.node) != sample.at
        ]
        seen = {sample.node: sample.at for sample in samples}
        self._told = {node: at for node, at in self._told.items() if node in seen or now - at < OLD}
        return fresh

    async def _tell(self, samples: Iterable[NodeSample]) -> None:
        told = list(samples)
        try:
            await self._teller.samples(told)
            await self._teller.settle()
        except NotPublished as error:
            self._metrics.failures.labels("collect").inc()
            log.warning("samples not told", count=len(told), error=str(error))
            return
        self._told.update((sample.node, sample.at) for sample in told)
        self._samples.inc(len(told))

    def _fail(self, why: str, count: int) -> None:
        if count:
            self._failures.labels(why).inc(count)


def _whole(raw: bytes, known: Directory) -> Assembled:
    return assemble(rows_of(raw), known, datetime.now(UTC))


def _by_node(pages: Mapping[str, Iterable[Row]], known: Directory) -> Assembled:
    return assemble((row for _, rows in sorted(pages.items()) for row in rows), known, datetime.now(UTC))


def _counters(registry: CollectorRegistry) -> tuple[Counter, Counter]:
    failures = Counter(
        f"{NAMESPACE}_sampling_failures",
        "Looks at GPUs, or pages of exporters, that brought nothing. Labeled by reason.",
        ("reason",),
        registry=registry,
    )
    for reason in FAILURES:
        failures.labels(reason)
    return failures, Counter(f"{NAMESPACE}_samples", "Samples of nodes that were told.", registry=registry)
