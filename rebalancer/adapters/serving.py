"""What probes, scrapers and people see over HTTP: metrics, health, readiness, and why things happened. Read-only.

Nothing is decided or changed from here. Text is for people, JSON (`Accept: application/json` or `?format=json`) is
spelled as the command line's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.spelling import encoded
from rebalancer.adapters.store import Store
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.why import UnknownTarget, why
from rebalancer.core.reasons import sentence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOADING = 5
"""Seconds after which whoever asked too early may ask again."""
DECISIONS = 20
MOST_DECISIONS = 500
"""Decisions in one answer, unless and at most: the topics have the rest."""
LONGEST = 512
"""Characters of a name that is asked about: two Kubernetes names and what joins them."""


class Known(Protocol):
    """A store for the pages that explain. ``loaded``: it knows what there was."""

    store: Store
    loaded: bool


def pages(metrics: Metrics, healths: Sequence[Health], known: Known | None = None) -> web.Application:
    """All pages. A role that is not alive answers 503 on /healthz, one not up to date on /readyz.

    ``known``: what /why, /loans and /decisions are answered from; without it there are none.
    """

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return _states(healths, all(health.alive for health in healths))

    async def readyz(_: web.Request) -> web.Response:
        return _states(healths, all(health.ready for health in healths))

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    if known is not None:
        told = Explained(known)
        app.add_routes(
            [
                web.get("/why/{target:.+}", told.why),
                web.get("/loans", told.loans),
                web.get("/decisions", told.decisions),
            ]
        )
    return app


class Explained:
    """The pages that explain, each from the store as it is at that moment."""

    def __init__(self, known: Known) -> None:
        self._known = known

    async def why(self, request: web.Request) -> web.Response:
        """The story of a decision, pod, gang, node, loan or alert; 404 names what is called like it."""
        self._ready()
        target = request.match_info["target"]
        try:
            story = why(self._known.store, target[:LONGEST])
        except UnknownTarget as unknown:
            told = {"error": str(unknown.args[0]), "nearest": list(unknown.nearest)}
            return _answer(request, told, str(unknown.args[0]), status=404)
        return _answer(request, story, story.sentence)

    async def loans(self, request: web.Request) -> web.Response:
        """Loans that are out, by due time."""
        self._ready()
        found = sorted((loan for loan in self._known.store.loans.values() if loan.open), key=lambda one: one.due)
        lines = [f"{one.node_name} {one.phase} to {one.gang} until {one.due.isoformat()} ({one.id})" for one in found]
        return _answer(request, found, "\n".join(lines) or "no loan is out")

    async def decisions(self, request: web.Request) -> web.Response:
        """The latest decisions, newest first, with what became of them; `?count=`."""
        self._ready()
        asked = request.query.get("count", str(DECISIONS))
        count = min(int(asked), MOST_DECISIONS) if asked.isascii() and asked.isdigit() and len(asked) < 9 else DECISIONS
        store = self._known.store
        plans = store.recent(count)
        found = [{"sentence": sentence(one.because), "plan": one, "outcomes": store.results(one)} for one in plans]
        lines = [
            f"{one.made_at.isoformat()} {one.id} {one.method} {one.pool}: {sentence(one.because)}" for one in plans
        ]
        return _answer(request, found, "\n".join(lines) or "no decision yet")

    def _ready(self) -> None:
        if not self._known.loaded:
            raise web.HTTPServiceUnavailable(
                text="the topics are still being read\n", headers={"Retry-After": f"{LOADING}"}
            )


def _answer(request: web.Request, value: Any, text: str, status: int = 200) -> web.Response:
    wanted = request.query.get("format", "json" if "application/json" in request.headers.get("Accept", "") else "text")
    if wanted == "json":
        return web.Response(text=encoded(value) + "\n", content_type="application/json", status=status)
    return web.Response(text=text + "\n", status=status)


def _states(healths: Sequence[Health], good: bool) -> web.Response:
    return web.json_response([dict(health.state()) for health in healths], status=200 if good else 503)


def serving(app: web.Application, host: str, port: int) -> AbstractAsyncContextManager[None]:
    """Serve while the context is open; raises OSError when the port is taken."""
    return _serving(app, host, port)


@asynccontextmanager
async def _serving(app: web.Application, host: str, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
