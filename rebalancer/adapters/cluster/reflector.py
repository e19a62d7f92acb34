"""One resource of the API followed without a gap: paged lists, and a watch that goes on from where it broke off.

A list gives the watch its place. A broken connection is resumed from the last version heard; when the server no longer
has that version (410, as a status or inside the stream), refuses, or stays away for too long, the place is lost, which
is told once and made good only by another list. Nothing is remembered here but the place; objects are handed on raw.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from rebalancer.adapters.cluster.connection import Api, Query
from rebalancer.adapters.cluster.listing import Endless, pages
from rebalancer.adapters.cluster.watching import Watching

log = structlog.get_logger(__name__)
T = TypeVar("T")
LIST_TIMEOUT = 30.0
"""Seconds for a page; the API server itself gives up after 60."""
LIST_TRIES = 3
"""Beginnings of one list: its continuation expires when etcd is compacted in the middle of it."""
WATCH_SECONDS = (120, 240)
"""How long a watch may last, drawn at random so that not all are made anew at once; client-go draws from 300-600."""
IDLE = 90.0
"""Silent seconds after which a watch counts as broken: the server sends a bookmark about once a minute."""
BROKEN = 20.0
"""Seconds for which resuming is tried before the place is given up and everyone is told to list."""
PAUSES = (0.1, 5.0)
"""First and longest pause between two attempts; each is twice the one before, less up to a half by chance."""
BRIEF = 1.0
"""A watch that ends sooner than this, in seconds, counts as a failure: a server must not be asked in a tight loop."""
GONE, TOO_MANY = 410, 429


class Expired(Exception):  # noqa: N818 - an answer, not a defect
    """What a list would go on from is no longer kept."""


class Refused(ConnectionError):  # noqa: N818 - says what happened
    """The API server answered, and it will not list."""

    def __init__(self, path: str, status: int, why: str) -> None:
        hint = "; `rebalancer preflight` tells what is missing" if status in (401, 403) else ""
        super().__init__(f"list of {path} refused ({status}): {why}{hint}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Resource:
    """Objects of one kind: where they are listed, and how the list is narrowed. ``of`` labels counts."""

    of: str
    kind: str
    api_version: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)

    def whole(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Items of a list do not say what they are."""
        raw.setdefault("kind", self.kind)
        raw.setdefault("apiVersion", self.api_version)
        return raw


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """What a full list held, read, and the version as of which it holds."""

    found: list[T]
    version: str


