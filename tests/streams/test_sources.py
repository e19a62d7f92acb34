"""Foreign topics in, our topics out: every bridge's recorded messages through the embedded broker."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping

import pytest

from rebalancer.adapters.streams import scrapes
from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.adapters.translate import SnapshotRequested, cluster_of, decode
from rebalancer.core.facts import Node, Pod
from rebalancer.core.stimuli import FactDeleted, FactObserved
from rebalancer.wire import v1
from tests.decode import samples_here
from tests.streams.sourced import NODE_FACTS, NOW, OURS, POD_FACTS, SIX, Foreign, foreign
from tests.streams.stage import eventually

VOLCANO = "7e570001-0000-4000-8000-000000000001"
FRAUD = "7e570007-0000-4000-8000-000000000007"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as found:
        found.create(OURS)
        yield found


@pytest.fixture
async def there(broker: EmbeddedBroker) -> AsyncIterator[Foreign]:
    async with foreign(broker.bootstrap, 5) as found:
        yield found


METRICS: Mapping[str, tuple[str, str, list[float] | None]] = {
    "telegraf-v1": ("telegraf-json", "telegraf_json_v1", [93]),
    "telegraf-v2": ("telegraf-json", "telegraf_json_v2", [93]),
    "telegraf-batch": ("telegraf-json", "telegraf_json_batch", [93, 0]),
    "telegraf-influx": ("telegraf-influx", "telegraf_influx.txt", [93]),
    "vector": ("vector-json", "vector_json", [93]),
    "vector-prefixed": ("vector-json", "vector_json_with_vector_namespace", [93]),
    "adapter": ("prometheus-kafka-adapter", "prometheus_kafka_adapter_json", [93]),
    "adapter-avro-json": ("prometheus-kafka-adapter", "prometheus_kafka_adapter_avro_json", [93]),
    "otlp": ("otlp-json", "otlp_json_metrics", [93, 0]),
    "text": ("dcgm-text", "dcgm/02_exporter_4.2_node_hostname.prom", None),
}
"""Format, recorded message and loads by what stands for the cluster here; a page says more than its loads."""
PODS: Mapping[str, tuple[str, str, str]] = {
    "knative-structured": ("knative", "knative_structured", VOLCANO),
    "knative-binary": ("knative", "knative_binary", VOLCANO),
    "otlp-watched": ("otlp-json", "otlp_json_k8sobjects_watch_pod", VOLCANO),
    "otel-raw": ("kubernetes-json", "otel_raw_k8sobjects_watch_pod", VOLCANO),
    "bare-object": ("kubernetes-json", "bare_object", FRAUD),
    "watch-event": ("kubernetes-json", "raw_watch_event", FRAUD),
    "argo": ("argo-events", "argo_events_resource", "7e570006-0000-4000-8000-000000000006"),
}


async def test_every_bridges_metrics_become_a_sample_of_the_node(
    there: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrapes, "PATIENCE", 1.0)
    for name, (_, message, _) in METRICS.items():
        await there.node(cluster=name)
        await there.put_sample(name, message)
    async with there.reading(*((name, fmt, name) for name, (fmt, _, _) in METRICS.items())):
        found = await there.samples(len(METRICS))
    assert set(found) == set(METRICS)
    assert {(one.node, one.node_name, one.expected) for one in found.values()} == {("u7", "gpu-h100-07", 8)}
    text = found.pop("text")
    assert text.at == NOW, "a page without times is as old as its record, and never of the future"
    assert {name: [card.gpu_util for card in one.devices] for name, one in found.items()} == {
        name: loads for name, (_, _, loads) in METRICS.items() if loads is not None
    }
    assert {one.at.replace(microsecond=0) for one in found.values()} == {SIX}
    telegraf = [one for name, one in found.items() if name.startswith("telegraf") and len(one.devices) == 1]
    assert len(telegraf) == 3
    assert all(one == telegraf[0] for one in telegraf)
    assert found["telegraf-batch"].devices[0] == telegraf[0].devices[0]


async def test_every_bridges_pod_becomes_a_fact_under_its_uid(there: Foreign) -> None:
    for name, (_, message, _) in PODS.items():
        await there.put_sample(name, message)
    async with there.reading(*((name, fmt, name) for name, (fmt, _, _) in PODS.items())):
        await there.said(POD_FACTS, len(PODS))
        records = await there.lying(POD_FACTS)
    found = {cluster_of(one.headers) or "": one for one in records}
    assert {name: one.key.decode() for name, one in found.items()} == {name: uid for name, (_, _, uid) in PODS.items()}
    assert all(one.partition == there.publisher.partition(name) for name, one in found.items())
    pods = [decode(one.topic, one.key, one.value, one.headers) for one in records]
    assert all(isinstance(one, FactObserved) and isinstance(one.fact, Pod) for one in pods)


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


async def test_a_name_alone_is_counted_and_changes_nothing(there: Foreign) -> None:
    await there.put_sample("references", "knative_ref_mode")
    await there.put_sample("deletions", "tombstone")
    async with there.reading(("references", "knative"), ("deletions", "kubernetes-json")):
        assert await there.counts("source_hints", 1, format="knative") == 1
        assert await there.counts("source_hints", 1, format="kubernetes-json") == 1
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
