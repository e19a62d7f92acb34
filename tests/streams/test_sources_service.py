"""Role collect with sources alone: it needs no cluster to look at, as act still does."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.bootstrap.service import Service
from rebalancer.settings import NoCluster, Settings
from tests.streams.sourced import OURS, POD_FACTS, foreign

POLICY = Path(__file__).parents[2] / "deploy" / "policy.example.yaml"


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        broker.create(OURS)
        yield broker.bootstrap


def settings(bootstrap: str, *roles: str) -> Settings:
    given = {
        "kafka": {"bootstrap": bootstrap},
        "policy": POLICY,
        "roles": roles,
        "http": {"port": 0},
        "sources": [{"topic": "objects", "format": "kubernetes-json"}],
    }
    return Settings.model_validate(given)


async def test_collect_runs_from_sources_alone(bootstrap: str) -> None:
    async with foreign(bootstrap, 5) as there, AsyncExitStack() as stack:
        await there.put_sample("objects", "raw_watch_event")
        works = await Service(settings(bootstrap, "collect"), stack).begin()
        tasks = [asyncio.ensure_future(work()) for work in works]
        try:
            (pod,) = await there.facts(POD_FACTS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert pod.uid == "7e570007-0000-4000-8000-000000000007"


async def test_act_needs_a_cluster_all_the_same(bootstrap: str) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(NoCluster, match="need a cluster"):
            await Service(settings(bootstrap, "collect", "act"), stack).begin()
