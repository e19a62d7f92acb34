"""Whatever the bytes are: what they say, or one error that says where reading stopped."""

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rebalancer.adapters import translate as wire
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.wire import cases

POD = cases.RECORDS["fact.pod"]


def changed(name: str = "fact.pod", **fields: object) -> Record:
    """A good record with fields of its content replaced; ``...`` removes one."""
    record = cases.RECORDS[name]
    body = orjson.loads(record.value or b"")
    for key, value in fields.items():
        where = body if key in body else body["data"]
        if value is ...:
            del where[key]
        else:
            where[key] = value
    return record._replace(value=orjson.dumps(body))


WRONG = {
    "an empty value": (POD._replace(value=b""), "bytes"),
    "no JSON": (POD._replace(value=b"{"), "bytes"),
    "not UTF-8": (POD._replace(value=b'"\xff"'), "bytes"),
    "no JSON and no headers": (POD._replace(value=b"nope", headers=[]), "bytes"),
    "a list": (POD._replace(value=b"[]"), "envelope"),
    "a number and no headers": (POD._replace(value=b"7", headers=[]), "envelope"),
    "a topic of somebody else": (POD._replace(topic="orders"), "topic"),
    "a kind that belongs elsewhere": (POD._replace(topic=v1.PLAN), "envelope"),
    "headers of another kind than the body": (
        POD._replace(headers=[("ce_type", b"io.gpu-rebalancer.snapshot.began.v1")]),
        "envelope",
    ),
    "no cluster": (changed(cluster=...), "envelope"),
    "another version": (changed(schema="v2"), "envelope"),
    "a time without a zone": (changed(time="2026-03-01T00:00:00"), "envelope"),
    "a time before time": (changed(time="0001-01-01T00:00:00+14:00"), "envelope"),
    "content that is no object": (changed(data=[]), "envelope"),
    "a creation without a zone": (changed(created_at="2026-03-01T00:00:00"), "shape"),
    "a time as a number": (changed(created_at=1767225600), "shape"),
    "GPUs as text": (changed(gpus="8"), "shape"),
    "negative GPUs": (changed(gpus=-1), "shape"),
    "GPUs beyond counting": (changed(gpus=10**18), "shape"),
    "half a GPU": (changed(gpus=0.5), "shape"),
    "truth as a number": (changed(ready=1), "shape"),
    "no uid": (changed(uid=...), "shape"),
    "an empty uid": (changed(uid=""), "shape"),
    "an owner that is none": (changed(owner="finance"), "shape"),
    "a step of no kind": (changed("decision.plan", steps=[{"kind": "delete"}]), "shape"),
    "a method that we do not know": (changed("decision.plan", method="steer"), "meaning"),
    "a reason that we do not know": (
        changed("decision.outcome", because={"reason": "whim", "numbers": {}}),
        "meaning",
    ),
    "a journal of an unknown stimulus": (changed("journal", stimulus={"kind": "sneezed"}), "shape"),
    "a journal of an unknown fact": (changed("journal", stimulus={"kind": "fact-observed", "of": "job"}), "shape"),
    "a tombstone without a key": (Record(POD.topic, b"", None, []), "bytes"),
    "a tombstone whose key is no text": (Record(POD.topic, b"\xff", None, []), "bytes"),
    "a tombstone whose time is none": (Record(POD.topic, b"u", None, [("ce_time", b"soon")]), "envelope"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_record_is_refused_at_its_stage(name: str) -> None:
    record, stage = WRONG[name]
    with pytest.raises(wire.WireError) as refused:
        wire.decode(*record)
    assert refused.value.stage == stage, refused.value.reason
    assert refused.value.reason


@pytest.mark.parametrize("value", [b'{"gpus": NaN}', b'{"gpus": 1e999}', b'{"gpus": "NaN"}', b'{"gpus": null}'])
def test_a_demand_that_is_no_number_is_refused(value: bytes) -> None:
    good = cases.RECORDS["sample.demand"]
    bad = (good.value or b"").replace(b'"gpus":37.5', value[1:-1])
    assert bad != good.value
    with pytest.raises(wire.WireError):
        wire.decode(*good._replace(value=bad))


@pytest.mark.parametrize("name", sorted(cases.RECORDS))
def test_fields_of_a_newer_writer_are_passed_over(name: str) -> None:
    record = cases.RECORDS[name]
    body = orjson.loads(record.value or b"")
    body["added"] = body["data"]["added"] = {"later": True}
    assert repr(wire.decode(*record._replace(value=orjson.dumps(body)))) == repr(wire.decode(*record))


@pytest.mark.parametrize("name", sorted(cases.RECORDS))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_read_or_refused_but_never_raises_otherwise(name: str, data: st.DataObject) -> None:
    record = cases.RECORDS[name]
    value = bytearray(record.value or b"")
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    headers = data.draw(st.sampled_from([record.headers, []]))
    assert outcome(record._replace(value=bytes(value), headers=headers)) in STAGES


def outcome(record: Record) -> str:
    try:
        wire.decode(*record)
    except wire.WireError as refused:
        return refused.stage
    return "read"


STAGES = {"read", "topic", "bytes", "envelope", "shape", "meaning"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(cases.RECORDS)), value=JSON, data=st.data())
def test_any_value_in_any_field_is_read_or_refused(name: str, value: object, data: st.DataObject) -> None:
    record = cases.RECORDS[name]
    body = orjson.loads(record.value or b"")
    where = data.draw(st.sampled_from([body, body["data"]]))
    where[data.draw(st.sampled_from(sorted(where)))] = value
    try:
        raw = orjson.dumps(body)
    except TypeError:  # an integer beyond 64 bits: no JSON that any writer of ours could make
        return
    assert outcome(record._replace(value=raw)) in STAGES


def test_a_dead_letter_keeps_the_bytes_and_says_where_from_and_why() -> None:
    bad = POD._replace(value=b"\x00\xff")
    letter = wire.dead_letter(bad, 2, 4711, wire.WireError("bytes", "x" * 5000))
    headers = dict(letter.headers)
    assert (letter.topic, letter.key, letter.value) == ("gpu.fact.pod.v1.dlq", bad.key, bad.value)
    assert headers["ce_id"] == dict(bad.headers)["ce_id"]
    assert (headers["dlq_topic"], headers["dlq_partition"], headers["dlq_offset"]) == (
        b"gpu.fact.pod.v1",
        b"2",
        b"4711",
    )
    assert (headers["dlq_stage"], len(headers["dlq_error"])) == (b"bytes", 1024)
