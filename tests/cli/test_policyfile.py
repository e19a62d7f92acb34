"""Policy files: read exactly, refused whole, every fault with its path, line and column."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rebalancer.adapters.policyfile import READERS, SECTIONS, PolicyRefused, digest, load_policy, parse_policy
from rebalancer.adapters.policywords import UNITS, explain
from rebalancer.core.facts import Taint
from rebalancer.core.policy import Policy, PoolPolicy, problems
from rebalancer.core.units import Mode, OwnerClass
from tests.cli.conftest import Run

EXAMPLE = Path(__file__).parents[2] / "deploy" / "policy.example.yaml"
SLIPS = ["", "\n", ": ", "- ", "{", "[", "&a *a", "!!binary x", "\t", "'", "\x00", "ø", "~", "<<: *b", "? "]
KINDS: list[type[Any]] = [PoolPolicy, *SECTIONS.values()]
POOL = "pools: {a: {model: A100, owner: inference}}\n"
LENDS = "pools:\n  a:\n    model: A100\n    owner: inference\n    lends_to: training\n    windows:\n"


def flaws(text: str) -> list[str]:
    """What is wrong with a policy, as people read it; empty if nothing is."""
    try:
        parse_policy(text)
    except PolicyRefused as refused:
        return [str(flaw) for flaw in refused.flaws]
    return []


def test_the_example_is_legal_and_shows_the_defaults() -> None:
    policy = load_policy(EXAMPLE)
    assert problems(policy) == ()
    assert list(policy.pools) == ["infer-a100", "infer-l20", "train-h100", "train-a100", "cpu-batch"]
    assert {line.path for line in explain(policy) if line.changed and not line.path.startswith("pools.")} == set()


def test_the_example_names_every_setting_of_every_section() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    missing = [field.name for kind in SECTIONS.values() for field in fields(kind) if f"  {field.name}:" not in text]
    assert missing == []


def test_values_are_read_as_they_are_meant() -> None:
    policy = load_policy(EXAMPLE)
    pool = policy.pools["infer-a100"]
    assert pool.mode is Mode.SHADOW
    assert pool.lends_to == (OwnerClass.TRAINING, OwnerClass.BATCH)
    assert pool.owner_taint == Taint("workload", "inference", "NoSchedule")
    assert (pool.floor_share, pool.target_utilisation, pool.cold_start) == (0.2, 0.7, timedelta(minutes=2))
    night, (weeknights, weekend) = pool.windows[0], policy.pools["infer-l20"].windows
    assert (night.name, night.zone.key, night.start, night.end, night.end_days) == (
        "night",
        "Europe/Berlin",
        time(22),
        time(7),
        1,
    )
    assert night.except_dates == {date(2026, 12, 24), date(2026, 12, 31)}
    assert weeknights.days == {0, 1, 2, 3}
    assert (set(weekend.days), weekend.end_days) == ({4}, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", ["1:1: the file is empty; at least one pool is needed"], id="an empty file"),
        pytest.param("pools: [", ["1:9: not YAML: expected the node content, but found '<stream end>'"], id="no YAML"),
        pytest.param(
            "- a\n", ["1:1: must be a mapping, is a list", "1:1: pools: at least one pool is needed"], id="a list"
        ),
        pytest.param("pools: {}\n", ["1:1: pools: at least one pool is needed"], id="no pool"),
        pytest.param(POOL + "pacee: {}\n", ["2:1: pacee: unknown key, did you mean pace?"], id="a section misspelt"),
        pytest.param(
            POOL + "activities:\n  dwel: 20m\n",
            ["3:3: activities.dwel: unknown key, did you mean dwell?"],
            id="a setting misspelt",
        ),
        pytest.param(
            POOL + "activities:\n  dwell: 20\n",
            ["3:3: activities.dwell: '20' is no duration; write for example 90s, 20m, 1h30m or 2d"],
            id="a duration without unit",
        ),
        pytest.param(
            POOL + "activities:\n  dwell: 20m\n  dwell: 30m\n",
            ["4:3: activities.dwell: stands here a second time"],
            id="the same setting twice",
        ),
        pytest.param(
            POOL + "activities: {dwell: 60s, freshness: 2m}\n",
            [
                "2:14: activities.dwell: must be longer than freshness, or idleness is never proven",
            ],
            id="F48: a dwell that can never be filled, at the line of the core's answer",
        ),
        pytest.param(
            POOL + "signals: {debounce: 4m}\n",
            ["2:11: signals.debounce: must be shorter than freshness, or it never completes"],
            id="F48: a debounce that always expires before it completes",
        ),
        pytest.param(
            POOL + "pace: {evictions_per_second: fast, eviction_burst: 1.5, recall_while_paused: maybe}\n",
            [
                "2:8: pace.evictions_per_second: 'fast' is no number",
                "2:36: pace.eviction_burst: '1.5' is no whole number",
                "2:57: pace.recall_while_paused: 'maybe' is neither true nor false",
            ],
            id="all that is wrong is told at once, in the order of the file",
        ),
        pytest.param(
            POOL + "pace: {nodes_per_pool: nan}\n", ["2:8: pace.nodes_per_pool: 'nan' is no whole number"], id="nan"
        ),
        pytest.param(
            POOL + "pace: {circuit_share: .inf}\n", ["2:8: pace.circuit_share: '.inf' is no number"], id="infinity"
        ),
        pytest.param(
            "pools:\n  a: {owner: inference}\n",
            ["2:3: pools.a.model: is needed"],
            id="a pool that does not say its model",
        ),
        pytest.param(
            "pools:\n  a: {model: A101, owner: inference}\n",
            ["2:7: pools.a.model: 'A101' is not in models"],
            id="a model that nobody knows",
        ),
        pytest.param(
            "pools:\n  a: {model: A100, owner: inference, owner_taint: 'workload=inference:NoExecute'}\n",
            ["2:38: pools.a.owner_taint: effect 'NoExecute' must be NoSchedule or PreferNoSchedule"],
            id="a taint that would kill what runs",
        ),
        pytest.param(
            "pools:\n  a: {model: A100, owner: inference, lends_to: [training]}\n",
            ["2:3: pools.a.windows: a pool that lends needs a window; `always` is one"],
            id="lending without a window, told at the pool",
        ),
        pytest.param(
            LENDS + "      - {zone: Europe/Berln, from: 22:00, to: 06:00}\n",
            ["7:10: pools.a.windows.0.zone: unknown zone 'Europe/Berln', did you mean Europe/Berlin?"],
            id="F5: a zone misspelt is refused, with the right one",
        ),
        pytest.param(
            LENDS + "      - {zone: '../../etc/passwd', from: 22:00, to: 06:00}\n",
            [
                (
                    "7:10: pools.a.windows.0.zone: unknown zone '../../etc/passwd'; "
                    "write an IANA name such as Europe/Berlin, or UTC"
                )
            ],
            id="a zone that is a path",
        ),
        pytest.param(
            LENDS + "      - {from: 22:00, to: 06:00}\n",
            ["7:9: pools.a.windows.0.zone: is needed (an IANA zone, or UTC)"],
            id="a window without a zone is not UTC by itself",
        ),
        pytest.param(
            LENDS + "      - {zone: UTC, from: 22:00, to: 22:00}\n",
            ["7:34: pools.a.windows.0.to: is its start; write 24:00 for the end of the day, or always"],
            id="F7: start and end are the same",
        ),
        pytest.param(
            LENDS + "      - {zone: UTC, from: 25:00, to: 06:00}\n",
            ["7:21: pools.a.windows.0.from: '25:00' is no time of day; write 22:00, 24:00 or fri 20:00"],
            id="an hour that no day has",
        ),
        pytest.param(
            LENDS + "      - {zone: UTC, from: fri 20:00, to: '07:00'}\n",
            ["7:9: pools.a.windows.0: say the weekday in both `from` and `to`, or in neither"],
            id="half a weekday span",
        ),
        pytest.param(
            LENDS + "      - {zone: UTC, days: mon-fry, from: 20:00, to: 07:00}\n",
            ["7:27: pools.a.windows.0.days.0: 'fry' is no weekday; write mon, tue, wed, thu, fri, sat, sun"],
            id="a day misspelt",
        ),
        pytest.param(
            LENDS + "      - nights\n",
            ["7:9: pools.a.windows.0: 'nights' is no window; write always, or zone, from and to"],
            id="a window that is a word",
        ),
    ],
)
def test_what_is_wrong_is_told_with_path_line_and_column(text: str, expected: list[str]) -> None:
    assert flaws(text) == expected


@pytest.mark.parametrize(
    ("written", "days", "start", "end", "end_days"),
    [
        pytest.param("from: 22:00, to: 06:00", set(range(7)), time(22), time(6), 1, id="over midnight"),
        pytest.param("from: '01:00', to: '06:00'", set(range(7)), time(1), time(6), 0, id="within a day"),
        pytest.param("from: 18:00, to: 24:00", set(range(7)), time(18), time(0), 1, id="to the end of the day"),
        pytest.param("from: 00:00, to: 24:00", set(range(7)), time(0), time(0), 1, id="a whole day"),
        pytest.param("from: 22:00, to: 07:00, days: mon-fri", set(range(5)), time(22), time(7), 1, id="weeknights"),
        pytest.param(
            "from: 22:00, to: 07:00, days: sun-thu", {6, 0, 1, 2, 3}, time(22), time(7), 1, id="around the weekend"
        ),
        pytest.param(
            "from: 22:00, to: 07:00, days: [tue, 'sat, sun']", {1, 5, 6}, time(22), time(7), 1, id="a list of days"
        ),
        pytest.param(
            "from: fri 20:00, to: mon 07:00",
            {4},
            time(20),
            time(7),
            3,
            id="F6: a weekend is one span, Friday to Monday",
        ),
        pytest.param("from: mon 20:00, to: mon 07:00", {0}, time(20), time(7), 7, id="nearly a week"),
        pytest.param("from: Friday 20:00, to: Saturday 24:00", {4}, time(20), time(0), 2, id="days in full"),
    ],
)
def test_windows_are_read(written: str, days: set[int], start: time, end: time, end_days: int) -> None:
    window = parse_policy(LENDS + f"      - {{zone: Asia/Shanghai, {written}}}\n").pools["a"].windows[0]
    assert (set(window.days), window.start, window.end, window.end_days) == (days, start, end, end_days)


def test_always_is_a_window_by_itself() -> None:
    policy = parse_policy(LENDS.removesuffix("    windows:\n") + "    windows: always\n")
    assert policy.pools["a"].windows[0].always


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_policy_can_be_written(kind: type[Any]) -> None:
    hints = get_type_hints(kind)
    assert [name for name in hints if name != "name" and hints[name] not in READERS] == []


def test_every_number_is_explained_with_a_unit() -> None:
    numbers = [
        field.name
        for kind in KINDS
        for field in fields(kind)
        if get_type_hints(kind)[field.name] in (int, float, float | None)
    ]
    assert [name for name in numbers if name not in UNITS] == []


def test_what_is_explained_reads_back_as_the_same_policy() -> None:
    policy = Policy(pools={"a": PoolPolicy("a", "A100", OwnerClass.INFERENCE)})
    lines = {line.path: line.value for line in explain(policy) if line.unit == "duration"}
    for section in SECTIONS:
        block = "".join(
            f"  {path.partition('.')[2]}: {value}\n" for path, value in lines.items() if path.startswith(section)
        )
        assert getattr(parse_policy(f"{POOL}{section}:\n{block}"), section) == getattr(policy, section)


def test_a_policy_is_named_by_its_content() -> None:
    assert digest(b"a") != digest(b"b")
    assert len(digest(b"a")) == 16


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"pools: \xff")
    with pytest.raises(PolicyRefused, match="1:1: not UTF-8"):
        load_policy(file)


def test_check_names_the_file_line_and_column_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POOL + "activities:\n  dwel: 20m\n", encoding="utf-8")
    told = run("policy", "check", file)
    assert (told.exit_code, told.stdout) == (1, "")
    assert told.stderr == f"{file}:3:3: activities.dwel: unknown key, did you mean dwell?\n"


def test_check_answers_as_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pools: {}", encoding="utf-8")
    told = run("policy", "check", file, "--json")
    assert told.exit_code == 1
    problem = {"path": "pools", "line": 1, "column": 1, "message": "at least one pool is needed"}
    assert json.loads(told.stdout) == {"file": str(file), "ok": False, "problems": [problem]}
    assert json.loads(run("policy", "check", EXAMPLE, "--json").stdout)["ok"] is True


def test_check_of_a_file_that_is_not_there_ends_with_1(run: Run, tmp_path: Path) -> None:
    told = run("policy", "check", tmp_path / "none.yaml")
    assert told.exit_code == 1
    assert "No such file" in told.stderr


def test_explain_shows_value_default_and_unit(run: Run) -> None:
    told = run("policy", "explain", EXAMPLE)
    assert told.exit_code == 0
    row = next(line for line in told.stdout.splitlines() if line.startswith("pools.infer-a100.cold_start"))
    assert row.split() == ["pools.infer-a100.cold_start", "2m", "0s", "duration"]


def test_explain_can_show_only_what_differs(run: Run) -> None:
    told = json.loads(run("policy", "explain", EXAMPLE, "--changed", "--json").stdout)
    assert all(line["changed"] for line in told)
    assert "pools.infer-a100.cold_start" in [line["path"] for line in told]


@settings(max_examples=200, deadline=None)
@given(at=some.integers(0, 4000), cut=some.integers(0, 12), put=some.sampled_from(SLIPS))
def test_whatever_is_typed_gives_a_policy_or_what_is_wrong(at: int, cut: int, put: str) -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    told = flaws(text[:at] + put + text[at + cut :])
    assert all(re.match(r"[1-9]\d*:[1-9]\d*: .", line) for line in told)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 20_000, id="nested without end"),
        pytest.param("pools: &a {a: *a}", id="a thing inside itself"),
        pytest.param("x" * (1 << 21), id="larger than anybody writes"),
    ],
)
def test_a_file_made_to_hurt_is_refused(text: str) -> None:
    assert flaws(text)
