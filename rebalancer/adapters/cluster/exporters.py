"""DCGM pages straight from the exporter pods, for sites without a Prometheus that may be asked.

Each page is fetched on its own, bounded in time, size and number at once: an exporter that hangs or fails makes its
own node unknown and delays no other. A page is about the node its pod runs on, whatever its labels say. Nothing is
repeated or judged here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
import structlog

from rebalancer.adapters.bodies import whole
from rebalancer.adapters.cluster.places import Exporter
from rebalancer.adapters.decode.dcgm_nodes import NODE_KEYS
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import decode_page
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.settings import DcgmSettings

log = structlog.get_logger(__name__)
AT_ONCE = 32
"""Pages fetched at the same time: 1,000 nodes take some seconds, and no file descriptors run out."""
PAGE_LIMIT = 32 * 1024 * 1024
"""Bytes of a page: a bound on memory; a larger one is refused and its node turns unknown."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What a round of pages brought: rows by node name, and how many exporters brought none."""

    rows: Mapping[str, tuple[Row, ...]]
    failed: int


class ExporterSource:
    """Fetches pages. The session is the caller's."""

    def __init__(self, settings: DcgmSettings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def pages(self, exporters: Iterable[Exporter]) -> Pages:
        """One round over these exporters."""
        asked = list(exporters)
        answers = await asyncio.gather(*(self._page(one) for one in asked))
        rows: dict[str, tuple[Row, ...]] = {}
        for exporter, answer in zip(asked, answers, strict=True):
            if answer is not None:
                rows[exporter.node] = (*rows.get(exporter.node, ()), *answer)
        return Pages(rows, sum(answer is None for answer in answers))

    async def _page(self, exporter: Exporter) -> list[Row] | None:
        address = f"[{exporter.address}]" if ":" in exporter.address else exporter.address
        url = f"http://{address}:{self._settings.port}/metrics"
        async with self._slots:
            try:
                async with self._session.get(
                    url, timeout=aiohttp.ClientTimeout(total=self._settings.timeout)
                ) as answer:
                    body = await whole(answer, PAGE_LIMIT, "exporter")
                page = decode_page(body, answer.status)
            except (aiohttp.ClientError, OSError, TimeoutError, SourceFailedError) as error:
                log.warning("exporter said nothing", node=exporter.node, url=url, error=str(error) or repr(error))
                return None
        return _placed(page.rows, exporter.node, datetime.now(UTC))


def _placed(rows: Iterable[Row], node: str, now: datetime) -> list[Row]:
    """Rows as said about this node; lines of one GPU share their labels, so these are rewritten once a GPU."""
    rewritten: dict[int, dict[str, str]] = {}
    placed: list[Row] = []
    for row in rows:
        labels = rewritten.get(id(row.labels))
        if labels is None:
            labels = {key: value for key, value in row.labels.items() if key not in NODE_KEYS}
            rewritten[id(row.labels)] = labels = {**labels, NODE_KEYS[0]: node}
        placed.append(Row(row.name, labels, row.value, row.at or now, row.line))
    return placed
