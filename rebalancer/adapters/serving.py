"""What probes and scrapers see over HTTP: /metrics, /healthz and /readyz. Read-only; nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.health import Health

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def pages(metrics: Metrics, healths: Sequence[Health]) -> web.Application:
    """The three pages. A role that is not alive answers 503 on /healthz, one not up to date on /readyz."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(_: web.Request) -> web.Response:
        return _states(healths, all(health.alive for health in healths))

    async def readyz(_: web.Request) -> web.Response:
        return _states(healths, all(health.ready for health in healths))

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


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
