"""A real Alertmanager takes our alerts, keeps them apart, resolves them, and lets those run out that nobody tells."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from rebalancer.adapters.alerts import Alertmanagers, Board, replica
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.reasons import Because, Reason
from rebalancer.settings import AlertSettings
from tests.servers.goparts import binary
from tests.servers.ports import free_ports

pytestmark = [pytest.mark.timeout(120), pytest.mark.go_binaries("alertmanager")]
CLUSTER = "berlin"
WITHIN = 30.0
CONFIG = """
route:
  receiver: people
  group_by: [alertname, cluster]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: people
    webhook_configs:
      - url: http://127.0.0.1:{port}/
        send_resolved: true
"""


class Alertmanager:
    """One process; asked over its own API."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    async def alerts(self, **query: str) -> list[dict[str, Any]]:
        """What stands there now."""
        async with self._session.get(f"{self.url}/api/v2/alerts", params=query) as answer:
            assert answer.status == 200
            found: list[dict[str, Any]] = await answer.json()
            return found

    async def ready(self) -> None:
        async with asyncio.timeout(WITHIN):
            while True:
                try:
                    await self.alerts()
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)
                else:
                    return

    async def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Wait for what stands there to be so."""
        async with asyncio.timeout(WITHIN):
            while not holds(found := await self.alerts()):  # noqa: ASYNC110 - another process has no event for us
                await asyncio.sleep(0.05)
            return found


def prepared(folder: Path, webhook: int) -> Path:
    """Its folder with the configuration in it."""
    folder.mkdir()
    (folder / "am.yaml").write_text(CONFIG.format(port=webhook), encoding="utf-8")
    return folder


@asynccontextmanager
async def alertmanager(at: Path, webhook: int) -> AsyncIterator[Alertmanager]:
    folder, (port,) = prepared(at, webhook), free_ports(1)
    words = [
        f"--config.file={folder / 'am.yaml'}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    program = await asyncio.to_thread(binary, "alertmanager")  # the first call on a machine builds it
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *words, stdout=log, stderr=log)
        try:
            async with aiohttp.ClientSession() as session:
                found = Alertmanager(f"http://127.0.0.1:{port}", session)
                await found.ready()
                yield found
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


class People:
    """Whoever is notified: keeps what the webhook brings."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        (self.port,) = free_ports(1)

    async def take(self, request: web.Request) -> web.Response:
        self.told.append(await request.json())
        return web.Response()

    async def heard(self, status: str) -> dict[str, Any]:
        """The first notification in this state."""
        async with asyncio.timeout(WITHIN):
            while not (found := [one for one in self.told if one["status"] == status]):  # noqa: ASYNC110 - a list
                await asyncio.sleep(0.05)
            return found[0]


