"""The published contract: models and dataclasses agree, generated files are fresh, records satisfy the schemas."""

import copy
import types
from dataclasses import fields
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import AwareDatetime
from pydantic_core import PydanticUndefined

from rebalancer.adapters.translate import messages
from rebalancer.adapters.translate.shapes import default_of
from rebalancer.core import charges, facts, instructions, loans, plan, stimuli, telemetry
from rebalancer.wire import v1
from rebalancer.wire.envelope import Shape
from rebalancer.wire.generate import main, render
from rebalancer.wire.topics import folder, parse, topics
from rebalancer.wire.v1 import decisions, marks, pools, usage
from rebalancer.wire.v1 import facts as wire_facts
from rebalancer.wire.v1 import telemetry as wire_telemetry
from tests.wire import cases

ENVELOPE_HOLDS = {"at", "kind"}
"""Fields of a dataclass that its record has in the envelope: ``time`` and ``type``."""
PAIRS: list[tuple[type[Shape], type, set[str]]] = [
    (wire_facts.Taint, facts.Taint, set()),
    (wire_facts.Toleration, facts.Toleration, set()),
    (wire_facts.Requirement, facts.Requirement, set()),
    (wire_facts.LoanMark, facts.LoanMark, set()),
    (wire_facts.Node, facts.Node, set()),
    (wire_facts.Pod, facts.Pod, set()),
    (wire_facts.Budget, facts.Budget, set()),
    (wire_facts.GangSpec, facts.GangSpec, set()),
    (wire_facts.Namespace, facts.Namespace, set()),
    (wire_facts.Control, facts.Control, set()),
    (wire_telemetry.DeviceReading, telemetry.DeviceReading, set()),
    (wire_telemetry.NodeSample, telemetry.NodeSample, set()),
    (wire_telemetry.Verdict, telemetry.Verdict, set()),
    (wire_telemetry.Heartbeat, telemetry.Heartbeat, set()),
    (wire_telemetry.DemandSample, telemetry.DemandSample, set()),
    (decisions.Member, plan.Member, set()),
    (decisions.LendNode, plan.LendNode, set()),
    (decisions.CloseNode, plan.CloseNode, set()),
    (decisions.EvictGang, plan.EvictGang, set()),
    (decisions.RestoreNode, plan.RestoreNode, set()),
    (decisions.RenewLoan, plan.RenewLoan, set()),
    (decisions.Alternative, plan.Alternative, set()),
    (decisions.Plan, plan.Plan, set()),
    (decisions.Outcome, plan.Outcome, set()),
    (decisions.Loan, loans.Loan, set()),
    (decisions.WorkloadRecord, instructions.WorkloadRecord, set()),
    (decisions.AlertRaised, instructions.RaiseAlert, set()),
    (decisions.AlertCleared, instructions.ClearAlert, {"at"}),
    (decisions.Term, messages.TermRecord, {"at"}),
    (pools.PoolState, instructions.PoolState, set()),
    (pools.PoolMemory, instructions.PoolMemory, set()),
    (usage.PoolUsage, charges.PoolUsage, set()),
    (usage.LoanUsage, charges.LoanUsage, set()),
    (usage.UsageRow, charges.UsageRow, set()),
    (usage.LoanMove, charges.LoanMove, set()),
    (usage.UsageMemory, charges.UsageMemory, set()),
    (marks.SnapshotBegan, stimuli.SnapshotBegan, ENVELOPE_HOLDS),
    (marks.SnapshotEnded, stimuli.SnapshotEnded, ENVELOPE_HOLDS),
    (marks.SnapshotRequested, messages.SnapshotRequested, {"at"}),
    (marks.Approved, stimuli.Approved, ENVELOPE_HOLDS),
    (marks.RecallRequested, stimuli.RecallRequested, ENVELOPE_HOLDS),
    (marks.Barrier, messages.Barrier, set()),
]


def norm(hint: Any) -> Any:
    """A type hint so that a model's and a dataclass's can be compared: enumerations and literals by their values."""
    origin, args = get_origin(hint), get_args(hint)
    if hasattr(hint, "__metadata__"):
        return norm(hint.__origin__)
    if origin is Literal:
        return frozenset(args)
    if origin in (Union, types.UnionType):
        return ("any of", frozenset(norm(each) for each in args))
    return plain(hint) if origin is None else (origin.__name__, *(norm(each) for each in args))


def plain(hint: Any) -> Any:
    if hint is AwareDatetime:
        return "datetime"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return frozenset(each.value for each in hint)
    return hint.__name__ if isinstance(hint, type) else hint


def agree(model: Any, core: Any) -> bool:
    """Whether two normed hints mean the same; growing enumerations are plain text in the contract."""
    if model == core or (model == "str" and isinstance(core, frozenset)):
        return True
    if isinstance(model, tuple) and isinstance(core, tuple) and len(model) == len(core):
        return all(agree(left, right) for left, right in zip(model, core, strict=True))
    return False


GAPS = {(instructions.PoolMemory, "history")}
"""Gaps of the history are NaN in the core and null in JSON; the round trip is tested with the records."""


