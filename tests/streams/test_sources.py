"""Foreign topics in, our topics out: every bridge's recorded messages through the embedded broker."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.core.facts import Node, Pod
from rebalancer.core.stimuli import FactDeleted
from rebalancer.core.telemetry import NodeSample
from rebalancer.adapters.translate import SnapshotRequested
from rebalancer.wire import v1
from tests.decode import samples_here
from tests.streams.sourced import NODE_FACTS, NOW, POD_FACTS, SIX, Foreign, foreign
from tests.streams.stage import eventually

VOLCANO = "7e570001-0000-4000-8000-000000000001"
FRAUD = "7e570007-0000-4000-8000-000000000007"
OURS = (*v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEVICE, f"{POD_FACTS}.dlq", f"{v1.SAMPLE_DEVICE}.dlq")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        found.create(OURS)
        yield found


@pytest.fixture
async def there(broker: EmbeddedBroker) -> AsyncIterator[Foreign]:
    async with foreign(broker.bootstrap, 5) as found:
        yield found


@pytest.mark.parametrize(
    ("fmt", "name", "loads"),
    [
        pytest.param("telegraf-json", "telegraf_json_v1", [93], id="Telegraf, metric in the name"),
        pytest.param("telegraf-json", "telegraf_json_v2", [93], id="Telegraf, metric in the field"),
        pytest.param("telegraf-json", "telegraf_json_batch", [93, 0], id="Telegraf, a batch"),
        pytest.param("telegraf-influx", "telegraf_influx.txt", [93], id="Telegraf, line protocol"),
        pytest.param("vector-json", "vector_json", [93], id="Vector"),
        pytest.param("vector-json", "vector_json_with_vector_namespace", [93], id="Vector with its own namespace"),
        pytest.param("prometheus-kafka-adapter", "prometheus_kafka_adapter_json", [93], id="the adapter"),
        pytest.param("prometheus-kafka-adapter", "prometheus_kafka_adapter_avro_json", [93], id="its avro-json"),
        pytest.param("otlp-json", "otlp_json_metrics", [93, 0], id="OTLP"),
        pytest.param("dcgm-text", "dcgm/02_exporter_4.2_node_hostname.prom", None, id="exporter text"),
    ],
)
async def test_a_bridges_metrics_become_a_sample_of_the_node(
    there: Foreign, fmt: str, name: str, loads: list[float] | None
) -> None:
    await there.node()
    await there.put_sample("foreign", name)
    async with there.reading(("foreign", fmt)) as role:
        role._intake._tick = Later(role._intake._tick)
        (sample,) = await there.samples()
    assert (sample.node, sample.node_name, sample.expected) == ("u7", "gpu-h100-07", 8)
    if loads is None:
        assert sample.at == NOW, "a page without times is as old as its record, and never of the future"
    else:
        assert [device.gpu_util for device in sample.devices] == loads
        assert sample.at.replace(microsecond=0) == SIX


class Later:
    """A clock that runs a hundred times as fast, so that what waits for rows does not wait long."""

    def __init__(self, clock: Any) -> None:
        self._clock, self._start = clock, clock()

    def __call__(self) -> float:
        now: float = self._clock()
        return now + 100 * (now - self._start)


async def test_telegrafs_variants_give_the_same_sample(there: Foreign) -> None:
    await there.node()
    found: list[NodeSample] = []
    variants = [("telegraf-json", f"telegraf_json_{one}") for one in ("v1", "v2", "batch")]
    for number, (fmt, name) in enumerate([*variants, ("telegraf-influx", "telegraf_influx.txt")], start=1):
        await there.put_sample(f"telegraf-{number}", name)
        async with there.reading((f"telegraf-{number}", fmt)) as role:
            role._intake._tick = Later(role._intake._tick)
            found = await there.samples(number)
    assert len(found) == 4
    assert all(sample.devices[0] == found[0].devices[0] for sample in found)
    assert {sample.at for sample in found} == {SIX}


@pytest.mark.parametrize(
    ("fmt", "name", "uid"),
    [
        pytest.param("knative", "knative_structured", VOLCANO, id="CloudEvents, structured"),
        pytest.param("knative", "knative_binary", VOLCANO, id="CloudEvents, binary"),
        pytest.param("otlp-json", "otlp_json_k8sobjects_watch_pod", VOLCANO, id="OTLP, watched"),
        pytest.param("kubernetes-json", "otel_raw_k8sobjects_watch_pod", VOLCANO, id="OTel, raw"),
        pytest.param("kubernetes-json", "bare_object", FRAUD, id="a bare object"),
        pytest.param("kubernetes-json", "raw_watch_event", FRAUD, id="a watch event"),
        pytest.param("argo-events", "argo_events_resource", "7e570006-0000-4000-8000-000000000006", id="Argo Events"),
    ],
)
async def test_a_bridges_pod_becomes_a_fact_under_its_uid(there: Foreign, fmt: str, name: str, uid: str) -> None:
    await there.put_sample("foreign", name)
    async with there.reading(("foreign", fmt)):
        (pod,) = await there.facts(POD_FACTS)
        (record,) = [one for one in await there.lying(POD_FACTS)]
    assert isinstance(pod, Pod)
    assert (pod.uid, record.key.decode()) == (uid, uid)
    assert record.partition == there.publisher.partition("sim")


async def test_a_pulled_node_is_a_fact_and_its_deletion_a_tombstone(there: Foreign) -> None:
    await there.put_sample("pulled", "otlp_json_k8sobjects_pull_node")
    async with there.reading(("pulled", "otlp-json"), ("events", "knative")):
        (node,) = await there.facts(NODE_FACTS)
        await there.put_sample("events", "knative_binary_node_delete")
        found = await there.said(NODE_FACTS, 2)
    assert isinstance(node, Node)
    assert node.name == "gpu-h100-01"
    (gone,) = [one for one in found if isinstance(one, FactDeleted)]
    assert gone.uid == "7e5700c9-0000-4000-8000-0000000000c9"


@pytest.mark.parametrize(
    ("fmt", "name"),
    [
        pytest.param("knative", "knative_ref_mode", id="a reference"),
        pytest.param("kubernetes-json", "tombstone", id="a tombstone"),
    ],
)
async def test_a_name_alone_is_counted_and_changes_nothing(there: Foreign, fmt: str, name: str) -> None:
    await there.put_sample("foreign", name)
    async with there.reading(("foreign", fmt)):
        assert await there.counts("source_hints", 1, format=fmt) == 1
    assert await there.lying(POD_FACTS) == []


async def test_a_broken_watch_asks_for_lists_once(there: Foreign) -> None:
    error = json.dumps(samples_here.parsed("k8s/watch_error_410.json")).encode()
    async with there.reading(("foreign", "kubernetes-json")):
        await there.put("foreign", error)
        await there.put("foreign", error)
        assert await there.counts("source_stale", 2, format="kubernetes-json") == 2
        found = await there.said(v1.CONTROL, 2)
    assert [one.of for one in found if isinstance(one, SnapshotRequested)] == ["node", "pod"]


async def test_what_cannot_be_read_is_a_dead_letter_of_the_topic_it_was_meant_for(there: Foreign) -> None:
    await there.put("metrics", b"\x0a\x04abcd", key=b"k", headers={"from": "collector"})
    await there.put("objects", b"{no json", headers={})
    await there.put_sample("objects", "raw_watch_event")
    async with there.reading(("metrics", "telegraf-json"), ("objects", "kubernetes-json")):
        (pod,) = await there.facts(POD_FACTS)
        letters = await eventually(lambda: there.lying(f"{v1.SAMPLE_DEVICE}.dlq"))
        others = await eventually(lambda: there.lying(f"{POD_FACTS}.dlq"))
    assert pod.uid == FRAUD
    (letter,), (other,) = letters, others
    assert (letter.key, letter.value) == (b"k", b"\x0a\x04abcd")
    told = dict(letter.headers)
    assert (told["from"], told["dlq_topic"], told["dlq_offset"]) == (b"collector", b"metrics", b"0")
    assert told["dlq_partition"].isdigit()
    assert told["dlq_stage"] == b"bytes"
    assert b"protobuf" in told["dlq_error"]
    assert dict(other.headers)["dlq_stage"] == b"shape"
    assert there.counted("source_rejected", format="telegraf-json") == 1


async def test_a_pod_of_more_than_a_megabyte_arrives_and_leaves_a_small_fact(there: Foreign) -> None:
    value = samples_here.parsed("kafka/oversize_template.json")["value"]
    value["object"]["metadata"]["annotations"]["note"] = "x" * 1_300_000
    await there.put("foreign", json.dumps(value).encode())
    async with there.reading(("foreign", "kubernetes-json")):
        (pod,) = await there.facts(POD_FACTS)
        (record,) = await there.lying(POD_FACTS)
    assert pod.uid == VOLCANO
    assert record.value is not None
    assert len(record.value) < 8_000


async def test_an_unreadable_record_of_more_than_a_megabyte_leaves_a_cut_letter(there: Foreign) -> None:
    await there.put("foreign", b"x" * 1_300_000)
    async with there.reading(("foreign", "kubernetes-json")):
        (letter,) = await eventually(lambda: there.lying(f"{POD_FACTS}.dlq"))
    assert len(letter.value) == 900_000
    assert dict(letter.headers)["dlq_size"] == b"1300000"


async def test_an_older_version_and_a_deleted_pods_echo_are_not_told(there: Foreign) -> None:
    raw = samples_here.parsed("kafka/raw_watch_event.json")["value"]
    older = json.loads(json.dumps(raw))
    older["object"]["metadata"]["resourceVersion"] = "1"
    async with there.reading(("foreign", "kubernetes-json")):
        for value in (raw, older, {**raw, "type": "DELETED"}, raw):
            await there.put("foreign", json.dumps(value).encode(), partition=0)
        await there.counts("source_records", 4, format="kubernetes-json")
        found = await there.said(POD_FACTS, 2)
    assert [type(one).__name__ for one in found] == ["FactObserved", "FactDeleted"]
