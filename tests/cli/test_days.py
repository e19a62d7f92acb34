"""Simulated days from the command line: what is asked for, what is written, and when the exit code is 0."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cli import doors
from rebalancer.core.units import Mode
from rebalancer.simulate.loading import ScenarioError
from rebalancer.simulate.stepview import DemoOptions, DemoResult, Replayed, StepView, TelemetryAs
from tests.cli.conftest import Run
from tests.cli.pictures import picture

SAFE = {"capture": 0.81, "shortage": 0.00004, "gpu_hours_lent": 512.5, "gangs_evicted": 9, "gangs_split": 0,
        "loans_overdue": 0, "unexplained": 0, "shortage_outside_spike": 0}  # fmt: skip


class Day:
    """Stands for bootstrap: remembers what was asked for, and lives through three steps."""

    def __init__(self, summary: dict[str, Any], *, unannounced: bool = True) -> None:
        self.asked: list[DemoOptions] = []
        self._result = DemoResult(summary, ({"id": "a", "pool": "infer-a100"},), unannounced)

    async def __call__(self, options: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
        self.asked.append(options)
        for step in (1, 2, 3):
            yield picture(step)
        yield self._result


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Day:
    lived = Day(SAFE)
    monkeypatch.setattr(doors, "demo", lived)
    return lived


def test_a_safe_day_ends_with_0_its_summary_on_stdout_and_its_progress_on_stderr(run: Run, day: Day) -> None:
    told = run("demo", "--headless")
    assert told.exit_code == 0
    assert [line.split() for line in told.stdout.splitlines()[2:5]] == [
        ["capture", "81.000%"],
        ["shortage", "0.004%"],
        ["gpu", "hours", "lent", "512.5"],
    ]
    assert "2026-03-03 18:01Z 0%: 16 of 64 GPUs lent, demand 40" in told.stderr
    assert day.asked == [DemoOptions()]


@pytest.mark.parametrize(
    ("changed", "unannounced", "code"),
    [
        pytest.param({}, True, 0, id="nothing went wrong"),
        pytest.param({"gangs_split": 1}, True, 3, id="a gang was split"),
        pytest.param({"loans_overdue": 1}, True, 3, id="a loan was overdue"),
        pytest.param({"unexplained": 1}, True, 3, id="something was not explained"),
        pytest.param({"shortage_outside_spike": 0.001}, True, 3, id="shortage outside the spike"),
        pytest.param({"shortage_outside_spike": 0.001}, False, 0, id="shortage of a day without a spike is a figure"),
        pytest.param({"unexplained": None}, True, 3, id="a figure that was not measured is not zero"),
    ],
)
def test_the_exit_code_says_whether_the_day_was_safe(
    run: Run, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], unannounced: bool, code: int
) -> None:
    monkeypatch.setattr(doors, "demo", Day(SAFE | changed, unannounced=unannounced))
    told = run("demo", "--headless")
    assert told.exit_code == code
    assert ("not safe: " in told.stderr) == (code == 3)


def test_a_figure_that_is_missing_is_not_zero(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "demo", Day({"capture": 0.9}))
    told = run("demo", "--headless")
    assert told.exit_code == 3
    assert "not safe: gangs_split is not measured" in told.stderr


def test_json_is_written_whole(run: Run, day: Day, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.json"
    assert run("demo", "--headless", "--json", out).exit_code == 0
    assert json.loads(out.read_text(encoding="utf-8")) == {
        "summary": SAFE,
        "decisions": [{"id": "a", "pool": "infer-a100"}],
    }
    assert [path.name for path in out.parent.iterdir()] == ["out.json"]
    assert len(day.asked) == 1


def test_json_on_stdout_is_all_there_is_on_stdout(run: Run, day: Day) -> None:
    assert json.loads(run("demo", "--json", "-").stdout)["summary"] == SAFE
    assert len(day.asked) == 1


def test_options_reach_the_day(run: Run, day: Day, tmp_path: Path) -> None:
    demand, jobs = tmp_path / "load.csv", tmp_path / "jobs.csv"
    for path in (demand, jobs):
        path.write_text("t_s\n", encoding="utf-8")
    told = run(
        "demo", "--headless", "--seed", 7, "--days", 2, "--mode", "shadow", "--workers", 2, "--out", tmp_path / "tap",
        "--demand", demand, "--jobs", jobs, "--load-pools", "infer-a100, infer-l20", "--job-grace", "1m",
        "--kafka", "here:9092", "--telemetry", "text",
    )  # fmt: skip
    assert told.exit_code == 0
    (asked,) = day.asked
    assert (asked.seed, asked.days, asked.mode, asked.workers) == (7, 2, Mode.SHADOW, 2)
    assert asked.telemetry is TelemetryAs.TEXT
    assert (asked.out, asked.demand, asked.jobs) == (tmp_path / "tap", demand, jobs)
    assert asked.kafka == "here:9092"
    assert asked.traces.load_pools == ("infer-a100", "infer-l20")
    assert asked.traces.grace == timedelta(minutes=1)


def test_simulate_takes_a_scenario(run: Run, day: Day, tmp_path: Path) -> None:
    assert run("simulate", tmp_path / "noon.yaml", "--seed", 3, "--headless").exit_code == 0
    assert (day.asked[0].scenario, day.asked[0].seed) == (str(tmp_path / "noon.yaml"), 3)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--demand", "/no/such/file.csv"], id="a trace that is not there"),
        pytest.param(["--demand", __file__], id="a load without jobs"),
        pytest.param(["--jobs", __file__], id="jobs without a load"),
        pytest.param(["--workers", "2"], id="two workers on the embedded broker"),
        pytest.param(["--job-grace", "30"], id="a duration without unit"),
        pytest.param(["--load-pools", ","], id="no pool"),
        pytest.param(["--workers", "0"], id="no worker"),
        pytest.param(["--mode", "dry"], id="a mode that is none"),
        pytest.param(["--seed", "x"], id="a seed that is no number"),
    ],
)
def test_wrong_options_end_with_2_before_anything_starts(run: Run, day: Day, options: list[str]) -> None:
    told = run("demo", *options)
    assert (told.exit_code, told.stdout, day.asked) == (2, "", [])


@pytest.mark.parametrize(
    ("differences", "code"), [pytest.param((), 0, id="equal"), pytest.param(("plan a",), 3, id="different")]
)
def test_replay_ends_with_3_if_a_plan_differs(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, differences: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr(doors, "replay", lambda _: Replayed(10, 2, 2, differences))
    assert run("replay", tmp_path / "journal.jsonl").exit_code == code
    told = run("replay", "--from", tmp_path, "--json")
    assert (told.exit_code, json.loads(told.stdout)["stimuli"]) == (code, 10)


def test_replay_wants_exactly_one_source(run: Run, tmp_path: Path) -> None:
    assert run("replay").exit_code == 2
    assert run("replay", "file", "--from", tmp_path).exit_code == 2


def test_a_folder_that_holds_a_run_is_not_mixed_with_another(run: Run, day: Day, folder: Path) -> None:
    told = run("demo", "--headless", "--out", folder)
    assert (told.exit_code, day.asked) == (2, [])
    assert "holds a tapped run already" in told.stderr


def test_a_scenario_that_cannot_be_played_is_refused_with_its_path(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
        raise ScenarioError("pools.0.nodes", "is needed")

    monkeypatch.setattr(doors, "demo", refuse)
    told = run("simulate", "mine.yaml", "--headless")
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", "pools.0.nodes: is needed\n")


def test_a_day_without_a_result_is_a_failure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut_short(_: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
        yield picture(1)

    monkeypatch.setattr(doors, "demo", cut_short)
    told = run("demo", "--headless")
    assert (told.exit_code, told.stdout) == (1, "")
    assert "the day ended without a result" in told.stderr


def test_a_journal_that_cannot_be_read_is_a_failure_that_says_why(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: Path) -> Replayed:
        raise ValueError("line 3: not JSON")

    monkeypatch.setattr(doors, "replay", refuse)
    told = run("replay", "--from", tmp_path)
    assert (told.exit_code, told.stdout, told.stderr) == (1, "", f"{tmp_path} cannot be folded: line 3: not JSON\n")