class Reflector:
    """Follows one resource. ``take`` gets each event's type and object, ``lost`` why the place was lost."""

    def __init__(
        self,
        api: Api,
        resource: Resource,
        take: Callable[[str, dict[str, Any]], None],
        lost: Callable[[str], None],
        watching: Watching,
    ) -> None:
        self.resource = resource
        self._api, self._take, self._lost, self._watching = api, take, lost, watching
        self._version = ""
        self._placed = asyncio.Event()
        self._failing: float | None = None
        """Since when every attempt broke off before the server said anything (monotonic seconds)."""
        self._pause = PAUSES[0]

    @property
    def following(self) -> bool:
        """Whether the watch has a place to go on from."""
        return bool(self._version)

    # -- lists -------------------------------------------------------------------------------------------------

    async def list(self, read: Callable[[dict[str, Any]], T]) -> Listed[T]:
        """All objects there are, each read at once so that no raw page outlives the next.

        Raises:
            Refused: the server answered with an error.
            ConnectionError, TimeoutError: it did not answer.
        """
        for _ in range(LIST_TRIES):
            try:
                listed = await self._listed(read)
            except Expired:
                continue
            except Endless as error:
                raise self._refused(GONE, str(error)) from error
            self._watching.lists.labels(self.resource.of).inc()
            return listed
        raise Refused(self.resource.path, GONE, "it expired before it was read to its end, each time")

    async def _listed(self, read: Callable[[dict[str, Any]], T]) -> Listed[T]:
        found: list[T] = []
        version = ""
        async for body in pages(self._page):
            version = str((body.get("metadata") or {}).get("resourceVersion") or "")
            for raw in body.get("items") or ():
                found.append(read(self.resource.whole(raw)))
                if len(found) % 50 == 0:
                    await asyncio.sleep(0)  # a large page must not starve the other roles
        return Listed(found, version)

    async def _page(self, page: dict[str, str]) -> dict[str, Any]:
        """One page; raises Expired when the list that it continues is no longer kept."""
        query: Query = {**self.resource.query, **page}
        reply = await self._api.request("GET", self.resource.path, query=query, timeout=LIST_TIMEOUT)
        if reply.status == GONE and "continue" in page:
            raise Expired
        if not reply.ok or not isinstance(reply.body, dict):
            raise self._refused(reply.status, reply.message)
        return reply.body

    def _refused(self, status: int, why: str) -> Refused:
        self._watching.refused.labels(self.resource.of).inc()
        return Refused(self.resource.path, status, why)

    # -- the watch ---------------------------------------------------------------------------------------------

    def begin(self, version: str) -> None:
        """A list as of ``version`` was read: the watch, if it has no place of its own, goes on from there."""
        if version and not self._version:
            self._version, self._failing, self._pause = version, None, PAUSES[0]
            self._placed.set()

    async def run(self) -> None:
        """Watch until cancelled, whenever there is a place to watch from."""
        while True:
            await self._placed.wait()
            began = time.monotonic()
            try:
                await self._watch()
            except (ConnectionError, TimeoutError) as error:
                await self._broke(str(error) or type(error).__name__)
            else:
                if self._version and time.monotonic() - began < BRIEF:
                    await self._broke("the server ended it at once")

    async def _watch(self) -> None:
        """One connection, until the server ends it in order or the place is lost."""
        shortest, longest = WATCH_SECONDS
        lasting = shortest + secrets.randbelow(longest - shortest + 1)
        query: Query = {
            **self.resource.query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": lasting,
        }
        async with aclosing(self._api.stream(self.resource.path, query, idle=IDLE)) as events:
            async for event in events:
                self._handle(str(event.get("type", "")).upper(), event.get("object"))
                if not self._version:
                    return

    def _handle(self, kind: str, raw: object) -> None:
        held = raw if isinstance(raw, dict) else {}
        if kind == "ERROR":
            self._failed(held)
            return
        self._failing, self._pause = None, PAUSES[0]
        self._watching.hear(self.resource.of)
        version = str((held.get("metadata") or {}).get("resourceVersion") or "")
        if kind != "BOOKMARK":
            self._take(kind, self.resource.whole(held))
        if version and self._version:
            self._version = version

    def _failed(self, status: Mapping[str, Any]) -> None:
        """An expired or refused watch needs a list; a server that is only busy is asked again."""
        code, why = status.get("code"), str(status.get("message") or "no reason given")[:300]
        if code == TOO_MANY or not isinstance(code, int) or code >= 500:
            raise ConnectionError(f"the watch ended with {code}: {why}")
        self._lose(f"{code}: {why}")

    async def _broke(self, why: str) -> None:
        now = time.monotonic()
        self._failing = now if self._failing is None else self._failing
        if now - self._failing > BROKEN:
            self._lose(why)
            return
        self._watching.resumed.labels(self.resource.of).inc()
        log.info("watch interrupted, going on", path=self.resource.path, why=why)
        await asyncio.sleep(self._pause * (1.0 - secrets.randbelow(500) / 1000.0))
        self._pause = min(self._pause * 2.0, PAUSES[1])

    def _lose(self, why: str) -> None:
        self._version = ""
        self._placed.clear()
        self._watching.lost.labels(self.resource.of).inc()
        log.warning("watch lost its place, a list is needed", path=self.resource.path, why=why)
        self._lost(why)
