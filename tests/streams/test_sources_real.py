"""Sources on the real broker: any number of partitions, lists, restarts, and a second reader that stands by."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rebalancer.adapters.streams.admin import apply
from rebalancer.core.stimuli import FactObserved, SnapshotBegan, SnapshotEnded
from rebalancer.wire import v1
from tests.decode import samples_here
from tests.servers.fixtures import create_topic_at
from tests.servers.kafka import KafkaServer
from tests.streams.sourced import NODE_FACTS, POD_FACTS, Foreign, foreign
from tests.streams.stage import until

pytestmark = pytest.mark.kafka


@pytest.fixture
async def there(own_kafka: KafkaServer) -> AsyncIterator[Foreign]:
    async with foreign(own_kafka.bootstrap) as found:
        await apply(found.kafka)
        for topic, partitions in (("metrics", 3), ("objects", 1)):
            await create_topic_at(own_kafka.addresses, topic, partitions, {"max.message.bytes": "4000000"})
        yield found


def row(gpu: int, at: str, value: float) -> bytes:
    tags = {"Hostname": "gpu-h100-07", "UUID": f"GPU-{gpu}"}
    metric = {
        "name": "DCGM_FI_DEV_GPU_UTIL",
        "timestamp": at,
        "tags": tags,
        "kind": "absolute",
        "gauge": {"value": value},
    }
    return json.dumps(metric).encode()


async def scrape(there: Foreign, at: str) -> None:
    for gpu in range(8):
        await there.put("metrics", row(gpu, f"2026-03-03T{at}Z", gpu), partition=gpu % 3)


async def told(there: Foreign) -> list[Any]:
    return await there.said(v1.SAMPLE_DEVICE)


async def test_a_node_spread_over_three_partitions_is_one_sample_on_our_four(there: Foreign) -> None:
    await there.node()
    await scrape(there, "06:00:00")
    async with there.reading(("metrics", "vector-json"), group="one"):
        (sample,) = await told(there)
        assert [device.gpu_util for device in sample.devices] == list(range(8))
        await there.put("metrics", row(0, "2026-03-03T06:00:00Z", 99), partition=0)
        assert await there.counts("source_rows_dropped", 1, reason="late") == 1
        await there.put("metrics", row(0, "2026-03-03T06:05:00Z", 99), partition=0)
        assert await there.counts("source_rows_dropped", 1, reason="future") == 1
    assert len(await there.lying(v1.SAMPLE_DEVICE)) == 1


async def test_rows_that_were_not_told_come_again_after_a_restart(there: Foreign) -> None:
    await there.node()
    await there.put("metrics", row(0, "2026-03-03T06:00:00Z", 7), partition=0)
    async with there.reading(("metrics", "vector-json"), group="one"):
        await there.counts("source_rows", 1)
    assert await there.lying(v1.SAMPLE_DEVICE) == []
    for gpu in range(1, 8):
        await there.put("metrics", row(gpu, "2026-03-03T06:00:00Z", 7), partition=1)
    async with there.reading(("metrics", "vector-json"), group="one"):
        (sample,) = await told(there)
    assert len(sample.devices) == 8


async def test_a_second_reader_stands_by_and_takes_over(there: Foreign) -> None:
    await there.node()
    source = ("metrics", "vector-json")
    async with AsyncExitStack() as stack:
        ends = {}
        for _ in range(2):
            end = AsyncExitStack()
            role = await end.enter_async_context(there.reading(source, group="one", holds=False))
            stack.push_async_callback(end.aclose)
            ends[role] = end
        await until(lambda: sum(role.assigned.is_set() for role in ends) == 1, 40)
        await scrape(there, "06:00:00")
        (sample,) = await told(there)
        assert len(sample.devices) == 8
        holder = next(role for role in ends if role.assigned.is_set())
        await ends[holder].aclose()
        await until(lambda: any(role.assigned.is_set() for role in ends if role is not holder), 40)
        await scrape(there, "06:00:10")
        found = await there.said(v1.SAMPLE_DEVICE, 2)
    assert [(one.at.second, len(one.devices)) for one in found] == [(0, 8), (10, 8)]


async def test_the_end_of_a_pulled_list_ends_a_snapshot_and_a_huge_pod_is_in_it(there: Foreign) -> None:
    value = samples_here.parsed("kafka/oversize_template.json")["value"]
    value["object"]["metadata"]["annotations"]["note"] = "x" * 1_300_000
    await there.put("objects", json.dumps(value).encode())
    await there.put_sample("objects", "raw_watch_event")
    await there.put("objects", b'{"type":"PullEnd","object":{"kind":"pods"}}')
    await there.put_sample("objects", "raw_watch_event")
    await there.put("objects", b'{"type":"PullEnd","object":{"kind":"pods"}}')
    async with there.reading(("objects", "kubernetes-json")):
        found = await there.said(POD_FACTS, 10)
    lists: list[set[str]] = []
    for one in found:
        if isinstance(one, SnapshotBegan):
            lists.append(set())
        elif isinstance(one, FactObserved) and lists:
            lists[-1].add(one.fact.uid)
    ends = [one.count for one in found if isinstance(one, SnapshotEnded)]
    assert ends == [2, 1]
    assert [len(one) for one in lists] == [2, 1]
    assert there.counted("source_lists", result="told") == 2
    assert await there.lying(NODE_FACTS) == []