@pytest.mark.parametrize(("model", "core", "elsewhere"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_model_and_dataclass_agree_field_by_field(model: type[Shape], core: type, elsewhere: set[str]) -> None:
    theirs = {entry.name: entry for entry in fields(core) if entry.name not in elsewhere}
    assert list(model.model_fields) == list(theirs), "the same fields in the same order"
    model_hints, core_hints = get_type_hints(model, include_extras=True), get_type_hints(core)
    for name, entry in theirs.items():
        if (core, name) not in GAPS:
            assert agree(norm(model_hints[name]), norm(core_hints[name])), (name, model_hints[name], core_hints[name])
        ours = model.model_fields[name].get_default(call_default_factory=True)
        wanted = default_of(entry)
        assert (ours is PydanticUndefined) == (type(wanted).__name__ == "_MISSING_TYPE"), name
        assert ours is PydanticUndefined or ours == wanted, name


def test_no_model_is_without_its_dataclass() -> None:
    paired = {model for model, _, _ in PAIRS}
    alone = {kind.model for kind in v1.KINDS} - paired
    assert alone == {marks.JournalEntry}


def test_generated_files_are_what_the_code_says() -> None:
    root = Path(__file__).parents[2] / "topics"
    made = render()
    there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"topics.yaml", "README.md"}
    there = {name for name in there if not name.startswith("client/")}
    assert there == set(made)
    stale = [name for name, text in made.items() if (root / name).read_text() != text]
    assert stale == [], "run: python -m rebalancer.wire.generate"


def test_generating_writes_only_what_differs(tmp_path: Path) -> None:
    assert main(tmp_path) == len(render())
    assert main(tmp_path) == 0


@cache
def schema(topic: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(render()[f"schemas/v1/{topic}.json"])
    Draft202012Validator.check_schema(found)
    return found


def strict(node: Any) -> Any:
    """A closed copy of an open schema: our own writers may not write a field that is not published."""
    if isinstance(node, list):
        return [strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    closed = {key: strict(value) for key, value in copy.copy(node).items()}
    if node.get("type") == "object" and "properties" in node:
        closed["additionalProperties"] = False
        closed["required"] = sorted(node["properties"])
    return closed


def problems(of: dict[str, Any], value: bytes | None) -> list[str]:
    return [error.message for error in Draft202012Validator(of).iter_errors(orjson.loads(value or b""))]


@pytest.mark.parametrize("name", sorted(cases.RECORDS))
def test_our_records_satisfy_the_published_schema_and_write_every_field_of_it(name: str) -> None:
    record = cases.RECORDS[name]
    assert problems(schema(record.topic), record.value) == []
    assert problems(strict(schema(record.topic)), record.value) == []


def test_a_published_schema_is_open_and_still_refuses_what_is_wrong() -> None:
    record = cases.RECORDS["decision.plan"]
    body = orjson.loads(record.value or b"")
    body["data"]["later"] = 1
    assert problems(schema(record.topic), orjson.dumps(body)) == []
    del body["data"]["pool"]
    assert problems(schema(record.topic), orjson.dumps(body)) != []


@pytest.mark.parametrize("topic", sorted({topic for kind in v1.KINDS for topic in kind.topics}))
def test_published_examples_satisfy_the_published_schema(topic: str) -> None:
    examples = orjson.loads(render()[f"examples/{topic}.json"])
    assert len(examples) == len(v1.kinds_on(topic))
    for example in examples:
        assert problems(schema(topic), orjson.dumps(example["value"])) == []


def test_asyncapi_names_every_topic_and_its_references_lead_somewhere() -> None:
    files = render()
    document = yaml.safe_load(files["asyncapi.yaml"])
    assert document["asyncapi"] == "3.0.0"
    for name, channel in document["channels"].items():
        assert channel["address"] == name
        for message in channel["messages"].values():
            path, _, pointer = message["payload"]["$ref"].removeprefix("./").partition("#/$defs/")
            assert pointer in orjson.loads(files[path])["$defs"]
    assert {each["channel"]["$ref"].split("/")[-1] for each in document["operations"].values()} == set(
        document["channels"]
    )


def test_the_list_and_the_contract_name_the_same_topics() -> None:
    listed = [topic.name for topic in topics() if topic.dead_letters_of is None]
    assert set(listed) == {topic for kind in v1.KINDS for topic in kind.topics}
    assert [topic.name for topic in topics() if topic.dead_letters_of] == [f"{name}.dlq" for name in listed]


def test_every_topic_has_its_time_of_append_and_four_partitions() -> None:
    for topic in topics():
        assert topic.config["message.timestamp.type"] == "LogAppendTime"
        assert topic.partitions == 4
        assert (topic.config["cleanup.policy"] == "delete") == ("retention.ms" in topic.config)


def test_the_list_is_found_where_the_package_is() -> None:
    assert folder().joinpath("topics.yaml").is_file()
    assert not (resources.files("rebalancer") / "topics").is_dir(), "a checkout reads its own list, not a copy"


HEAD = "defaults: {partitions: 4}\ndead_letters: {suffix: .dlq, keep: 14d}\ntopics:\n"
ROW = "  - {name: a, key: k, partition_by: cluster, what: w, cleanup: "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{HEAD}{ROW}compact, keep: 1d}}\n", "belongs to cleanup: delete"),
        (f"{HEAD}{ROW}delete}}\n", "belongs to cleanup: delete"),
        (f"{HEAD}{ROW}compact}}\n{ROW}compact}}\n", "listed twice: a"),
        (f"{HEAD}{ROW}compact, colour: red}}\n", "colour"),
    ],
)
def test_a_list_that_contradicts_itself_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)
