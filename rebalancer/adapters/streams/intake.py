"""What configured sources say, record by record: facts, lists, requests and samples on our own topics.

Everything is keyed anew, so that a source may have any key and any number of partitions. What cannot be read becomes
a dead letter of the topic it was meant for. A name alone never deletes anything. Offsets are the reader's matter; this
room only says up to where they may be committed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from rebalancer.adapters.decode.bridges.envelope import Item
from rebalancer.adapters.decode.dcgm_devices import assemble
from rebalancer.adapters.decode.dcgm_nodes import resolve_node
from rebalancer.adapters.decode.dcgm_rows import Row, device_of, field_of
from rebalancer.adapters.decode.dcgm_text import Rejected
from rebalancer.adapters.decode.errors import DecodeError, UnsupportedEncodingError
from rebalancer.adapters.decode.foreign import OBJECT_FORMATS, decode_foreign
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.watch import Changed, Gone, Hint, ListEnded, SourceStale
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.collect import Teller
from rebalancer.adapters.streams.dlq import DeadLetters, refused
from rebalancer.adapters.streams.listings import Listing, Versions
from rebalancer.adapters.streams.loader import came
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.streams.scrapes import Scrapes
from rebalancer.adapters.streams.source_settings import SourceSettings
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.adapters.translate import SnapshotRequested, WireError, encode_fact, encode_request, encode_snapshot
from rebalancer.adapters.translate.encode import KIND_OF
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import FactDeleted, FactKind, FactObserved, SnapshotBegan, SnapshotEnded
from rebalancer.wire import v1

log = structlog.get_logger(__name__)
ASK_EVERY = 60.0
"""Seconds between two requests for full lists, and between two lines about hints, of one source."""
ALWAYS: tuple[FactKind, ...] = ("node", "pod")
"""What is asked for when a source that broke off had told nothing yet."""
METRICS_OF_OTLP = (b'"resourceMetrics"', b'"resource_metrics"')


@dataclass(slots=True)
class Cluster:
    """What is held of one cluster between records."""

    teller: Teller
    where: Whereabouts
    scrapes: Scrapes = field(default_factory=Scrapes)
    versions: Versions = field(default_factory=Versions)
    tellers: dict[FactKind, set[str]] = field(default_factory=dict)
    """Source topics by the kinds of objects that they told."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an item came from, and when, as far as the record knows. ``alone``: its topic has one partition."""

    source: SourceSettings
    place: tuple[Hashable, int]
    at: datetime
    alone: bool
    tick: float


