"""The requests of one call to the API server: bounded together, writes only while the lease outlasts them.

What went wrong is an answer, carried by the one exception of this room. Nothing is sent twice; what a refusal means
for the next move is the core's to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rebalancer.adapters.cluster.connection import Api, Reply
from rebalancer.adapters.cluster.lease import Held
from rebalancer.adapters.cluster.listing import Endless, pages
from rebalancer.adapters.decode.eviction import eviction_answer
from rebalancer.adapters.decode.objects import items, mapping
from rebalancer.core.protocol.calls import Answer, AnswerKind

MANAGER = "gpu-rebalancer"
"""Our name in the managedFields of what we write."""
PAGES = 40
"""Pages of one list: 20,000 objects in one namespace or on one node are a fault."""


class NotAnswered(Exception):  # noqa: N818 - says what happened
    """A request of several failed; ``answer`` says how."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


class Asked:
    """The requests of one call: together they take no longer than the call may."""

    def __init__(self, api: Api, held: Held, within: float) -> None:
        self._api, self._held, self._within = api, held, within
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + within

    async def send(
        self, method: str, path: str, body: object = None, content_type: str | None = None,
        query: dict[str, str] | None = None,
    ) -> Reply:  # fmt: skip
        """One request; raises NotAnswered when no answer came."""
        left = self._ends - self._loop.time()
        if left <= 0.0:
            raise NotAnswered(Answer(AnswerKind.TIMED_OUT, message=f"{path}: no time is left for it"))
        try:
            return await self._api.request(
                method, path, body=body, query=query, content_type=content_type, timeout=left
            )
        except TimeoutError as error:
            raise NotAnswered(Answer(AnswerKind.TIMED_OUT, message=str(error))) from None
        except ConnectionError as error:
            raise NotAnswered(Answer(AnswerKind.UNREACHABLE, message=str(error))) from None

    async def write(
        self, method: str, path: str, body: object, content_type: str | None, query: dict[str, str] | None = None
    ) -> Reply:
        """As send, but only while the lease outlasts the whole call: asked right before sending."""
        remaining = self._held.remaining()
        if self._within > remaining:
            message = f"not sent: the lease is held for {remaining:.1f} s more, the call may take {self._within:g} s"
            raise NotAnswered(Answer(AnswerKind.UNREACHABLE, message=message))
        return await self.send(method, path, body, content_type, {"fieldManager": MANAGER, **(query or {})})

    async def good(self, method: str, path: str) -> Reply:
        """As send; raises NotAnswered for anything but success."""
        return good(await self.send(method, path))

    async def listed(self, path: str, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """All objects of a live list; raises NotAnswered when it could not be had whole."""

        async def ask(page: dict[str, str]) -> Mapping[str, Any]:
            return mapping(good(await self.send("GET", path, query={**(query or {}), **page})).body)

        try:
            return [dict(one) async for body in pages(ask, PAGES) for one in items(body.get("items"))]
        except Endless as error:
            raise NotAnswered(Answer(AnswerKind.FAILED, message=f"{path}: {error}")) from error


def answered(reply: Reply) -> Answer:
    return eviction_answer(reply.status, reply.headers, reply.body, datetime.now(UTC))


def good(reply: Reply) -> Reply:
    """The reply if it is a success with a body; raises NotAnswered otherwise."""
    answer = answered(reply)
    if answer.kind is not AnswerKind.OK:
        raise NotAnswered(answer)
    if not isinstance(reply.body, dict):
        raise NotAnswered(Answer(AnswerKind.FAILED, message="the answer is no object"))
    return reply
