"""Every bridge's messages become the same rows and the same sightings of objects."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from rebalancer.adapters.decode.dcgm_devices import assemble
from rebalancer.adapters.decode.dcgm_nodes import NodeEntry, PodEntry, directory, resolve_node
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.foreign import decode_foreign
from rebalancer.adapters.decode.watch import Changed, Gone, Hint, ListEnded, SourceStale
from rebalancer.core.facts import Node, Pod
from tests.decode import samples_here
from tests.decode.messages import FRAUD, NODE, POD, POINT, SIX, VOLCANO, cloud_event, otlp_metric, sample, told


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
        pytest.param("otlp-json", "otlp_json_metrics", [93, 0], id="OTLP, many points"),
    ],
)
def test_every_bridge_gives_the_same_reading(fmt: str, name: str, loads: list[float]) -> None:
    rows = [item for item in sample(fmt, name) if isinstance(item, Row)]
    assert {row.name for row in rows} == {"DCGM_FI_DEV_GPU_UTIL"}
    assert all(row.at is not None and row.at.replace(microsecond=0) == SIX for row in rows)
    (node,) = assemble(rows, NODE, SIX).samples
    assert node.node_name == "gpu-h100-07"
    assert [device.gpu_util for device in node.devices] == loads
    assert {device.pod for device in node.devices} == {"serve-b/llm-chat-0"}


def test_telegrafs_variants_are_identical_records() -> None:
    v1, v2 = (sample("telegraf-json", f"telegraf_json_{version}")[0] for version in ("v1", "v2"))
    influx = sample("telegraf-influx", "telegraf_influx.txt")[0]
    assert v1 == v2 == influx
    assert isinstance(v1, Row)
    assert "host" not in v1.labels
    assert v1.labels["instance"] == "10.244.9.17:9400"


def test_where_telegraf_scraped_is_the_node_when_nothing_else_says_so() -> None:
    tags = {"UUID": "G", "host": "telegraf-7", "url": "http://10.244.9.17:9400/metrics"}
    (row,) = told("telegraf-json", {"name": "DCGM_FI_DEV_GPU_UTIL", "fields": {"gauge": 1}, "tags": tags})
    assert isinstance(row, Row)
    pod = PodEntry("ops", "exporter", "gpu-7", 0, ("10.244.9.17",))
    where = directory([NodeEntry("u7", "gpu-7", 8), NodeEntry("u8", "telegraf-7", 8)], [pod])
    found = resolve_node(row.labels, "G", where)
    assert found is not None
    assert found.name == "gpu-7"


def test_a_series_that_ended_is_not_zero() -> None:
    rows = [
        item
        for item in sample("prometheus-kafka-adapter", "prometheus_kafka_adapter_stale_nan")
        if isinstance(item, Row)
    ]
    assert [math.isnan(row.value) for row in rows] == [True]
    done = assemble(rows, NODE, SIX)
    assert (done.samples, done.dropped) == ((), {"nan": 1})


def test_two_samples_of_one_second_keep_the_busier_in_any_order() -> None:
    raw = samples_here.parsed("kafka/prometheus_kafka_adapter_json.json")["value"]
    pair = [{**raw, "value": value} for value in ("0", "88")]
    for order in (pair, pair[::-1]):
        rows = [item for item in told("prometheus-kafka-adapter", order) if isinstance(item, Row)]
        assert assemble(rows, NODE, SIX).samples[0].devices[0].gpu_util == 88


@pytest.mark.parametrize(
    ("fmt", "name", "uid"),
    [
        pytest.param("knative", "knative_structured", VOLCANO, id="CloudEvents, structured"),
        pytest.param("knative", "knative_binary", VOLCANO, id="CloudEvents, binary"),
        pytest.param("otlp-json", "otlp_json_k8sobjects_watch_pod", VOLCANO, id="OTLP, watched"),
        pytest.param("kubernetes-json", "otel_raw_k8sobjects_watch_pod", VOLCANO, id="OTel, raw"),
        pytest.param("kubernetes-json", "oversize_template", VOLCANO, id="a large object"),
        pytest.param("kubernetes-json", "bare_object", FRAUD, id="a bare object"),
        pytest.param("kubernetes-json", "raw_watch_event", FRAUD, id="a watch event"),
        pytest.param("argo-events", "argo_events_resource", "7e570006-0000-4000-8000-000000000006", id="Argo Events"),
    ],
)
def test_every_bridge_sees_the_same_pod(fmt: str, name: str, uid: str) -> None:
    (seen,) = sample(fmt, name)
    assert isinstance(seen, Changed)
    assert isinstance(seen.fact, Pod)
    assert (seen.fact.uid, seen.fact.gpus is not None) == (uid, True)


def test_the_volcano_pod_is_equal_over_all_bridges() -> None:
    direct = told("kubernetes-json", samples_here.parsed("k8s/pod_volcano_worker.json"))[0]
    assert isinstance(direct, Changed)
    for fmt, name in (
        ("knative", "knative_structured"),
        ("knative", "knative_binary"),
        ("otlp-json", "otlp_json_k8sobjects_watch_pod"),
        ("kubernetes-json", "otel_raw_k8sobjects_watch_pod"),
        ("kubernetes-json", "oversize_template"),
    ):
        (seen,) = sample(fmt, name)
        assert isinstance(seen, Changed)
        assert seen.fact == direct.fact


def test_an_object_of_more_than_a_megabyte_leaves_a_small_fact() -> None:
    value = samples_here.parsed("kafka/oversize_template.json")["value"]
    value["object"]["metadata"]["annotations"]["note"] = "x" * 1_300_000
    (seen,) = told("kubernetes-json", value)
    assert len(repr(seen)) < 4_000


def test_a_pulled_node_is_an_upsert_and_its_end_ends_the_list() -> None:
    (node,) = sample("otlp-json", "otlp_json_k8sobjects_pull_node")
    assert isinstance(node, Changed)
    assert isinstance(node.fact, Node)
    assert (node.fact.name, node.fact.gpus, node.fact.ready) == ("gpu-h100-01", 8, True)
    (end,) = sample("otlp-json", "otel_k8sobjects_pull_end")
    assert isinstance(end, ListEnded)
    assert end.of == "pod"


def test_a_deleted_node_is_gone_by_its_uid() -> None:
    (seen,) = sample("knative", "knative_binary_node_delete")
    assert seen == Gone("node", "7e5700c9-0000-4000-8000-0000000000c9", "", "gpu-h100-01")


def test_a_reference_is_a_hint_and_no_pod() -> None:
    (seen,) = sample("knative", "knative_ref_mode")
    assert seen == Hint("pod", "ml-a", "llm-pre-worker-3", "a reference without content: add")


def test_a_tombstone_is_a_hint_since_the_name_may_live_again() -> None:
    (seen,) = sample("kubernetes-json", "tombstone")
    assert isinstance(seen, Hint)
    assert (seen.of, seen.namespace, seen.name) == (None, "serve-a", "fraud-predictor-6c9d7f-8xk2q")


def test_every_recorded_message_is_read_by_a_test_above() -> None:
    assert len(samples_here.names("kafka")) == 23


@pytest.mark.parametrize(
    ("fmt", "value", "number"),
    [
        pytest.param("otlp-json", otlp_metric({"gauge": {"dataPoints": [{**POINT, "asInt": 7}]}}), 7, id="a plain int"),
        pytest.param("otlp-json", otlp_metric({"gauge": {"dataPoints": [{**POINT, "asDouble": 0}]}}), 0, id="zero"),
        pytest.param(
            "otlp-json",
            otlp_metric({"sum": {"dataPoints": [{**POINT, "asInt": "9"}], "aggregationTemporality": 2}}), 9,
            id="a cumulative sum",
        ),
        pytest.param(
            "otlp-json",
            {"resource_metrics": [{"scope_metrics": [{"metrics": [
                {"name": "DCGM_FI_DEV_GPU_UTIL", "gauge": {"data_points": [{"as_int": "5"}]}}]}]}]}, 5,
            id="names of the protobuf",
        ),
        pytest.param("telegraf-json", [{"name": "DCGM_X", "fields": {"value": 4, "up": True}}], 4, id="an array"),
        pytest.param(
            "telegraf-influx", b'DCGM_X,note=a\\,b\\ c gauge=4i,text="x, y=1 \\" z",ok=true 1772517600000000000\n', 4,
            id="escapes, texts and booleans",
        ),
        pytest.param("telegraf-influx", b"DCGM_X gauge=4.5e1", 45, id="no tags and no time"),
        pytest.param(
            "vector-json", b'{"name":"DCGM_X","gauge":{"value":3}}\n{"name":"DCGM_X","gauge":{"value":3}}\n', 3,
            id="a document a line",
        ),
        pytest.param("vector-json", {"name": "X", "namespace": "DCGM", "counter": {"value": 2}}, 2, id="a counter"),
        pytest.param(
            "prometheus-kafka-adapter", {"labels": {"__name__": "DCGM_X"}, "value": 6}, 6, id="the label's name",
        ),
        pytest.param("dcgm-text", b'DCGM_X{a="b"} 8\nbroken line here\n', 8, id="a page in a record"),
    ],
)  # fmt: skip
def test_other_spellings_are_the_same_number(fmt: str, value: Any, number: float) -> None:
    rows = [item for item in told(fmt, value) if isinstance(item, Row)]
    assert {row.value for row in rows} == {number}
    assert {row.name.partition("_")[0] for row in rows} == {"DCGM"}


def test_line_protocol_unescapes_its_tags() -> None:
    (row,) = told("telegraf-influx", b"DCGM_X,model=NVIDIA\\ H100,a\\=b=c\\,d gauge=1")
    assert isinstance(row, Row)
    assert row.labels == {"model": "NVIDIA H100", "a=b": "c,d"}


def test_a_point_without_a_recorded_value_is_an_ended_series() -> None:
    (row,) = told("otlp-json", otlp_metric({"gauge": {"dataPoints": [{**POINT, "flags": 1}]}}))
    assert isinstance(row, Row)
    assert math.isnan(row.value)


def test_a_collector_s_own_attributes_lose_to_the_points() -> None:
    value = otlp_metric({"gauge": {"dataPoints": [{**POINT, "asInt": "1"}]}})
    value["resourceMetrics"][0]["resource"] = {"attributes": [
        {"key": "UUID", "value": {"stringValue": "collector"}},
        {"key": "k8s.node.name", "value": {"stringValue": "n7"}},
        {"key": "service.instance.id", "value": {"stringValue": "10.0.0.1:9400"}},
    ]}  # fmt: skip
    (row,) = told("otlp-json", value)
    assert isinstance(row, Row)
    assert (row.labels["UUID"], row.labels["k8s.node.name"], row.labels["instance"]) == ("G", "n7", "10.0.0.1:9400")


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        pytest.param(cloud_event(), {}, id="no header at all"),
        pytest.param(cloud_event(data=json.dumps(POD)), {}, id="data quoted"),
        pytest.param(
            cloud_event(data=None, data_base64=base64.b64encode(json.dumps(POD).encode()).decode()), {}, id="base64"
        ),
        pytest.param([cloud_event()], {"Content-Type": "application/cloudevents-batch+json"}, id="a batch"),
        pytest.param(POD, {"Ce-Type": b"dev.knative.apiserver.resource.update"}, id="headers of another case"),
    ],
)
def test_cloud_events_come_in_many_coats(value: Any, headers: Any) -> None:
    (seen,) = told("knative", value, headers)
    assert isinstance(seen, Changed)
    assert seen.fact.uid == VOLCANO


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        pytest.param(
            {"type": "DELETE", "body": POD}, Gone("pod", VOLCANO, "ml-a", "llm-pre-worker-3"), id="Argo deletes",
        ),
        pytest.param(
            {"type": "PullEnd", "object": {"kind": "nodes"}}, ListEnded("node"), id="the raw end of a list"
        ),
        pytest.param(
            {"type": "ERROR", "object": {"code": 410, "message": "too old"}}, SourceStale(410, "too old"), id="an error"
        ),
    ],
)  # fmt: skip
def test_other_sightings(value: Any, seen: Any) -> None:
    assert told("kubernetes-json", value) == [seen]


def test_a_list_is_its_items() -> None:
    item = {key: value for key, value in POD.items() if key not in ("kind", "apiVersion")}
    found = told("kubernetes-json", {"kind": "PodList", "apiVersion": "v1", "items": [item, item]})
    assert [seen.fact.uid for seen in found if isinstance(seen, Changed)] == [VOLCANO, VOLCANO]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        (b"pods/ns/a", Hint("pod", "ns", "a", "a tombstone knows only the name")),
        (b"n1", Hint(None, "", "n1", "a tombstone knows only the name")),
    ],
)
def test_a_tombstones_key_is_read_as_far_as_it_goes(key: bytes, hint: Hint) -> None:
    assert decode_foreign("kubernetes-json", key, None) == [hint]