@pytest.fixture
async def people() -> AsyncIterator[People]:
    found, app = People(), web.Application()
    app.add_routes([web.post("/", found.take)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", found.port).start()
    yield found
    await runner.cleanup()


@asynccontextmanager
async def sending(
    held: Board, metrics: Metrics, settings: AlertSettings, clock: Callable[[], datetime] | None = None
) -> AsyncIterator[Alertmanagers]:
    senders = Alertmanagers(held, settings, metrics, clock or (lambda: datetime.now(UTC)))
    task = asyncio.ensure_future(senders.run())
    try:
        yield senders
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def alert(reason: Reason, target: str, key: str, since: datetime) -> RaiseAlert:
    because = Because(reason, {"node": target, "overdue_seconds": 45, "gang": target, "gone": 1, "members": 8})
    return RaiseAlert(key, "critical", target, "infer-a100", because, since)


def settings(*urls: str, resend: float = 60) -> AlertSettings:
    link, runbooks = "https://rebalancer.example.org", "https://runbooks.example.org"
    return AlertSettings(alertmanagers=urls, resend=resend, timeout=2, link=link, runbooks=runbooks)


async def test_two_replicas_are_told_of_what_stands_and_of_its_end_though_a_third_is_down(
    tmp_path: Path, people: People
) -> None:
    down = f"http://127.0.0.1:{free_ports(1)[0]}"
    metrics, since = Metrics(), datetime.now(UTC)
    async with alertmanager(tmp_path / "a", people.port) as one, alertmanager(tmp_path / "b", people.port) as two:
        given = settings(down, one.url, two.url)
        held = Board(CLUSTER, given, metrics)
        held.raised(alert(Reason.OVERDUE, "a100-07", "id-1", since))
        held.raised(alert(Reason.OVERDUE, "a100-08", "id-2", since))
        async with sending(held, metrics, given) as senders:
            for server in (one, two):
                found = await server.until(lambda standing: len(standing) == 2)
                (first,) = [told for told in found if told["labels"]["node"] == "a100-07"]
                assert first["labels"] == {
                    "alertname": "GpuRebalancerLoanOverdue", "cluster": CLUSTER, "severity": "critical",
                    "reason": "overdue", "source": "gpu-rebalancer", "pool": "infer-a100", "node": "a100-07",
                }  # fmt: skip
                assert first["annotations"]["summary"] == "a100-07 is 45 s past its due time"
                assert first["annotations"]["runbook_url"].endswith("/GpuRebalancerLoanOverdue.md")
                assert first["generatorURL"] == "https://rebalancer.example.org/why/id-1"
                assert first["status"]["state"] == "active"
            heard = await people.heard("firing")
            assert heard["commonLabels"]["alertname"] == "GpuRebalancerLoanOverdue"
            held.cleared("id-1", datetime.now(UTC))
            held.cleared("id-2", datetime.now(UTC))
            senders.changed()
            for server in (one, two):
                await server.until(lambda standing: not standing)
            resolved = await people.heard("resolved")
    assert {told["labels"]["node"] for told in resolved["alerts"]} == {"a100-07", "a100-08"}
    label = {"replica": replica(down), "result": "unreachable"}
    assert (metrics.registry.get_sample_value("gpu_rebalancer_alerts_sent_total", label) or 0) > 0


async def test_told_by_two_processes_and_told_again_it_stays_one_alert(tmp_path: Path, people: People) -> None:
    since = datetime.now(UTC)
    async with alertmanager(tmp_path / "a", people.port) as one:
        given = settings(one.url, resend=1)
        boards = [Board(CLUSTER, given, Metrics()) for _ in range(2)]
        for held in boards:
            held.raised(alert(Reason.GANG_SPLIT, "ml/a", "id-1", since))
        counted = Metrics()
        async with sending(boards[0], counted, given), sending(boards[1], Metrics(), given):
            (before,) = await one.until(lambda standing: len(standing) == 1)
            (after,) = await one.until(lambda standing: standing[0]["endsAt"] > before["endsAt"])
    assert after["fingerprint"] == before["fingerprint"]
    assert after["startsAt"] == before["startsAt"]


async def test_when_nobody_tells_it_any_more_it_runs_out(tmp_path: Path, people: People) -> None:
    since = datetime.now(UTC) - timedelta(hours=1)
    async with alertmanager(tmp_path / "a", people.port) as one:
        given = settings(one.url, resend=1)
        held = Board(CLUSTER, given, Metrics())
        held.raised(alert(Reason.GANG_SPLIT, "ml/a", "id-1", since))
        async with sending(held, Metrics(), given):
            await one.until(lambda standing: len(standing) == 1)
        await one.until(lambda standing: not standing)
        assert (await people.heard("resolved"))["alerts"][0]["labels"]["gang"] == "ml/a"


@pytest.mark.parametrize(
    "target", ["ml/a b", 'ml/"a"', "ml/ä\n", "ml/" + "x" * 400], ids=["space", "quotes", "letters", "length"]
)
async def test_whatever_a_name_holds_it_is_taken(tmp_path: Path, people: People, target: str) -> None:
    async with alertmanager(tmp_path / "a", people.port) as one:
        given = settings(one.url)
        held = Board(CLUSTER, given, Metrics())
        held.raised(alert(Reason.GANG_SPLIT, target, "id/1 2", datetime.now(UTC)))
        async with sending(held, Metrics(), given):
            (found,) = await one.until(lambda standing: len(standing) == 1)
    assert found["labels"]["gang"] == target
