"""The collect role put together: facts are told by whoever holds the Lease, and only while it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.bootstrap.atcluster import Collecting, Ground, begin_collect
from rebalancer.settings import DcgmSettings, KubernetesSettings, LeaseSettings, NoCluster, Settings
from rebalancer.wire import v1
from tests.cluster_fast.fakeapi import FakeApi, fake_api, node, pod
from tests.hands.fakeapi import kubeconfig
from tests.streams.fakes import FakePublisher
from tests.streams.things import POLICY

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpu-rebalancer/leases/gpu-rebalancer-collect"
QUICK = LeaseSettings(duration=1.2, renew=0.9, retry=0.1)


class Replica:
    """One process's collect role, and what it told."""

    def __init__(self, role: Collecting, told: FakePublisher) -> None:
        self.role, self.told = role, told
        self.task = asyncio.create_task(role.run())

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def replica(api: FakeApi, folder: Path, dcgm: DcgmSettings | None = None) -> AsyncIterator[Replica]:
    at = KubernetesSettings(kubeconfig=kubeconfig(folder, api.url))
    settings = Settings(
        cluster="berlin",
        kafka=KafkaSettings(bootstrap="127.0.0.1:1"),
        kubernetes=at,
        lease=QUICK,
        dcgm=dcgm or DcgmSettings(source="none"),
    )
    told = FakePublisher()
    async with connected(at) as connection, AsyncExitStack() as stack:
        ground = Ground(settings, connection, at.namespace, cast("Publisher", told), Metrics(), stack)
        role, _ = await begin_collect(ground, POLICY, None)
        running = Replica(role, told)
        try:
            yield running
        finally:
            await running.end()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def listed(told: FakePublisher) -> int:
    """Records on the pod topic."""
    return len(told.on(v1.FACT_TOPICS["pod"]))


async def test_the_holder_tells_lists_and_changes_the_other_stands_by_and_takes_over(tmp_path: Path) -> None:
    async with fake_api() as api:
        api.put("/api/v1/nodes", node("n1"))
        api.put("/api/v1/pods", pod("p1", node="n1"))
        async with replica(api, tmp_path) as first:
            await until(lambda: listed(first.told) == 3)
            assert not first.role.health.standby
            async with replica(api, tmp_path) as second:
                api.put("/api/v1/pods", pod("p2"))
                await until(lambda: listed(first.told) == 4)
                assert second.told.records == []
                assert second.role.health.standby
                await first.end()
                assert api.leases[LEASE]["spec"].get("holderIdentity", "") in ("", None)
                await until(lambda: listed(second.told) == 4)
                assert first.role.health.standby


async def test_without_a_word_about_where_utilisation_comes_from_nothing_begins(tmp_path: Path) -> None:
    async with fake_api() as api:
        with pytest.raises(NoCluster, match=r"dcgm\.url"):
            async with replica(api, tmp_path, DcgmSettings()):
                pass
