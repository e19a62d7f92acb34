"""`rebalancer run`: the roles of an installation on one event loop, until they are told to stop.

A policy file that changes is adopted when it is valid and refused, loudly, when it is not. If one role ends, all end:
the platform restarts the process, and state is rebuilt.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import structlog

from rebalancer.adapters import logs
from rebalancer.adapters.alerts import Alertmanagers, Board
from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.serving import pages, serving
from rebalancer.adapters.streams import decide, telemetry
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.alerting import Alerting
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.collect import Collect, Teller
from rebalancer.adapters.streams.connection import Unreachable
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.explaining import Explaining
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.streams.sources import Sources
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.bootstrap.atcluster import Collecting, Ground, begin_collect
from rebalancer.bootstrap.leading import LedAct
from rebalancer.bootstrap.policywatch import PolicyFile
from rebalancer.bootstrap.withoutkafka import may_act, until_answered
from rebalancer.core.policy import Policy
from rebalancer.settings import KubernetesSettings, NoCluster, Role, Settings
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.realtime import RealTime

log = structlog.get_logger(__name__)
Work = Callable[[], Awaitable[None]]
SWITCH = 0.0005
"""Seconds for which a busy thread, one that plans or decodes, may keep the loop waiting at a hop; CPython has 0.005."""


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT; without a broker, at a real cluster, act alone until there is one.

    Raises Unreachable (no broker, and nothing to do without), PolicyRefused, NoCluster, OSError (the port is taken).
    """
    logs.for_roles(settings.log)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    while not stopping.is_set():
        try:
            await _run(settings, stopping)
        except Unreachable as error:
            if not may_act(settings):
                raise
            log.error("without Kafka: nothing is decided, what falls due comes home", error=str(error))  # noqa: TRY400 - told in one sentence
            await until_answered(settings, lambda works: _until(stopping, works))
        else:
            return


def unhindered() -> None:
    """For a process that does nothing else: busy threads give way soon, full collections pass by what is imported."""
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()


async def _run(settings: Settings, stopping: asyncio.Event) -> None:
    async with AsyncExitStack() as stack:
        service = Service(settings, stack)
        await _until(stopping, await service.begin())


async def _until(stopping: asyncio.Event, works: list[Work]) -> None:
    tasks = [asyncio.ensure_future(work()) for work in works]
    stop = asyncio.create_task(stopping.wait())
    done, _ = await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    for task in (stop, *tasks):
        task.cancel()
    await asyncio.gather(stop, *tasks, return_exceptions=True)
    for task in done - {stop}:
        task.result()


