"""Full lists of objects as the API server has them now, page by page, for commands that look once.

Bounded in pages and in time. What watches has its own lists; nothing is kept or decoded here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.decode.objects import items, mapping, metadata, text

PAGE = 500
"""Objects a page: what client-go's pager asks for by default."""
PAGES = 1_000
"""Pages a list: half a million objects, more than a cluster may hold; beyond it the server contradicts itself."""
TOO_MANY = 429
PATIENCE = 30.0
"""Seconds a page: 500 large pods of a busy server take a few."""


class NotListed(Exception):  # noqa: N818 - an answer, not a defect
    """A list was refused; ``status`` is the server's."""

    def __init__(self, path: str, status: int, message: str) -> None:
        super().__init__(f"{path} cannot be listed: {message}")
        self.path, self.status = path, status

    @property
    def passing(self) -> bool:
        """Whether the server is only busy, or broken for a while: asked again it may well list."""
        return self.status == TOO_MANY or self.status >= 500


class Endless(Exception):  # noqa: N818 - an answer, not a defect
    """A list goes on for longer than any list may."""


async def pages(
    ask: Callable[[dict[str, str]], Awaitable[Mapping[str, Any]]], most: int = PAGES
) -> AsyncIterator[Mapping[str, Any]]:
    """A list's bodies, page by page; ``ask`` gets what belongs into a page's query.

    Raises:
        Endless: it goes on after ``most`` pages. Beside it whatever ``ask`` raises.
    """
    token = ""
    for _ in range(most):
        body = await ask({"limit": str(PAGE), **({"continue": token} if token else {})})
        yield body
        token = text(metadata(body).get("continue"))
        if not token:
            return
    raise Endless(f"more than {PAGE * most} objects")


async def listed(api: Api, path: str, **query: str) -> AsyncIterator[Mapping[str, Any]]:
    """All objects under a path, each with the ``kind`` and ``apiVersion`` that lists leave out.

    Raises:
        NotListed: the server refused; 404 where it does not know the kind.
        ConnectionError, TimeoutError: it cannot be reached.
    """

    async def ask(page: dict[str, str]) -> Mapping[str, Any]:
        reply = await api.request("GET", path, query={**query, **page}, timeout=PATIENCE)
        if not reply.ok:
            raise NotListed(path, reply.status, reply.message)
        return mapping(reply.body)

    try:
        async for body in pages(ask):
            said = {"apiVersion": text(body.get("apiVersion")), "kind": text(body.get("kind")).removesuffix("List")}
            for raw in items(body.get("items")):
                yield {**said, **raw}
    except Endless as error:
        raise NotListed(path, 500, str(error)) from error
