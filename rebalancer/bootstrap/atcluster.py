"""The roles that touch a real cluster, put together: collect by a Lease of its own, sampling in every process.

Only wiring: which connection, which eyes, under whose lead. Nothing is decided and nothing is kept here but what
must learn of another policy.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import aiohttp

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.exporters import ExporterSource
from rebalancer.adapters.cluster.eyes import ClusterEyes
from rebalancer.adapters.cluster.lease import Held, Leadership, process_name
from rebalancer.adapters.cluster.places import Places
from rebalancer.adapters.cluster.sampling import Ours, Sampling
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.prometheus import PrometheusSource
from rebalancer.adapters.streams.collect import Collect
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.core.policy import Policy
from rebalancer.settings import DcgmSettings, NoCluster, Settings
from rebalancer.wire.envelope import key_partition

LISTS_EVERY = 600.0
"""Seconds between full lists: the bound on how long a miss can last that nothing showed."""
Work = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Ground:
    """What every role at a cluster is made of."""

    settings: Settings
    api: Api
    namespace: str
    publisher: Publisher
    metrics: Metrics
    stack: AsyncExitStack
    identity: str = field(default_factory=process_name)

    def leadership(self, role: str, waiting: Callable[[], None]) -> Leadership:
        """The Lease of a role; ``waiting`` is called now and then while somebody else holds it."""
        lease = self.settings.lease
        return Leadership(self.api, lease, self.namespace, role, self.identity, self.metrics, waiting=waiting)


class Collecting:
    """The collect role at a real cluster: facts while the Lease is held, samples always."""

    def __init__(self, ground: Ground, policy: Policy) -> None:
        self.health = Health("collect", ground.metrics, standby=True)
        self.places: Places | None = None
        self._ground, self._reading = ground, Reading(dialect(policy))
        self._watching = Watching(ground.metrics.registry)
        self._leadership = ground.leadership("collect", lambda: self.health.round(0))
        self._eyes: ClusterEyes | None = None

    @property
    def reading(self) -> Reading:
        """How labels are read now."""
        return self._reading

    @property
    def watching(self) -> Watching:
        """The counters of every watch of this process."""
        return self._watching

    def adopt(self, policy: Policy) -> None:
        """Another policy is in force."""
        self._reading = Reading(dialect(policy))
        if self._eyes is not None:
            self._eyes.adopt(self._reading)
        if self.places is not None:
            self.places.reading = self._reading

    async def run(self) -> None:
        """Lead, or stand by, until cancelled."""
        await self._leadership.lead(self._collect)

    async def _collect(self, _: Held) -> None:
        """Everything anew with each turn: what another holder told meanwhile is not known here."""
        ground, settings = self._ground, self._ground.settings
        eyes = self._eyes = ClusterEyes(ground.api, ground.namespace, self._reading, self._watching)
        role = Collect(
            settings.kafka,
            eyes,
            ground.publisher,
            settings.cluster,
            ground.metrics,
            health=self.health,
            lists_every=LISTS_EVERY,
        )
        self.health.standby = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(eyes.run(), name="collect-eyes")
                group.create_task(role.run(), name="collect")
        finally:
            self._eyes = None
            self.health.standby = True


async def begin_collect(ground: Ground, policy: Policy, telemetry: Telemetry | None) -> tuple[Collecting, list[Work]]:
    """The collect role and what runs for it. ``telemetry``: the one of this process, whose nodes are sampled here.

    Raises:
        NoCluster: the settings do not say where utilisation comes from.
    """
    role = Collecting(ground, policy)
    works: list[Work] = [role.run]
    dcgm = ground.settings.dcgm
    if dcgm.source != "none":
        source = await _source(ground, dcgm)
        role.places = Places(ground.api, dcgm.selector, role.reading, role.watching)
        cluster, ours = ground.settings.cluster, share(ground, telemetry)
        sampling = Sampling(source, role.places, ground.publisher, cluster, ground.metrics, dcgm.every, ours)
        works.append(sampling.run)
    return role, works


async def _source(ground: Ground, dcgm: DcgmSettings) -> PrometheusSource | ExporterSource:
    if dcgm.source == "prometheus" and not dcgm.url:
        raise NoCluster("dcgm.url is empty: name the Prometheus query API, or set dcgm.source to exporters or none")
    trusted = ssl.create_default_context(cafile=str(dcgm.ca_file)) if dcgm.ca_file is not None else True
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted))
    await ground.stack.enter_async_context(session)
    return PrometheusSource(dcgm, session) if dcgm.source == "prometheus" else ExporterSource(dcgm, session)


def share(ground: Ground, telemetry: Telemetry | None) -> Ours:
    """Which nodes this process samples; see adapters.cluster.sampling."""
    if telemetry is None:
        return lambda _: True
    cluster, partitions = ground.settings.cluster, ground.publisher.partitions

    def ours(node: str) -> bool:
        return key_partition(f"{cluster}/{node}".encode(), partitions) in telemetry.windows

    return ours
