"""A process at a real cluster whose brokers cannot be reached when it starts: act alone, until one answers.

Without this, a pod that restarts in an outage would wait with everything else, and what is lent would stay out past
its time. Nothing is lent or decided here; what falls due, and what was recalled, comes home by the marks on the nodes.
A policy file that changes meanwhile is adopted. No alerts are sent: which ones stand, only their topic says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.lease import process_name
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.serving import pages, serving
from rebalancer.adapters.streams.connection import Unreachable
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.bootstrap.leading import LedAct
from rebalancer.bootstrap.policywatch import PolicyFile
from rebalancer.core.policy import Policy
from rebalancer.settings import Role, Settings

log = structlog.get_logger(__name__)
AGAIN = 5.0
"""Seconds between two attempts to reach a broker."""
TELLING, PAUSE = 10.0, 0.5
"""Seconds for which a broker that answers is offered what was done alone, and between two offers: leaders are elected
in less."""
Work = Callable[[], Awaitable[None]]


def may_act(settings: Settings) -> bool:
    """Whether there is anything to do without Kafka."""
    return settings.kubernetes is not None and Role.ACT in settings.roles


async def until_answered(settings: Settings, until: Callable[[list[Work]], Awaitable[None]]) -> None:
    """Act alone until a broker answers, then tell what was done.

    ``until`` runs works until the first ends or the process is told to stop. Not ready all the while: decisions wait.

    Raises:
        PolicyRefused, NoCluster, OSError: as for any start.
    """
    at = settings.kubernetes
    if at is None:
        raise ValueError("there is no cluster to act in")
    async with AsyncExitStack() as stack:
        metrics = Metrics([Role.ACT.value])
        publisher = Publisher(settings.kafka, settings.partitions, settings.placed)
        stack.push_async_callback(publisher.stop)
        api = await stack.enter_async_context(connected(at))
        file, watching = PolicyFile(settings.policy), Watching(metrics.registry)
        act = LedAct(settings, api, at.namespace, process_name(), file.read(), publisher, metrics, watching)
        act.health.began(settings.partition)
        if settings.http.port:
            app = pages(metrics, [act.health])
            await stack.enter_async_context(serving(app, settings.http.host, settings.http.port))

        async def adopt(policy: Policy) -> None:
            act.adopt_policy(policy)

        await until([act.run, lambda: _answered(publisher, act), lambda: file.follow(adopt, _nobody)])


async def _answered(publisher: Publisher, act: LedAct) -> None:
    while True:
        try:
            await publisher.start()
        except Unreachable as error:
            log.warning("still without Kafka, what falls due comes home", error=str(error))
            await asyncio.sleep(AGAIN)
        else:
            break
    await _told(act)


async def _told(act: LedAct) -> None:
    """With this act goes what it still has to tell; a broker without our topics must not keep all else waiting."""
    try:
        async with asyncio.timeout(TELLING):
            while not await act.back():
                log.warning("what was done without Kafka is not told yet, trying again")
                await asyncio.sleep(PAUSE)
    except TimeoutError:
        log.error("what was done without Kafka is not told: the broker does not take it")  # noqa: TRY400 - no defect


async def _nobody(_: str) -> None:
    """A refused policy is in the log; nobody else could be told."""
