"""A process with role act: what decide has published reaches the Alertmanager, the pages and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import encode_alert, encode_plan
from rebalancer.bootstrap.service import Service
from rebalancer.core.instructions import ClearAlert
from rebalancer.core.reasons import Reason
from rebalancer.settings import Settings
from rebalancer.wire.topics import topics
from tests.cli import night
from tests.monitoring.test_alerts import alert
from tests.monitoring.test_delivery import Replica, replicas
from tests.servers.ports import free_ports

POLICY = Path(__file__).parents[2] / "deploy" / "policy.example.yaml"
WITHIN = 30


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        broker.create([topic.name for topic in topics()])
        yield broker.bootstrap


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    async with replicas(1) as (one,):
        yield one


@pytest.fixture
async def page(bootstrap: str, replica: Replica) -> AsyncIterator[str]:
    """Base address of a running process with role act."""
    (port,) = free_ports(1)
    given = {
        "cluster": night.CLUSTER, "kafka": {"bootstrap": bootstrap}, "policy": POLICY, "roles": ["act"],
        "http": {"host": "127.0.0.1", "port": port}, "simulate": "demo",
        "alerts": {"alertmanagers": [replica.url], "resend": 600},
    }  # fmt: skip
    async with AsyncExitStack() as stack:
        works = await Service(Settings.model_validate(given), stack).begin()
        tasks = [asyncio.ensure_future(work()) for work in works]
        yield f"http://127.0.0.1:{port}"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def fetched(url: str, status: int = 200) -> str:
    """The page, once it has this status."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(WITHIN):
        while True:
            async with session.get(url) as answer:
                if answer.status == status:
                    return await answer.text()
            await asyncio.sleep(0.05)


async def test_an_alert_reaches_the_alertmanager_and_its_link_explains_it(
    bootstrap: str, replica: Replica, page: str
) -> None:
    told = alert(Reason.GANG_SPLIT, night.GANG, "alert-7")
    async with Publisher(KafkaSettings(bootstrap=bootstrap)) as publisher:
        await fetched(f"{page}/decisions")
        await publisher.send([encode_plan(night.reclaim_plan(), night.CLUSTER)], night.CLUSTER)
        await publisher.send([encode_alert(told, night.CLUSTER)], night.CLUSTER)
        explained = await fetched(f"{page}/why/alert-7")
        await replica.times(1)
        await publisher.send([encode_alert(ClearAlert("alert-7", datetime.now(UTC)), night.CLUSTER)], night.CLUSTER)
        await replica.times(2)
    assert explained.startswith("warning since 2026-03-02 22:00Z: ")
    assert f"{night.GANG} was to be evicted" in explained
    standing, over = replica.bodies[0][0], replica.bodies[1][0]
    assert standing["labels"] == over["labels"]
    assert datetime.fromisoformat(standing["endsAt"]) > datetime.now(UTC) >= datetime.fromisoformat(over["endsAt"])
    assert 'gpu_rebalancer_alerts_sent_total{replica="127.0.0.1' in await fetched(f"{page}/metrics")
