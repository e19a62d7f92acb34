"""The act role on a real cluster: one replica acts while it holds the Lease, the others stand by, loaded and ready.

Each time the lease is gained everything is made anew with its epoch, from what Kafka and the nodes say; each time it
goes, whatever is under way comes to its end before the lease is given back. Only what could not be told yet outlives
a leadership, and is told while another leads. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.events import Events
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.lease import Held, Leadership
from rebalancer.adapters.cluster.live import LiveEyes, least_epoch
from rebalancer.adapters.cluster.sight import Sight
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.outbox import Outbox
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.core.policy import Policy
from rebalancer.settings import LeaseSettings, NoCluster, Settings

log = structlog.get_logger(__name__)
TELL_EVERY = 5.0
"""Seconds between two offers of what an earlier leadership left untold."""
LAST_WORD = 3.0
"""Seconds for which it is offered once more at the end: a pod has 30 between SIGTERM and SIGKILL."""


class LedAct:
    """Act under leadership. ``health`` is the role's, whoever leads."""

    def __init__(  # noqa: PLR0917 - made in one place
        self, settings: Settings, api: Api, namespace: str, identity: str, policy: Policy, publisher: Publisher,
        metrics: Metrics, watching: Watching,
    ) -> None:  # fmt: skip
        """Raises NoCluster when no call of the policy's length would ever fit into the lease."""
        fits(settings.lease, policy)
        self.health = Health("act", metrics, standby=True)
        self._settings, self._api, self._publisher, self._metrics = settings, api, publisher, metrics
        self._policy, self._reading = policy, Reading(dialect(policy))
        self._eyes = LiveEyes(api, namespace, Sight(self._reading, watching))
        self._events = Events(api, identity, policy.borrowing.cooldown, metrics)
        self._told = Outbox(publisher, settings.cluster, metrics, self._events)
        self._leadership = Leadership(
            api, settings.lease, namespace, "act", identity, metrics,
            least=self._least, waiting=lambda: self.health.round(0),
        )  # fmt: skip
        self._act: Act | None = None
        self._hands: ClusterHands | None = None

    async def run(self) -> None:
        """Until cancelled."""
        telling = [
            asyncio.create_task(self._events.run(), name="act-events"),
            asyncio.create_task(self._tell_left(), name="act-left"),
        ]
        try:
            await self._leadership.lead(self._work)
        finally:
            for task in telling:
                task.cancel()
            await self._last_word()

    async def back(self) -> bool:
        """Kafka is there: what was done without it is told, by whichever leadership; whether all of it was taken."""
        await self._told.flush(self._policy.acting.call_timeout.total_seconds())
        return self._told.empty

    def adopt_policy(self, policy: Policy) -> None:
        """A new policy is in force, whether we lead or not."""
        self._policy, self._reading = policy, Reading(dialect(policy))
        self._eyes.sight.reading = self._reading
        if self._act is not None:
            self._act.adopt_policy(policy)
        if self._hands is not None:
            self._hands.adopt(policy.acting, self._reading)
        try:
            fits(self._settings.lease, policy)
        except NoCluster as error:
            log.error("nothing will be written under this policy", why=str(error))  # noqa: TRY400 - no defect

    async def _tell_left(self) -> None:
        """While another leads, too: cooldowns and missed evictions follow from outcomes."""
        while True:
            await asyncio.sleep(TELL_EVERY)
            if self._act is None:
                await self.back()

    async def _last_word(self) -> None:
        await self._told.flush(LAST_WORD)
        if not self._told.empty:
            log.error("the process ends with outcomes untold: Kafka does not take them", records=self._told.waiting)

    async def _least(self) -> int:
        return await least_epoch(self._api)

    async def _work(self, held: Held) -> None:
        policy, settings = self._policy, self._settings
        hands = ClusterHands(self._api, held, policy.acting, self._reading, self._metrics, self._events)
        act = Act(
            settings.kafka, settings.cluster, policy, hands, self._eyes, self._publisher, self._metrics,
            epoch=held.epoch, outbox=self._told, health=self.health,
        )  # fmt: skip
        self._hands, self._act, self.health.standby = hands, act, False
        try:
            await act.run()
        finally:
            self._hands, self._act, self.health.standby = None, None, True
            await hands.settled()


def fits(lease: LeaseSettings, policy: Policy) -> None:
    """Raises NoCluster if the policy's call time-out does not fit into what is left of a lease before it is renewed."""
    most = timedelta(seconds=lease.duration - lease.retry)
    if policy.acting.call_timeout > most:
        seconds = policy.acting.call_timeout.total_seconds()
        raise NoCluster(
            f"acting.call_timeout of {seconds:g} s is more than the {most.total_seconds():g} s that a lease of "
            f"{lease.duration:g} s leaves for a call: nothing could be written; shorten it or lengthen lease.duration"
        )