class Intake:
    """What one assignment brought; made anew with each, since records may then come again."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        sources: Mapping[str, SourceSettings],
        publisher: Publisher,
        metrics: Metrics,
        where: Mapping[str, Whereabouts],
        reading: Reading,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        tick: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources, self._metrics, self.reading = dict(sources), metrics, reading
        self._now, self._tick = now, tick
        self._clusters = {name: Cluster(Teller(publisher, name), known) for name, known in where.items()}
        self._dead = DeadLetters(publisher, metrics, "collect")
        self._lists: dict[tuple[str, FactKind], Listing] = {}
        self._first: dict[Hashable, int] = {}
        self._next: dict[Hashable, int] = {}
        self._asked: dict[str, float] = {}
        self._hints: Counter[str] = Counter()
        self._hinted = tick()

    async def take(self, record: Any, place: Hashable, *, alone: bool) -> None:
        """Handle one record, whatever it holds; raises NotPublished only."""
        source = self._sources[record.topic]
        origin = Origin(source, (place, record.offset), self._stamp(record), alone, self._tick())
        self._first.setdefault(place, record.offset)
        self._metrics.source_records.labels(source.format).inc()
        try:
            for item in decode_foreign(source.format, record.key, record.value, record.headers or (), self.reading):
                await self._item(item, origin)
        except NotPublished:
            raise
        except Exception as error:  # noqa: BLE001 - nothing that a record holds may stop the stream
            self._metrics.source_rejected.labels(source.format).inc()
            await self._dead.bury_foreign(came(record), target(source, record.value), source.cluster, told(error))
        self._next[place] = record.offset + 1

    async def hand_on(self) -> None:
        """Make samples of the scrapes that are over, and have everything acknowledged; raises NotPublished."""
        tick = self._tick()
        for cluster in self._clusters.values():
            for scrape in cluster.scrapes.due(tick):
                made = assemble(scrape.rows, cluster.where.known(tick), scrape.at)
                for reason, count in made.dropped.items():
                    self._metrics.source_rows_dropped.labels(reason).inc(count)
                await cluster.teller.samples(made.samples)
        for cluster in self._clusters.values():
            await cluster.teller.settle()
        self._tell_hints(tick)

    def committable(self) -> dict[Hashable, int]:
        """The offset of each partition before which everything is acknowledged; call it after :meth:`hand_on`."""
        found = dict(self._next)
        for cluster in self._clusters.values():
            for place, offset in cluster.scrapes.oldest().items():
                found[place] = min(offset, found.get(place, offset))
        return found

    def _stamp(self, record: Any) -> datetime:
        """The record's own time where its content has none; never later than now."""
        now, stamp = self._now(), record.timestamp or 0
        return min(now, datetime.fromtimestamp(stamp / 1000.0, UTC)) if 0 < stamp < 32e12 else now  # year 2984

    # -- items -------------------------------------------------------------------------------------------------

    async def _item(self, item: Item, origin: Origin) -> None:
        source, cluster = origin.source, self._clusters[origin.source.cluster]
        if isinstance(item, Row):
            self._row(item, origin, cluster)
        elif isinstance(item, Changed):
            await self._changed(item, origin, cluster)
        elif isinstance(item, Gone):
            await self._gone(item, origin, cluster)
        elif isinstance(item, ListEnded):
            await self._ended(item, origin, cluster)
        elif isinstance(item, SourceStale):
            await self._stale(item, origin, cluster)
        elif isinstance(item, Hint):
            self._hints[source.topic] += 1
            self._metrics.source_hints.labels(source.format).inc()
        elif isinstance(item, Rejected):
            self._metrics.source_rejected.labels(source.format).inc()
            log.debug("part of a record rejected", topic=source.topic, part=item.line, why=item.why)

    def _row(self, row: Row, origin: Origin, cluster: Cluster) -> None:
        why = self._gathered(row, origin, cluster)
        if why:
            self._metrics.source_rows_dropped.labels(why).inc()
        else:
            self._metrics.source_rows.inc()

    def _gathered(self, row: Row, origin: Origin, cluster: Cluster) -> str:
        device = device_of(row.labels)
        if device is None:
            return "no-gpu"
        if field_of(row.name) is None:
            return "unused-metric"
        known = cluster.where.known(origin.tick)
        node = resolve_node(row.labels, device.uuid, known)
        if node is None:
            return "unknown-node"
        known.learn(device.uuid, node)
        dated = row if row.at is not None else row._replace(at=origin.at)
        return cluster.scrapes.add(dated, node, origin.place, self._now(), origin.tick)

    async def _changed(self, item: Changed, origin: Origin, cluster: Cluster) -> None:
        observed = FactObserved(item.fact, item.at or origin.at)
        of = KIND_OF[type(item.fact)]
        if of != "control" and cluster.versions.dead(item.fact.uid):
            return
        cluster.tellers.setdefault(of, set()).add(origin.source.topic)
        self._listing(of, origin).saw(observed)
        if cluster.versions.fresh(item.fact):
            cluster.where.saw(item.fact, item.addresses)
            await cluster.teller.changes([observed])

    async def _gone(self, item: Gone, origin: Origin, cluster: Cluster) -> None:
        cluster.versions.bury(item.uid)
        cluster.where.gone(item.of, item.uid)
        self._listing(item.of, origin).gone(item.uid)
        await cluster.teller.changes([FactDeleted(item.of, item.uid, item.at or origin.at)])

    def _listing(self, of: FactKind, origin: Origin) -> Listing:
        """A topic of one partition that we read from its very beginning has its first list whole."""
        key = (origin.source.topic, of)
        if key not in self._lists:
            whole = origin.alone and self._first[origin.place[0]] == 0
            self._lists[key] = Listing(of, 1 if origin.alone else 2, whole=whole)
        return self._lists[key]

    async def _ended(self, item: ListEnded, origin: Origin, cluster: Cluster) -> None:
        """Tell the list between marks. Two sources of one kind would each delete what only the other lists."""
        listed = self._listing(item.of, origin).ended()
        shared = len(cluster.tellers.get(item.of, ())) > 1
        self._metrics.source_lists.labels("shared" if shared else "told" if listed is not None else "not-whole").inc()
        if listed is None or shared:
            log.info("list not told", topic=origin.source.topic, kind=item.of, shared=shared)
            return
        teller, at = cluster.teller, item.at or origin.at
        name = f"{origin.source.topic}/{origin.place[1]}"
        await teller.post(encode_snapshot(SnapshotBegan(item.of, name, at), teller.cluster))
        for one in listed:
            await teller.post(encode_fact(one.fact, teller.cluster, one.at))
        await teller.post(encode_snapshot(SnapshotEnded(item.of, name, len(listed), at), teller.cluster))
        cluster.where.listed(item.of, {one.fact.uid for one in listed})

    async def _stale(self, item: SourceStale, origin: Origin, cluster: Cluster) -> None:
        """The bridge lost track: no list of it is whole, and whoever can list the cluster is asked to."""
        source = origin.source
        self._metrics.source_stale.labels(source.format).inc()
        for (topic, _), listing in self._lists.items():
            if topic == source.topic:
                listing.broke()
        if origin.tick - self._asked.get(source.topic, -ASK_EVERY) < ASK_EVERY:
            return
        self._asked[source.topic] = origin.tick
        log.warning("source stale, full lists asked for", topic=source.topic, code=item.code, why=item.why)
        mine: list[FactKind] = [of for of, topics in cluster.tellers.items() if source.topic in topics]
        because = Because(Reason.CATCHING_UP, {"lag_seconds": 0.0})
        for of in mine or ALWAYS:
            request = SnapshotRequested(of, because, self._now())
            await cluster.teller.post(encode_request(request, cluster.teller.cluster))

    def _tell_hints(self, tick: float) -> None:
        if self._hints and tick - self._hinted >= ASK_EVERY:
            log.info("changes told without content, nothing follows from them", hints=dict(self._hints))
            self._hints.clear()
            self._hinted = tick


def target(source: SourceSettings, value: bytes | None) -> str:
    """The topic of ours that a record was meant for; OTLP may hold either."""
    metrics = source.format not in OBJECT_FORMATS
    if source.format == "otlp-json":
        metrics = value is not None and any(word in value for word in METRICS_OF_OTLP)
    return v1.SAMPLE_DEVICE if metrics else v1.FACT_TOPICS["pod"]


def told(error: Exception) -> WireError:
    """What went wrong with a foreign record, in the words that dead letters have."""
    if isinstance(error, DecodeError):
        return WireError("bytes" if isinstance(error, UnsupportedEncodingError) else "shape", str(error))
    return refused(error)
