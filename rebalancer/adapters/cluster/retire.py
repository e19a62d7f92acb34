"""Taking the rebalancer out of a cluster: every loan home, every trace of ours gone, and nobody there to lend anew.

In this order, so that no step can be undone by a role that still runs: the control object says *retired* (nothing is
lent from then on); act brings the loans home; the Deployments that were named are scaled to nothing and their Leases
run out; then, holding act's Lease itself, this puts right what is left on nodes, pods and owners, looks at everything
once more, and only then takes away the control object and the Leases. It can be run again at any point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from rebalancer.adapters.cluster import brakes, traces
from rebalancer.adapters.cluster.alone import Alone
from rebalancer.adapters.cluster.connection import MERGE, Api
from rebalancer.adapters.cluster.findings import some
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.holders import Holder, lease_path
from rebalancer.adapters.cluster.lease import Held, Leadership
from rebalancer.adapters.cluster.listing import NotListed, listed
from rebalancer.adapters.cluster.live import LiveEyes, least_epoch
from rebalancer.adapters.cluster.sight import Sight
from rebalancer.adapters.cluster.sweeping import Sweeper
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.facts import Control, Node
from rebalancer.core.policy import Policy
from rebalancer.settings import LeaseSettings

log = structlog.get_logger(__name__)
LOOK_EVERY = 2.0
"""Seconds between two looks at what is still out: a return takes minutes, and a person watches."""
PATIENCE = 10.0
"""Seconds for one call."""
CLEARING = 60.0
"""Seconds kept for the last part, whatever the time-out: it takes a few calls a node and must not be cut short."""
ROLES = ("act", "collect")
"""Roles that hold a Lease."""
Tell = Callable[[str], None]
T = TypeVar("T")
Why = Literal["retired", "nothing-there", "still-out", "no-actor", "still-running", "traces"]


@dataclass(frozen=True, slots=True)
class Retiring:
    """What is wanted. ``timeout`` in seconds; ``stop`` names Deployments in our namespace; ``alone``: without act."""

    by: str
    why: str = ""
    timeout: float = 1800.0
    alone: bool = False
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. ``left`` are nodes still out, or traces that could not be taken away."""

    result: Why
    sentence: str
    left: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether nothing of ours is left."""
        return self.result in {"retired", "nothing-there"}


@dataclass(slots=True)
class Retirement:
    """One retirement of what ``lease`` and ``namespace`` name."""

    api: Api
    namespace: str
    lease: LeaseSettings
    policy: Policy
    reading: Reading
    identity: str
    tell: Tell
    _holders: dict[str, Holder] = field(init=False)
    _eyes: LiveEyes = field(init=False)
    _told: str = field(default="", init=False)

    def __post_init__(self) -> None:
        names = {role: f"{self.lease.name}-{role}" for role in ROLES}
        self._eyes = LiveEyes(self.api, self.namespace, Sight(self.reading, Watching(CollectorRegistry())))
        self._holders = {role: Holder(self.api, self.namespace, name) for role, name in names.items()}

    async def run(self, wanted: Retiring) -> Ended:
        """Until nothing of ours is left, or the time is over.

        Raises:
            BrakesRefused, NotListed: we may not do or see something that is needed.
            ConnectionError, TimeoutError: the API server cannot be reached; while waiting, only once the time is over.
        """
        ends = asyncio.get_running_loop().time() + wanted.timeout
        if await self._nothing_there():
            return Ended("nothing-there", "nothing of ours is in the cluster")
        await brakes.write_control(self.api, self.namespace, lambda held: retired(held, wanted.by, wanted.why))
        short = await self._home(wanted, ends) or await self._stopped(wanted, ends)
        return short or await self._cleared(ends)

    # -- everything home -------------------------------------------------------------------------------------

    async def _home(self, wanted: Retiring, ends: float) -> Ended | None:
        """None once no node is lent: act brings them home, or we do where none is alive and we may."""
        while True:
            # Before the look: an actor may bring the last one home and end.
            alive = await self._patiently(ends, self._holders["act"].alive)
            out = await self._patiently(ends, self._out)
            if not out:
                return None
            if alive:
                self._say(f"still lent: {some(out)}; act brings them home")
            elif wanted.alone:
                await self._leading(ends, self._bring_home)
            else:
                return _no_actor(out)
            if not await self._time_left(ends):
                return Ended("still-out", f"still lent after all the time given: {some(out)}; run it again", out)

    async def _bring_home(self, held: Held) -> None:
        hands = ClusterHands(self.api, held, self.policy.acting, self.reading, Metrics(["act"]))
        try:
            await Alone(self._eyes, hands, self.policy, held.epoch, self._say).bring_home()
        finally:
            await hands.settled()

    async def _out(self) -> tuple[str, ...]:
        return tuple(sorted(node.name for node in await self._nodes() if node.mark is not None))

    async def _nodes(self) -> list[Node]:
        return [one for one in await self._eyes.snapshot("node") if isinstance(one, Node)]

    # -- nobody there to lend anew ---------------------------------------------------------------------------

    async def _stopped(self, wanted: Retiring, ends: float) -> Ended | None:
        """None once nobody alive holds a Lease."""
        for name in wanted.stop:
            await self._patiently(ends, partial(self._scale_down, name))
        while alive := await self._patiently(ends, self._alive):
            running = ", ".join(sorted(set(alive)))
            if not wanted.stop and any(holder.renewing for holder in self._holders.values()):
                return _still_running(running)
            self._say(f"waiting for {running} to end")
            if not await self._time_left(ends):
                return _still_running(running)
        return None

    async def _alive(self) -> list[str]:
        return [holder.name for holder in self._holders.values() if await holder.alive()]

    async def _scale_down(self, name: str) -> None:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}/scale"
        body = {"spec": {"replicas": 0}}
        reply = await self.api.request("PATCH", path, body=body, content_type=MERGE, timeout=PATIENCE)
        if not reply.ok and reply.status != 404:
            raise NotListed(path, reply.status, f"it cannot be scaled down: {reply.message}")
        self._say(f"deployment {name} scaled to 0" if reply.ok else f"there is no deployment {name}")

    # -- the last part, with act's Lease in our own hands ------------------------------------------------------

    async def _cleared(self, ends: float) -> Ended:
        loop, found = asyncio.get_running_loop(), []

        async def work(held: Held) -> None:
            found.append(await self._clear(held))

        if not await self._leading(max(ends, loop.time() + CLEARING), work):
            return _still_running(self._holders["act"].name or "somebody")
        ended: Ended = found[0]
        if ended.done:
            await self._delete_leases()
        return ended

    async def _leading(self, ends: float, work: Callable[[Held], Awaitable[None]]) -> bool:
        """Do this while holding act's Lease; False if it was not over in time."""
        leadership = Leadership(
            self.api, self.lease, self.namespace, "act", self.identity, Metrics(["act"]), lambda: least_epoch(self.api)
        )
        try:
            async with asyncio.timeout_at(ends) as limit:
                await leadership.lead(work)
        except TimeoutError:
            if not limit.expired():  # a call's time-out, not ours
                raise
            return False
        return True

    async def _clear(self, held: Held) -> Ended:
        if out := await self._out():
            return _no_actor(out)  # lent while the last actor ended: the next run brings it home
        hands = ClusterHands(self.api, held, self.policy.acting, self.reading, Metrics(["act"]))
        try:
            left = await Sweeper(self.api, hands, held, self.policy, self.reading, self._say).sweep()
        finally:
            await hands.settled()
        if left:
            return Ended("traces", f"traces of ours that could not be taken away: {some(left)}", left)
        await brakes.delete_control(self.api, self.namespace)
        return Ended("retired", "every loan is home, and nothing of ours is left in the cluster")

    async def _delete_leases(self) -> None:
        for role in ROLES:
            path = lease_path(self.namespace, f"{self.lease.name}-{role}")
            reply = await self.api.request("DELETE", path, timeout=PATIENCE)
            if not reply.ok and reply.status != 404:
                raise NotListed(path, reply.status, f"it cannot be deleted: {reply.message}")

    # -- small things ------------------------------------------------------------------------------------------

    async def _nothing_there(self) -> bool:
        _, version = await brakes.read_control(self.api, self.namespace)
        for holder in self._holders.values():
            await holder.alive()
        if version or any(holder.there for holder in self._holders.values()):
            return False
        return not [raw async for raw in listed(self.api, "/api/v1/nodes") if traces.on_node(raw)]

    async def _patiently(self, ends: float, ask: Callable[[], Awaitable[T]]) -> T:
        """What this says; a server that is away or busy for a moment ends no waiting that has time left."""
        while True:
            try:
                return await ask()
            except (ConnectionError, TimeoutError, NotListed) as error:
                if isinstance(error, NotListed) and not error.passing:
                    raise
                self._say(str(error))
                if not await self._time_left(ends):
                    raise

    async def _time_left(self, ends: float) -> bool:
        if asyncio.get_running_loop().time() >= ends:
            return False
        await asyncio.sleep(LOOK_EVERY)
        return True

    def _say(self, said: str) -> None:
        if said != self._told:
            self._told = said
            self.tell(said)


def retired(control: Control, by: str, why: str) -> Control:
    """The brakes of an installation that is to go; what else they hold stays."""
    return control if control.retired else replace(control, retired=True, by=by, why=why)


def _no_actor(out: tuple[str, ...]) -> Ended:
    said = (
        f"no act is alive to bring home what is lent: {some(out)}; start it again (it does so with or without Kafka), "
        "or run this with --alone to let it bring them home itself"
    )
    return Ended("no-actor", said, out)


def _still_running(who: str) -> Ended:
    said = (
        f"every loan is home and nothing is lent any more, but {who} still runs: stop it (helm uninstall, kubectl "
        "scale its Deployment to 0, or Ctrl-C where it runs by hand), then run this again; or name the Deployment with "
        "--stop"
    )
    return Ended("still-running", said)
