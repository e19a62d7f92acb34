"""Where GPUs report from: the cluster's nodes and its exporter pods, followed lightly by every process that samples.

Feeds the directory by which metric rows find their node, and knows the addresses of the exporters. Not under a Lease:
it only reads. While the API server is away what was known stays; samples of nodes it does not know are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from rebalancer.adapters.cluster import discovery
from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.reflector import Reflector, Resource
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.dcgm_nodes import Directory
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.objects import mapping, metadata, text
from rebalancer.adapters.decode.watch import Changed, changed
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.core.stimuli import FactKind

log = structlog.get_logger(__name__)
AGAIN = 2.0
"""Seconds before a list that failed is tried again."""
LISTS_EVERY = 600.0
"""Seconds between full lists, which repair what no watch showed as missed."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A pod that serves a page of metrics about the node it runs on."""

    node: str
    address: str


class Places:
    """Nodes and exporter pods as they are now. ``selector``: labels of the exporter pods, "" for none."""

    def __init__(self, api: Api, selector: str, reading: Reading, watching: Watching) -> None:
        self.reading = reading
        self.ready = asyncio.Event()
        self._api, self._watching = api, watching
        self._where = Whereabouts()
        self._exporters: dict[str, Exporter] = {}
        self._resources: list[tuple[FactKind, Resource]] = [("node", discovery.NODES)]
        if selector:
            pods = Resource("exporter", "Pod", "v1", discovery.PODS.path, {"labelSelector": selector})
            self._resources.append(("pod", pods))
        self._unlisted = {of for of, _ in self._resources}

    def known(self) -> Directory:
        """Nodes and exporter pods by what rows may call them."""
        return self._where.known(time.monotonic())

    def exporters(self) -> list[Exporter]:
        """Exporters that have an address, by node."""
        return sorted(self._exporters.values(), key=lambda one: (one.node, one.address))

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for of, resource in self._resources:
                group.create_task(self._follow(of, resource, group), name=f"places-{of}")

    async def _follow(self, of: FactKind, resource: Resource, group: asyncio.TaskGroup) -> None:
        lost = asyncio.Event()

        def lose(_: str) -> None:
            lost.set()

        def take(kind: str, raw: dict[str, Any]) -> None:
            self._take(of, kind, raw)

        reflector = Reflector(self._api, resource, take, lose, self._watching)
        group.create_task(reflector.run(), name=f"places-{of}-watch")
        while True:
            lost.clear()
            try:
                listed = await reflector.list(lambda raw: self._saw(of, raw))
            except (ConnectionError, TimeoutError) as error:
                log.warning("places not listed, trying again", kind=of, error=str(error))
                await asyncio.sleep(AGAIN)
                continue
            self._listed(of, set(listed.found))
            reflector.begin(listed.version)
            try:
                async with asyncio.timeout(LISTS_EVERY):
                    await lost.wait()
            except TimeoutError:
                log.debug("places listed again", kind=of)

    def _listed(self, of: FactKind, uids: set[str]) -> None:
        self._where.listed(of, uids)
        if of == "pod":
            self._exporters = {uid: one for uid, one in self._exporters.items() if uid in uids}
        self._unlisted.discard(of)
        if not self._unlisted:
            self.ready.set()

    def _take(self, of: FactKind, kind: str, raw: dict[str, Any]) -> None:
        if kind == "DELETED":
            uid = text(metadata(raw).get("uid"))
            self._where.gone(of, uid)
            self._exporters.pop(uid, None)
        else:
            self._saw(of, raw)

    def _saw(self, of: FactKind, raw: dict[str, Any]) -> str:
        uid = text(metadata(raw).get("uid"))
        try:
            seen = changed(raw, self.reading)
        except Exception as error:  # noqa: BLE001 - one object that no decoder foresaw must not end the sampling
            self._watching.unreadable.labels("exporter" if of == "pod" else "node").inc()
            log.warning("place cannot be read", kind=of, error=str(error) or repr(error))
            return uid
        for one in seen:
            if isinstance(one, Changed):
                self._where.saw(one.fact, one.addresses)
        if of == "pod":
            self._exporter(uid, raw)
        return uid

    def _exporter(self, uid: str, raw: Mapping[str, Any]) -> None:
        spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
        node, address = text(spec.get("nodeName")), text(status.get("podIP"))
        if node and address and text(status.get("phase")) == "Running":
            self._exporters[uid] = Exporter(node, address)
        else:
            self._exporters.pop(uid, None)
