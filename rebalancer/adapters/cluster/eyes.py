"""The cluster's eyes: lists and watches of everything that decisions need, as facts.

A list is always read from the API server, never from what was watched, and gives the watch of its kind a place if that
has none. Changes wait here one for each object, the newest, so that a slow taker costs memory by the size of the fleet
and not by time. When a watch loses its place the taker is told to list again; what a list shows as gone is told as
deleted, and what died lately is not raised by a late word. No raw object is kept, nothing is decided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import structlog

from rebalancer.adapters.cluster import discovery
from rebalancer.adapters.cluster.claimants import Claimants, Name, claim_of
from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.graveyard import Graveyard, Roll, newer
from rebalancer.adapters.cluster.reflector import LIST_TIMEOUT, Reflector, Refused, Resource
from rebalancer.adapters.cluster.sight import Sight
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.objects import metadata, text
from rebalancer.core.facts import Node, Pod
from rebalancer.core.ports import SightLost
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved

log = structlog.get_logger(__name__)
QUIET = 10.0
"""Seconds after which a taker is told that nothing changed: it shows that it is alive by taking."""
PENDING = 200_000
"""Most objects with a change that was not taken; beyond it all is dropped and listed again."""
FORBIDDEN = 403
FIXED: dict[FactKind, tuple[Resource, ...]] = {
    "node": (discovery.NODES,),
    "pod": (discovery.PODS,),
    "budget": (discovery.BUDGETS,),
    "namespace": (discovery.NAMESPACES,),
    "group": (discovery.JOBS,),
}


class ClusterEyes:
    """Eyes of one API server. :meth:`run` drives the watches; without it there are only lists."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        reading: Reading,
        watching: Watching,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._watching, self._now = api, watching, now
        self._claimants = Claimants()
        self._sight = Sight(replace(reading, claims=self._claimants.claims), watching)
        self._fixed = {**FIXED, "control": (discovery.control(namespace),)}
        self._sources: dict[str, _Source] = {}
        self._optional: tuple[Resource, ...] | None = None
        self._graves = Graveyard()
        self._pending: dict[tuple[FactKind, str], FactObserved | FactDeleted] = {}
        self._lost: dict[FactKind, str] = {}
        self._again: dict[Name, None] = {}
        self._policies, self._since = 0, ""
        """Policies that there were, and the version of the first list of nodes that was read by the one in force."""
        self._news, self._reread = asyncio.Event(), asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Watch everything that was listed, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._read_again(), name="eyes-claimants")
            for source in self._sources.values():
                source.start(tasks)

    def adopt(self, reading: Reading) -> None:
        """Another policy is in force: labels are read by its map from now, those of all nodes anew."""
        self._sight.reading = replace(reading, claims=self._claimants.claims)
        self._policies, self._since = self._policies + 1, ""
        self.lose("node", "another policy is in force")

    # -- the port ----------------------------------------------------------------------------------------------

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind.

        Raises:
            Refused: the API server answered with an error.
            ConnectionError, TimeoutError: it did not answer.
        """
        if of == "group" or self._optional is None:
            await self._discover()
        if of == "pod":
            await self._list_claims()
        facts: list[Fact] = []
        for resource in (*self._fixed[of], *(one for one in self._optional or () if one.of == of)):
            facts += await self._list(of, self._source(resource))
        return facts

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """What changed since the last call, one an object; empty after a while without any.

        Raises:
            SightLost: changes of some kinds may have been missed.
        """
        try:
            async with asyncio.timeout(QUIET):
                await self._news.wait()
        except TimeoutError:
            return ()
        self._news.clear()
        if self._lost:
            lost, self._lost = self._lost, {}
            if self._pending:
                self._news.set()
            raise SightLost(tuple(lost), "; ".join(sorted(set(lost.values()))))
        taken, self._pending = self._pending, {}
        return list(taken.values())

    # -- lists -------------------------------------------------------------------------------------------------

    async def _list(self, of: FactKind, source: _Source) -> list[Fact]:
        at, policies = self._now(), self._policies

        def read(raw: dict[str, Any]) -> tuple[str, str, Fact | None]:
            meta = metadata(raw)
            uid = text(meta.get("uid"))
            if of == "pod":
                self._claimants.pod(uid, raw)
            return uid, text(meta.get("resourceVersion")), self._sight.fact(of, raw)

        try:
            listed = await source.reflector.list(read)
        except Refused as refused:
            if refused.status == FORBIDDEN and of == "group" and not len(source.roll):
                log.warning("a kind of gangs is not seen", why=str(refused))
                return []
            raise
        alive = [one for one in listed.found if not self._graves.dead(one[0])]
        for uid in source.roll.listed((uid for uid, _, _ in alive), listed.version):
            self._died(of, uid, at)
        for uid, version, _ in alive:
            source.roll.news(uid, version)
        source.reflector.begin(listed.version)
        if of == "node" and policies == self._policies:
            self._since = self._since or listed.version
        return [self._anew(fact) for _, _, fact in alive if fact is not None]

    def _anew(self, fact: Fact) -> Fact:
        """A node that did not change since it is read by the policy in force: retold in every list.

        Whether one of these lists was taken in is not known here, nor by whose policy a process before us read it.
        What changes since bears a newer version than anybody knows.
        """
        unchanged = isinstance(fact, Node) and not newer(fact.resource_version, self._since)
        return _retold(fact) if unchanged else fact

    async def _discover(self) -> None:
        """What the server has now; kinds that it no longer has are no longer followed."""
        self._optional = await discovery.optional(self._api)
        served = {one.path for one in (*self._optional, *(one for fixed in self._fixed.values() for one in fixed))}
        for path in [path for path in self._sources if path not in served]:
            self._sources.pop(path).stop()

    async def _list_claims(self) -> None:
        for resource in (one for one in self._optional or () if one.of == "claim"):
            reflector = self._source(resource).reflector
            listed = await reflector.list(claim_of)
            self._claimants.listed(listed.found)
            reflector.begin(listed.version)

    def _source(self, resource: Resource) -> _Source:
        source = self._sources.get(resource.path)
        if source is None:
            source = self._sources[resource.path] = _Source(self, self._api, resource, self._watching)
            if self._tasks is not None:
                source.start(self._tasks)
        return source

    # -- changes -----------------------------------------------------------------------------------------------

    def lose(self, of: FactKind, why: str) -> None:
        """Changes of this kind may have been missed."""
        self._lost[of] = why
        self._news.set()

    def saw(self, of: FactKind, roll: Roll, kind: str, raw: dict[str, Any]) -> None:
        """One event of a watch."""
        meta = metadata(raw)
        uid = text(meta.get("uid"))
        if kind == "DELETED":
            roll.gone(uid)
            self._died(of, uid, self._now())
        elif not self._graves.dead(uid) and roll.news(uid, text(meta.get("resourceVersion"))):
            if of == "pod":
                self._claimants.pod(uid, raw)
            fact = self._sight.fact(of, raw)
            if fact is not None:
                self._tell(of, fact.uid, FactObserved(fact, self._now()))

    def claim_changed(self, kind: str, raw: dict[str, Any]) -> None:
        """One event of the watch of claims."""
        for pod in self._claimants.changed(kind, raw):
            self._again[pod] = None
            self._reread.set()

    def _died(self, of: FactKind, uid: str, at: datetime) -> None:
        """It is gone. Brakes that were deleted are only gone once a list says so."""
        if not uid:
            return
        self._graves.bury(uid, time.monotonic())
        if of == "control":
            self.lose("control", "the control object was deleted")
            return
        self._claimants.gone(uid)
        self._tell(of, uid, FactDeleted(of, uid, at))

    def _tell(self, of: FactKind, uid: str, change: FactObserved | FactDeleted) -> None:
        self._pending.pop((of, uid), None)
        self._pending[of, uid] = change
        if len(self._pending) > PENDING:
            self._pending.clear()
            for kind in self._fixed:
                self.lose(kind, "more changes than could be told")
        self._news.set()

    async def _read_again(self) -> None:
        """Pods whose claims changed, one by one; a pod that cannot be had waits for the next list."""
        while True:
            await self._reread.wait()
            self._reread.clear()
            wanted, self._again = self._again, {}
            for namespace, name in wanted:
                path = f"/api/v1/namespaces/{namespace}/pods/{name}"
                try:
                    reply = await self._api.request("GET", path, timeout=LIST_TIMEOUT)
                except (ConnectionError, TimeoutError) as error:
                    self.lose("pod", str(error))
                    break
                if reply.ok and not self._graves.dead(text(metadata(reply.body).get("uid"))):
                    fact = self._sight.fact("pod", discovery.PODS.whole(reply.body))
                    if fact is not None:
                        self._tell("pod", fact.uid, FactObserved(_retold(fact), self._now()))


def _retold(fact: Fact) -> Fact:
    """The same object read differently: without its version, or it would pass for what is known."""
    return replace(fact, resource_version="") if isinstance(fact, Node | Pod) else fact


class _Source:
    """One resource that is followed: its reflector, what it told, and its task."""

    def __init__(self, eyes: ClusterEyes, api: Api, resource: Resource, watching: Watching) -> None:
        self.roll = Roll()
        self._eyes, self._resource = eyes, resource
        self.reflector = Reflector(api, resource, self._take, self._lose, watching)
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._task = tasks.create_task(self.reflector.run(), name=f"eyes{self._resource.path}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _take(self, kind: str, raw: dict[str, Any]) -> None:
        of = _fact_kind(self._resource)
        if of is None:
            self._eyes.claim_changed(kind, raw)
        else:
            self._eyes.saw(of, self.roll, kind, raw)

    def _lose(self, why: str) -> None:
        """Pods are read by their claims, so claims are listed with the pods."""
        self._eyes.lose(_fact_kind(self._resource) or "pod", why)


def _fact_kind(resource: Resource) -> FactKind | None:
    return next((of for of in (*FIXED, "control") if of == resource.of), None)
