"""Every kind of record, there and back, and the bytes as they were when the contract was made."""

import json
import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from rebalancer.adapters import translate as wire
from rebalancer.core.instructions import (
    AskSnapshot,
    ClearAlert,
    ForgetAlert,
    ForgetLoan,
    Instruction,
    PoolMemory,
    PublishPlan,
    RaiseAlert,
    RecordForecast,
    RecordLoan,
    RecordPool,
    RecordUsage,
    RecordWorkload,
)
from rebalancer.core.stimuli import FactDeleted
from rebalancer.wire import v1
from tests.wire import cases

GOLDEN = Path(__file__).parent / "golden"
EXACT = sorted(set(cases.RECORDS) - {"forecast.pool"})


def without_wording(node: Any) -> Any:
    """Sentences may be worded anew at any time: they are no part of what must stay."""
    if isinstance(node, list):
        return [without_wording(each) for each in node]
    if isinstance(node, dict):
        return {key: "..." if key == "sentence" else without_wording(value) for key, value in node.items()}
    return node


def as_text(name: str) -> str:
    record = cases.RECORDS[name]
    whole = {
        "topic": record.topic,
        "key": record.key.decode(),
        "headers": {key: value.decode() for key, value in record.headers},
        "value": without_wording(orjson.loads(record.value or b"null")),
    }
    return json.dumps(whole, indent=2) + "\n"


@pytest.mark.parametrize("name", sorted(cases.RECORDS))
def test_a_record_is_written_as_it_always_was(name: str) -> None:
    assert as_text(name) == (GOLDEN / f"{name}.json").read_text()


@pytest.mark.parametrize("name", EXACT)
def test_what_was_said_is_what_is_read(name: str) -> None:
    got = wire.read(*cases.RECORDS[name])
    assert (got.name, got.cluster, got.at) == (name, cases.CLUSTER, cases.AT)
    assert got.content == cases.SAID[name]


@pytest.mark.parametrize("name", EXACT)
def test_a_record_whose_headers_were_dropped_says_the_same(name: str) -> None:
    topic, key, value, _ = cases.RECORDS[name]
    assert wire.decode(topic, key, value) == cases.SAID[name]


@pytest.mark.parametrize("name", sorted(cases.RECORDS))
def test_headers_and_body_carry_one_identity(name: str) -> None:
    record = cases.RECORDS[name]
    body, headers = orjson.loads(record.value or b""), dict(record.headers)
    told = (body["id"], body["type"], body["time"], body["cluster"])
    assert told == tuple(headers[f"ce_{key}"].decode() for key in ("id", "type", "time", "cluster"))
    assert headers["ce_specversion"] == b"1.0"
    assert headers["content-type"] == b"application/json"


def test_every_kind_has_a_case_here() -> None:
    assert {kind.name for kind in v1.KINDS} == set(cases.RECORDS)


def test_gaps_of_a_forecast_come_back_as_gaps() -> None:
    memory = wire.decode(*cases.RECORDS["forecast.pool"])
    assert isinstance(memory, PoolMemory)
    assert math.isnan(memory.history[1])
    assert (memory.history[0], memory.history[2]) == (3.0, 5.5)
    assert memory.quantiles == cases.MEMORY.quantiles


def test_a_record_told_twice_has_one_id_and_another_has_another() -> None:
    again = wire.encode_fact(cases.POD, cases.CLUSTER, cases.AT)
    other = wire.encode_fact(cases.POD, "elsewhere", cases.AT)
    assert again == cases.RECORDS["fact.pod"]
    assert dict(other.headers)["ce_id"] != dict(again.headers)["ce_id"]


@pytest.mark.parametrize(
    ("of", "uid"), [("pod", "pod-uid-1"), ("node", "node-uid-7"), ("control", "control"), ("namespace", "a/b")]
)
def test_a_deletion_is_a_tombstone_that_says_which_and_when(of: str, uid: str) -> None:
    gone = FactDeleted(of, uid, cases.AT)  # type: ignore[arg-type]  # parametrised text
    record = wire.encode_deleted(gone, cases.CLUSTER)
    assert record.value is None
    assert wire.decode(*record) == gone