class Service:
    """The roles of one process, begun together."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._metrics = Metrics(role.value for role in settings.roles)
        self._healths: list[Health] = []
        self._works: list[Work] = []
        self._telemetry: Telemetry | None = None
        self._decide: Decide | None = None
        self._collecting: Collecting | None = None
        self._act: Act | LedAct | None = None
        self._sources: Sources | None = None
        self._known: Explaining | None = None
        self._file = PolicyFile(settings.policy)

    async def begin(self) -> list[Work]:
        """Start everything; what is returned runs until cancelled."""
        settings = self._settings
        policy = self._file.read()
        publisher = await self._stack.enter_async_context(
            Publisher(settings.kafka, settings.partitions, settings.placed)
        )
        if Role.TELEMETRY in settings.roles:
            await self._begin_telemetry(policy, publisher)
        if Role.DECIDE in settings.roles:
            await self._begin_decide(policy, publisher)
        if settings.kubernetes is not None and settings.roles & {Role.COLLECT, Role.ACT}:
            await self._begin_at_kubernetes(settings.kubernetes, policy, publisher)
        elif settings.roles & {Role.COLLECT, Role.ACT}:
            self._begin_at_cluster(policy, publisher)
        self._works.append(lambda: self._file.follow(self._adopt, self._refuse))
        self._begin_telling(publisher.partition(settings.cluster))
        if settings.http.port:
            app = pages(self._metrics, self._healths, self._known)
            await self._stack.enter_async_context(serving(app, settings.http.host, settings.http.port))
        roles = ",".join(sorted(settings.roles))
        log.info("running", roles=roles, cluster=settings.cluster, kafka=settings.kafka.bootstrap)
        return self._works

    def _begin_telling(self, partition: int) -> None:
        """What people hear of it: alerts where act runs, and why things happened where decide or act does."""
        settings = self._settings
        if Role.ACT in settings.roles and settings.alerts.alertmanagers:
            board = Board(settings.cluster, settings.alerts, self._metrics)
            senders = Alertmanagers(board, settings.alerts, self._metrics)
            self._works.append(Alerting(settings.kafka, settings.cluster, partition, board, senders).run)
        if settings.http.port and settings.roles & {Role.DECIDE, Role.ACT}:
            self._known = Explaining(settings.kafka, settings.cluster, partition)
            self._works.append(self._known.run)

    def _app(self, group: str) -> AppSettings:
        return AppSettings(group, self._settings.kafka, data_dir=self._settings.data_dir)

    async def _begin_telemetry(self, policy: Policy, publisher: Publisher) -> None:
        policies = {self._settings.cluster: policy}
        role = Telemetry(self._app(telemetry.GROUP), policies, publisher, self._metrics)
        await role.start()
        self._stack.push_async_callback(role.stop)
        self._telemetry = role
        self._healths.append(role.health)

    async def _begin_decide(self, policy: Policy, publisher: Publisher) -> None:
        policies = {self._settings.cluster: (policy, self._file.digest)}
        role = Decide(self._app(decide.GROUP), policies, publisher, self._metrics)
        await role.start()
        self._stack.push_async_callback(role.stop)
        self._decide = role
        self._healths.append(role.health)

    async def _begin_at_kubernetes(self, at: KubernetesSettings, policy: Policy, publisher: Publisher) -> None:
        settings = self._settings
        api = await self._stack.enter_async_context(connected(at))
        ground = Ground(settings, api, at.namespace, publisher, self._metrics, self._stack)
        if Role.COLLECT in settings.roles:
            self._collecting, works = await begin_collect(ground, policy, self._telemetry)
            self._healths.append(self._collecting.health)
            self._works += works
            if settings.sources:
                self._begin_sources(policy, publisher)
        if Role.ACT in settings.roles:
            watching = self._collecting.watching if self._collecting is not None else Watching(self._metrics.registry)
            self._act = LedAct(
                settings, api, at.namespace, ground.identity, policy, publisher, self._metrics, watching
            )  # fmt: skip
            self._healths.append(self._act.health)
            self._works.append(self._act.run)

    def _begin_at_cluster(self, policy: Policy, publisher: Publisher) -> None:
        settings = self._settings
        if Role.COLLECT in settings.roles and settings.sources:
            self._begin_sources(policy, publisher)
            if not settings.simulate and Role.ACT not in settings.roles:
                return
        if not settings.simulate:
            raise NoCluster("roles collect and act need a cluster: set kubernetes, or simulate: NAME for a played one")
        world = RealTime(open_scenario(settings.simulate), datetime.now(UTC))
        if Role.COLLECT in settings.roles:
            role = Collect(settings.kafka, world, publisher, settings.cluster, self._metrics)
            self._healths.append(role.health)
            self._works += [role.run, lambda: _sample(world, publisher, settings.cluster)]
        if Role.ACT in settings.roles:
            act = Act(settings.kafka, settings.cluster, policy, world, world, publisher, self._metrics)
            self._act = act
            self._healths.append(act.health)
            self._works.append(act.run)

    def _begin_sources(self, policy: Policy, publisher: Publisher) -> None:
        settings, reading = self._settings, Reading(dialect(policy))
        role = Sources(settings.kafka, settings.sources, publisher, settings.cluster, self._metrics, reading)
        self._sources = role
        self._healths.append(role.health)
        self._works.append(role.run)

    # -- policy ----------------------------------------------------------------------------------------------

    async def _refuse(self, why: str) -> None:
        if self._decide is not None:
            await self._decide.refuse(self._settings.cluster, why)

    async def _adopt(self, policy: Policy) -> None:
        if self._decide is not None:
            await self._decide.adopt(self._settings.cluster, policy, self._file.digest)
        if self._telemetry is not None:
            self._telemetry.adopt(self._settings.cluster, policy)
        if self._collecting is not None:
            self._collecting.adopt(policy)
        if self._act is not None:
            self._act.adopt_policy(policy)
        if self._sources is not None:
            self._sources.adopt(Reading(dialect(policy)))


async def _sample(world: RealTime, publisher: Publisher, cluster: str) -> None:
    teller = Teller(publisher, cluster)
    async for samples, demands in world.live():
        await teller.samples(samples)
        await teller.demands(demands)
        try:
            await teller.settle()
        except NotPublished as error:
            log.warning("samples not told", count=len(samples), error=str(error))
