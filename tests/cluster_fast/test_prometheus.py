"""The Prometheus query API as a source: what it is asked, what of its answers is believed, whose samples they are."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import orjson
import pytest
from aiohttp import web

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.exporters import ExporterSource
from rebalancer.adapters.cluster.places import Exporter, Places
from rebalancer.adapters.cluster.sampling import Sampling
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.dcgm_rows import field_of
from rebalancer.adapters.decode.dcgm_text import decode_page
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.prometheus import PrometheusSource, query_of, rows_of
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.adapters.translate import read
from rebalancer.bootstrap.atcluster import Ground, share
from rebalancer.core.telemetry import NodeSample
from rebalancer.settings import DcgmSettings, KubernetesSettings, Settings
from tests.cluster_fast.fakeapi import FakeApi, fake_api, node, pod
from tests.decode import samples_here
from tests.hands.fakeapi import kubeconfig
from tests.streams.fakes import FakePublisher

NOW = 1_800_000_000.0
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def series(name: str, *values: tuple[float, str], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, **labels}, "values": [[at, value] for at, value in values]}


def answer(*result: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(result)}, **more})


@asynccontextmanager
async def serving(handler: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "name", ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "dcgm_gpu_utilization", "DCGM_FI_DEV_POWER_USAGE_watts"]
)
def test_the_query_names_every_spelling_that_rows_can_use(name: str) -> None:
    pattern = re.search(r'=~"(.*)"}\[', query_of())
    assert pattern is not None
    assert re.fullmatch(pattern[1], name)
    assert field_of(name) is not None


def test_further_matchers_narrow_the_query() -> None:
    assert query_of('cluster="a"').endswith(',cluster="a"}[90s]')


def test_a_row_has_the_time_of_its_scrape_not_of_the_question() -> None:
    raw = answer(series("DCGM_FI_DEV_GPU_UTIL", (NOW - 30, "10"), (NOW - 15, "20"), UUID="GPU-1"))
    (row,) = rows_of(raw)
    assert (row.value, row.at) == (20.0, datetime.fromtimestamp(NOW - 15, UTC))


def test_an_instant_answer_is_read_too() -> None:
    raw = orjson.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "vector",
                "result": [{"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL"}, "value": [NOW, "7"]}],
            },
        }
    )
    assert [row.value for row in rows_of(raw)] == [7.0]


def test_a_series_that_ended_when_its_pod_left_does_not_speak_for_the_gpu() -> None:
    old = series("DCGM_FI_DEV_GPU_UTIL", (NOW - 60, "99"), UUID="GPU-1", exported_pod="gone")
    new = series("DCGM_FI_DEV_GPU_UTIL", (NOW - 15, "1"), UUID="GPU-1")
    copy = series("DCGM_FI_DEV_GPU_UTIL", (NOW - 15, "2"), UUID="GPU-1", exported_pod="shares")
    assert [row.value for row in rows_of(answer(old, new, copy))] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param(answer(warnings=["1 store was unreachable"]), "may not be whole", id="a warning"),
        pytest.param(b'{"status":"error","error":"too many samples"}', "too many samples", id="an error"),
        pytest.param(b"<html>", "no JSON", id="no JSON"),
        pytest.param(b'{"status":"success","data":{}}', "no result", id="no result"),
    ],
)
def test_an_answer_that_is_not_whole_tells_nothing(raw: bytes, why: str) -> None:
    with pytest.raises(SourceFailedError, match=why):
        rows_of(raw)


@pytest.mark.parametrize("bad", [{}, {"metric": 1}, {"metric": {}, "values": []}, {"metric": {}, "value": [NOW, "x"]}])
def test_a_series_that_cannot_be_read_costs_itself_only(bad: dict[str, Any]) -> None:
    good = series("DCGM_FI_DEV_GPU_UTIL", (NOW, "5"), UUID="GPU-1")
    assert [row.value for row in rows_of(answer(bad, good))] == [5.0]


# -- the whole way ---------------------------------------------------------------------------------------------------


class Looked:
    """Sampling over a fake API server and a source that answers with ``raw``."""

    def __init__(self, sampling: Sampling, told: FakePublisher, metrics: Metrics) -> None:
        self.sampling, self._told, self.metrics = sampling, told, metrics

    async def samples(self) -> list[NodeSample]:
        before = len(self._told.records)
        await self.sampling.look()
        found = [read(one.topic, one.key, one.value, one.headers).content for one in self._told.records[before:]]
        return [one for one in found if isinstance(one, NodeSample)]

    def failures(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("gpu_rebalancer_sampling_failures_total", {"reason": reason})


@asynccontextmanager
async def looking(
    api: FakeApi, folder: Path, make: Callable[[aiohttp.ClientSession], PrometheusSource | ExporterSource], **more: Any
) -> AsyncIterator[Looked]:
    metrics, told = Metrics(), FakePublisher()
    async with (
        connected(KubernetesSettings(kubeconfig=kubeconfig(folder, api.url))) as connection,
        aiohttp.ClientSession() as session,
    ):
        places = Places(connection, "app=nvidia-dcgm-exporter", Reading(), Watching(metrics.registry))
        task = asyncio.create_task(places.run())
        sampling = Sampling(make(session), places, cast("Publisher", told), "berlin", metrics, 15.0, **more)
        try:
            async with asyncio.timeout(5):
                await places.ready.wait()
            yield Looked(sampling, told, metrics)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Prometheus:
    """Answers every question with ``raw``; remembers what was asked."""

    def __init__(self, raw: bytes = b"", status: int = 200, wait: float = 0.0) -> None:
        self.raw, self.status, self.wait = raw, status, wait
        self.asked: list[dict[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({key: str(value) for key, value in (await request.post()).items()})
        await asyncio.sleep(self.wait)
        return web.Response(body=self.raw, status=self.status, content_type="application/json")


def by_exporters_own_name(text: bytes, at: float) -> bytes:
    """A sample page as the query API would give its rows."""
    result = [series(row.name, (at, str(row.value)), **row.labels) for row in decode_page(text).rows]
    return answer(*result)


@asynccontextmanager
async def asking(folder: Path, prometheus: Prometheus, *nodes: str, **more: Any) -> AsyncIterator[Looked]:
    async with fake_api() as api, serving(prometheus.answer) as url:
        for number, name in enumerate(nodes):
            api.put("/api/v1/nodes", node(f"uid-{name}", name, f"10.0.0.{number + 1}"))
        settings = DcgmSettings(url=url, timeout=0.3)
        async with looking(api, folder, lambda session: PrometheusSource(settings, session), **more) as looked:
            yield looked


def busy(name: str, at: float, util: str = "50") -> dict[str, Any]:
    return series("DCGM_FI_DEV_GPU_UTIL", (at, util), UUID=f"GPU-{name}", Hostname=name)


async def test_a_nodes_sample_has_its_uid_its_expected_gpus_and_its_own_time(tmp_path: Path) -> None:
    at = time.time() - 12
    prometheus = Prometheus(answer(busy("gpu-1", at)))
    async with asking(tmp_path, prometheus, "gpu-1") as looked:
        (sample,) = await looked.samples()
    assert (sample.node, sample.node_name, sample.expected) == ("uid-gpu-1", "gpu-1", 8)
    assert abs(sample.at.timestamp() - at) < 0.001
    assert [one.gpu_util for one in sample.devices] == [50.0]
    assert prometheus.asked[0]["partial_response"] == "false"


async def test_the_labels_of_a_relabelling_prometheus_are_understood(tmp_path: Path) -> None:
    text = samples_here.raw("dcgm/04_prometheus_federated_exported_pod.prom")
    rows = decode_page(text).rows
    names = {row.labels.get("node") or row.labels.get("Hostname", "") for row in rows} - {""}
    async with asking(tmp_path, Prometheus(by_exporters_own_name(text, time.time())), *sorted(names)) as looked:
        samples = await looked.samples()
    assert {sample.node_name for sample in samples} <= names
    assert all(sample.devices for sample in samples)
    assert samples


async def test_one_scrape_is_told_once_however_often_it_is_seen(tmp_path: Path) -> None:
    prometheus = Prometheus(answer(busy("gpu-1", time.time() - 20)))
    async with asking(tmp_path, prometheus, "gpu-1") as looked:
        assert len(await looked.samples()) == 1
        assert await looked.samples() == []
        prometheus.raw = answer(busy("gpu-1", time.time() - 5))
        assert len(await looked.samples()) == 1


async def test_rows_of_nodes_that_are_not_known_are_counted_and_make_no_node(tmp_path: Path) -> None:
    prometheus = Prometheus(answer(busy("gpu-1", time.time()), busy("elsewhere", time.time())))
    async with asking(tmp_path, prometheus, "gpu-1") as looked:
        assert [sample.node_name for sample in await looked.samples()] == ["gpu-1"]
        labels = {"reason": "unknown-node"}
        assert looked.metrics.registry.get_sample_value("gpu_rebalancer_source_rows_dropped_total", labels) == 1


async def test_only_the_nodes_of_our_share_are_told(tmp_path: Path) -> None:
    prometheus = Prometheus(answer(busy("gpu-1", time.time()), busy("gpu-2", time.time())))
    async with asking(tmp_path, prometheus, "gpu-1", "gpu-2", ours=lambda uid: uid == "uid-gpu-2") as looked:
        assert [sample.node_name for sample in await looked.samples()] == ["gpu-2"]


@pytest.mark.parametrize(
    ("prometheus", "reason"),
    [
        pytest.param(Prometheus(b"overloaded", status=503), "answer", id="an error"),
        pytest.param(Prometheus(answer(warnings=["partial"])), "answer", id="not whole"),
        pytest.param(Prometheus(answer(), wait=2.0), "unreachable", id="no answer in time"),
    ],
)
async def test_what_cannot_be_had_is_counted_and_nothing_is_told(
    tmp_path: Path, prometheus: Prometheus, reason: str
) -> None:
    async with asking(tmp_path, prometheus, "gpu-1") as looked:
        assert await looked.samples() == []
        assert looked.failures(reason) == 1


async def test_a_page_is_about_the_node_its_pod_runs_on_and_a_hanging_exporter_delays_no_other(tmp_path: Path) -> None:
    page = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="nvidia-dcgm-exporter-x7"} 40\n'

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.url.host == "127.0.0.2":
            await asyncio.sleep(2)
        return web.Response(body=page)

    app = web.Application()
    app.router.add_get("/metrics", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()
    settings = DcgmSettings(source="exporters", port=runner.addresses[0][1], timeout=0.3)
    async with fake_api() as api:
        for number, name in enumerate(("gpu-1", "gpu-2"), start=1):
            api.put("/api/v1/nodes", node(f"uid-{name}", name, f"10.0.0.{number}"))
            exporter = pod(f"e{number}", node=name, containers=[{"name": "c"}])
            exporter["status"]["podIP"] = f"127.0.0.{number}"
            api.put("/api/v1/pods", exporter)
        async with looking(api, tmp_path, lambda session: ExporterSource(settings, session)) as looked:
            (sample,) = await looked.samples()
            assert looked.failures("exporter") == 1
        assert {query.get("labelSelector") for path, query in api.lists if path == "/api/v1/pods"} == {
            "app=nvidia-dcgm-exporter"
        }
    await runner.cleanup()
    assert (sample.node_name, sample.devices[0].gpu_util) == ("gpu-1", 40.0)
    assert datetime.now(UTC) - sample.at < timedelta(seconds=5)


async def test_places_follow_nodes_and_exporters_as_they_come_and_go(tmp_path: Path) -> None:
    async with (
        fake_api() as api,
        connected(KubernetesSettings(kubeconfig=kubeconfig(tmp_path, api.url))) as connection,
    ):
        places = Places(connection, "app=x", Reading(), Watching(Metrics().registry))
        task = asyncio.create_task(places.run())
        await places.ready.wait()
        api.put("/api/v1/nodes", node("n1", "gpu-1"))
        exporter = pod("e1", node="gpu-1", containers=[{"name": "c"}])
        exporter["status"]["podIP"] = "10.1.1.1"
        api.put("/api/v1/pods", exporter)
        await held(lambda: places.exporters() == [Exporter("gpu-1", "10.1.1.1")] and "gpu-1" in places.known().nodes)
        api.delete("/api/v1/pods", "e1")
        api.delete("/api/v1/nodes", "n1")
        await held(lambda: not places.exporters() and not places.known().nodes)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not places.exporters()


async def held(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def test_a_process_samples_the_nodes_whose_partitions_its_telemetry_reads_and_all_without_one() -> None:
    ground = cast("Ground", SimpleNamespace(settings=Settings(cluster="berlin"), publisher=FakePublisher()))
    uids = [f"uid-{number}" for number in range(40)]
    shares = [share(ground, cast("Telemetry", SimpleNamespace(windows=windows))) for windows in ({0, 1}, {2, 3}, ())]
    taken = [{uid for uid in uids if ours(uid)} for ours in shares]
    assert taken[0] | taken[1] == set(uids)
    assert not taken[0] & taken[1]
    assert not taken[2]
    assert all(map(share(ground, None), uids))
