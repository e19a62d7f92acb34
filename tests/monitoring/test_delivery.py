"""Each replica of an Alertmanager is told by itself: one that hangs, refuses or is gone delays nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from rebalancer.adapters.alerts import CHUNK, Alertmanagers, Board, replica
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.reasons import Reason
from rebalancer.settings import AlertSettings
from tests.monitoring.test_alerts import alert, board


class Replica:
    """An Alertmanager that keeps what it is told. ``status`` is its answer; ``hangs``: it does not give one."""

    def __init__(self) -> None:
        self.bodies: list[list[dict[str, Any]]] = []
        self.status, self.hangs = 200, False
        self.url = ""
        self.asked = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.asked.set()
        if self.hangs:
            await asyncio.sleep(3600)
        return web.Response(status=self.status, text="no" if self.status >= 300 else "")

    async def times(self, count: int) -> None:
        while len(self.bodies) < count:
            self.asked.clear()
            await asyncio.wait_for(self.asked.wait(), 10)


@asynccontextmanager
async def replicas(count: int) -> AsyncIterator[list[Replica]]:
    found, runners = [Replica() for _ in range(count)], []
    for one in found:
        app = web.Application()
        app.add_routes([web.post("/api/v2/alerts", one.take)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        runners.append(runner)
    try:
        yield found
    finally:
        for runner in runners:
            await runner.cleanup()


@asynccontextmanager
async def sending(urls: list[str], held: Board, metrics: Metrics, **changes: float) -> AsyncIterator[Alertmanagers]:
    settings = AlertSettings(alertmanagers=tuple(urls), **changes)
    senders = Alertmanagers(held, settings, metrics)
    task = asyncio.ensure_future(senders.run())
    try:
        yield senders
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def sent(metrics: Metrics, url: str, result: str) -> float | None:
    return metrics.registry.get_sample_value(
        "gpu_rebalancer_alerts_sent_total", {"replica": replica(url), "result": result}
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - a counter has no event
            await asyncio.sleep(0.01)


async def test_every_replica_is_told_and_one_that_hangs_delays_nobody() -> None:
    metrics, held = Metrics(), board()
    held.raised(alert())
    async with replicas(2) as (hanging, well):
        hanging.hangs = True
        async with sending([hanging.url, well.url], held, metrics, resend=600, timeout=60) as senders:
            await well.times(1)
            held.raised(alert(Reason.GANG_SPLIT, "ml/a", "b"))
            senders.changed()
            await well.times(2)
            await until(lambda: sent(metrics, well.url, "accepted") == 3)  # counted a moment after it came
    assert [len(body) for body in well.bodies[:2]] == [1, 2]
    assert len(hanging.bodies) == 1
    assert (sent(metrics, well.url, "accepted"), sent(metrics, hanging.url, "accepted")) == (3, 0)


@pytest.mark.parametrize(
    ("status", "result"),
    [pytest.param(400, "refused", id="refused"), pytest.param(503, "failed", id="failed")],
)
async def test_what_is_not_taken_is_counted_and_told_again_soon(
    status: int, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rebalancer.adapters.alerts.SOON", 0.01)
    metrics, held = Metrics(), board()
    held.raised(alert())
    async with replicas(1) as (one,):
        one.status = status
        async with sending([one.url], held, metrics, resend=600):
            await one.times(2)
            one.status = 200
            await until(lambda: sent(metrics, one.url, "accepted") == 1)
    assert (sent(metrics, one.url, result) or 0) >= 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:1/prefix/", "http://["])
async def test_an_address_that_nobody_answers_raises_nothing(url: str) -> None:
    metrics, held = Metrics(), board()
    held.raised(alert())
    async with sending([url], held, metrics):
        await until(lambda: sent(metrics, url, "unreachable") == 1)
    assert sent(metrics, url, "accepted") == 0


async def test_one_that_is_too_slow_is_left_alone_in_time() -> None:
    metrics, held = Metrics(), board()
    held.raised(alert())
    async with replicas(1) as (one,):
        one.hangs = True
        async with sending([one.url], held, metrics, timeout=0.05):
            await until(lambda: sent(metrics, one.url, "timed-out") == 1)
    assert sent(metrics, one.url, "accepted") == 0


async def test_many_alerts_come_in_bounded_requests() -> None:
    metrics, held = Metrics(), board()
    for number in range(CHUNK + 1):
        held.raised(alert(target=f"n{number}", key=str(number)))
    async with replicas(1) as (one,), sending([one.url], held, metrics):
        await one.times(2)
    assert [len(body) for body in one.bodies[:2]] == [CHUNK, 1]


def test_a_password_in_an_address_does_not_become_a_label() -> None:
    assert replica("https://me:secret@am.example.org:9093/x") == "am.example.org:9093"
