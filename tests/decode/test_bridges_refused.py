"""What bridges send and cannot be read: refused in parts or whole, never by anything but a decode error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import Rejected
from rebalancer.adapters.decode.errors import DecodeError, UnsupportedEncodingError
from rebalancer.adapters.decode.foreign import FORMATS, decode_foreign
from tests.decode.messages import POINT, cloud_event, otlp_metric, told


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