def test_a_tombstone_without_headers_went_when_it_was_received_or_is_refused() -> None:
    topic = v1.FACT_TOPICS["pod"]
    assert wire.decode(topic, b"pod-uid-1", None, received_at=cases.AT) == FactDeleted("pod", "pod-uid-1", cases.AT)
    with pytest.raises(wire.WireError, match="does not say when"):
        wire.decode(topic, b"pod-uid-1", None)


def test_the_tombstone_of_a_record_names_its_key_without_the_cluster() -> None:
    grave = wire.encode_tombstone(cases.RECORDS["alert.raised"], cases.AT, cases.CLUSTER)
    assert (grave.key, grave.value) == (cases.RECORDS["alert.raised"].key, None)
    assert wire.decode(*grave) == wire.Tombstone("gpu.alert.event.v1", "alert-1")


INSTRUCTIONS: list[tuple[Instruction, str]] = [
    (PublishPlan(cases.PLAN), "decision.plan"),
    (RecordLoan(cases.LOAN), "state.loan"),
    (RecordWorkload(cases.WORKLOAD), "state.workload"),
    (RecordPool(cases.POOL), "state.pool"),
    (RecordForecast(cases.MEMORY), "forecast.pool"),
    (RecordUsage(cases.LOAN_USAGE), "usage.loan"),
    (RecordUsage(cases.POOL_USAGE), "usage.pool"),
    (RaiseAlert("alert-1", "critical", "a100-07", "infer-a100", cases.LENT, cases.AT, {"seconds": 30}), "alert.raised"),
    (ClearAlert("alert-1", cases.AT), "alert.cleared"),
    (AskSnapshot("pod", cases.TOO_LARGE), "control.snapshot"),
]


@pytest.mark.parametrize(("instruction", "name"), INSTRUCTIONS, ids=[name for _, name in INSTRUCTIONS])
def test_every_instruction_has_its_record(instruction: Instruction, name: str) -> None:
    assert wire.encode_instruction(instruction, cases.CLUSTER, cases.AT) == cases.RECORDS[name]


@pytest.mark.parametrize(
    ("instruction", "name"), [(ForgetLoan("loan-1"), "state.loan"), (ForgetAlert("alert-1"), "alert.raised")]
)
def test_what_is_forgotten_is_deleted_under_the_key_that_it_had(instruction: Instruction, name: str) -> None:
    grave = wire.encode_instruction(instruction, cases.CLUSTER, cases.AT)
    record = cases.RECORDS[name]
    assert grave == wire.encode_tombstone(record, cases.AT, cases.CLUSTER)
    assert (grave.topic, grave.key, grave.value) == (record.topic, record.key, None)


def test_two_clusters_on_one_partition_do_not_overwrite_each_other() -> None:
    compacted = ("state.pool", "state.workload", "state.telemetry", "forecast.pool", "alert.raised", "fact.control")
    for name in compacted:
        assert cases.RECORDS[name].key.startswith(cases.CLUSTER.encode() + b"/"), name


def test_a_cluster_lies_where_it_was_placed_and_else_where_its_name_falls() -> None:
    assert wire.cluster_partition("a", 4, {"a": 3}) == 3
    assert 0 <= wire.cluster_partition("b", 4, {"a": 3}) < 4
    assert wire.cluster_partition("b", 4) == wire.cluster_partition("b", 4, {})
    with pytest.raises(ValueError, match="placed on partition 4"):
        wire.cluster_partition("a", 4, {"a": 4})


def test_another_wording_makes_no_other_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rebalancer.adapters.translate.plain.sentence", lambda _: "in other words")
    again = wire.encode_plan(cases.PLAN, cases.CLUSTER)
    assert b"in other words" in (again.value or b"")
    assert dict(again.headers)["ce_id"] == dict(cases.RECORDS["decision.plan"].headers)["ce_id"]
