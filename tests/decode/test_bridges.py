"""Every bridge's messages become the same rows and the same sightings of objects."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.bridges.envelope import Item
from rebalancer.adapters.decode.dcgm_devices import assemble
from rebalancer.adapters.decode.dcgm_nodes import NodeEntry, PodEntry, directory, resolve_node
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import Rejected
from rebalancer.adapters.decode.errors import DecodeError, UnsupportedEncodingError
from rebalancer.adapters.decode.foreign import FORMATS, decode_foreign
from rebalancer.adapters.decode.watch import Changed, Gone, Hint, ListEnded, SourceStale
from rebalancer.core.facts import Node, Pod
from tests.decode import samples_here

SIX = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
G1 = "GPU-11111111-aaaa-4b4b-8c8c-000000000001"


def told(fmt: str, value: Any, headers: Any = (), key: bytes | None = None) -> list[Item]:
    return decode_foreign(fmt, key, value if isinstance(value, bytes) else json.dumps(value).encode(), headers)


def sample(fmt: str, name: str) -> list[Item]:
    """A recorded message, as the broker would hand it over."""
    if name.endswith(".txt"):
        return decode_foreign(fmt, None, samples_here.raw(f"kafka/{name}"))
    recorded = samples_here.parsed(f"kafka/{name}.json")
    key = recorded["key"].encode() if recorded["key"] else None
    headers = [(name, value.encode()) for name, value in recorded["headers"].items()]
    value = None if recorded["value"] is None else json.dumps(recorded["value"]).encode() + b"\n"
    return decode_foreign(fmt, key, value, headers)


NODE = directory([NodeEntry("u7", "gpu-h100-07", 8)])


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


VOLCANO = "7e570001-0000-4000-8000-000000000001"
FRAUD = "7e570007-0000-4000-8000-000000000007"


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


POD = samples_here.parsed("k8s/pod_volcano_worker.json")
POINT = {"attributes": [{"key": "UUID", "value": {"stringValue": "G"}}], "timeUnixNano": "1772517600000000000"}


def otlp_metric(body: dict[str, Any]) -> dict[str, Any]:
    metric = {"name": "DCGM_FI_DEV_GPU_UTIL", **body}
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}


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


def cloud_event(**over: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "type": "dev.knative.apiserver.resource.add", "data": POD, **over}


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


def test_one_bad_part_does_not_spoil_the_message() -> None:
    good = {"name": "DCGM_X", "fields": {"gauge": 1}}
    found = told("telegraf-json", {"metrics": [good, {"name": "DCGM_X"}, 3, good]})
    assert [item.line for item in found if isinstance(item, Rejected)] == [2, 3]
    assert len([item for item in found if isinstance(item, Row)]) == 2


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\n\x9a\x02\n\x05hello", id="protobuf metrics"),
        pytest.param(b"\x0a\x00", id="an empty resource"),
        pytest.param(b"\x1f\x8b\x08\x00", id="gzip"),
        pytest.param(b"\x00\x00\x00\x00\x07{}", id="a schema registry's framing"),
    ],
)
def test_other_encodings_are_named_and_refused(value: bytes) -> None:
    with pytest.raises(UnsupportedEncodingError, match="unsupported encoding"):
        told("otlp-json", value)


@pytest.mark.parametrize(
    ("fmt", "value"),
    [
        pytest.param("otlp-json", {}, id="JSON that is no OTLP"),
        pytest.param(
            "otlp-json", otlp_metric({"sum": {"dataPoints": [POINT], "aggregationTemporality": 1}}), id="a delta"
        ),
        pytest.param("otlp-json", otlp_metric({"gauge": {"dataPoints": [POINT]}}), id="a point without a value"),
        pytest.param("vector-json", {"name": "X", "kind": "incremental", "gauge": {"value": 1}}, id="an increment"),
        pytest.param("vector-json", {"name": "X", "gauge": {"value": True}}, id="a boolean"),
        pytest.param("prometheus-kafka-adapter", {"name": "X", "value": "many"}, id="a word for a value"),
        pytest.param("prometheus-kafka-adapter", {"name": "X", "value": None}, id="no value"),
        pytest.param("knative", cloud_event(type="com.example.thing"), id="another source's event"),
        pytest.param("knative", cloud_event(type="dev.knative.apiserver.resource.patch"), id="an unheard-of change"),
        pytest.param("knative", cloud_event(data=None), id="an event without data"),
        pytest.param("knative", cloud_event(data=None, data_base64="%"), id="broken base64"),
        pytest.param("kubernetes-json", {"metadata": {}}, id="an object without a kind"),
        pytest.param("argo-events", {"type": "ADD", "body": 3}, id="an event without an object"),
        pytest.param("telegraf-json", b"{", id="half a document"),
        pytest.param("telegraf-influx", b"\xff", id="line protocol that is no text"),
        pytest.param("telegraf-influx", b"DCGM_X", id="a measurement alone"),
        pytest.param("telegraf-json", b" \n", id="nothing"),
        pytest.param("csv", b"x", id="a format that is none"),
    ],
)
def test_what_cannot_be_read_at_all_is_a_dead_letter(fmt: str, value: Any) -> None:
    with pytest.raises(DecodeError):
        told(fmt, value)


@pytest.mark.parametrize("fmt", ["telegraf-json", "dcgm-text"])
def test_a_sample_without_a_value_is_a_dead_letter_and_no_deletion(fmt: str) -> None:
    with pytest.raises(DecodeError, match="without a value"):
        decode_foreign(fmt, b"k", None)


def test_a_tombstone_needs_a_key() -> None:
    with pytest.raises(DecodeError):
        decode_foreign("knative", None, None)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(depth):
        value = {"kvlistValue": {"values": [{"key": "k", "value": value}]}}
    return value


def test_endless_nesting_is_refused() -> None:
    with pytest.raises(DecodeError, match="nested deeper"):
        told("otlp-json", {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": nested(70)}]}]}]})


WORDS = st.sampled_from([
    "name", "fields", "tags", "gauge", "value", "timestamp", "metrics", "labels", "namespace", "kind", "counter",
    "type", "object", "metadata", "data", "data_base64", "resourceMetrics", "scopeMetrics", "dataPoints",
    "attributes", "key", "stringValue", "kvlistValue", "values", "resourceLogs", "scopeLogs", "logRecords",
    "body", "asInt", "flags", "items", "uid", "spec", "status", "arrayValue", "intValue",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | (
    st.text(max_size=8) | st.sampled_from(["ADDED", "Pod", "PodList", "dev.knative.apiserver.resource.add", "PullEnd"])
)  # fmt: skip
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=25
)
VALUES = (
    st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode()) | st.text(max_size=60).map(str.encode)
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["ce_type", "content-type", "x"]), st.none() | st.binary(max_size=40)), max_size=3
)


@given(st.sampled_from(FORMATS), st.none() | st.binary(max_size=20), st.none() | VALUES, HEADERS)
def test_no_record_raises_anything_but_a_decode_error(
    fmt: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    try:
        found = decode_foreign(fmt, key, value, headers)
    except DecodeError:
        return
    assert isinstance(found, list)


LINES = st.text(alphabet='DCGM_,=\\ "1.i\n#', max_size=60)


@given(LINES)
def test_no_line_protocol_raises_anything_but_a_decode_error(text: str) -> None:
    try:
        found = decode_foreign("telegraf-influx", None, text.encode())
    except DecodeError:
        return
    assert all(isinstance(item, (Row, Rejected)) for item in found)
