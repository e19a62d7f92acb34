"""What a scenario file may say, and how it is told where it is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rebalancer.simulate.files import open_scenario, parse
from rebalancer.simulate.loading import ScenarioError, load, seconds_of
from rebalancer.simulate.policies import policy_of
from tests.simulate.worlds import CHAT, POOLS, job, scenario

STREAM = {"name": "s", "shapes": [[1, 8, 1]], "hours": [1, 2], "template": {}}


def lender(**changes: Any) -> dict[str, Any]:
    return {"name": "p", "owner": "inference", "nodes": 1, "model": "A100", **changes}


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        pytest.param({"pools": []}, "pools", "at least one", id="no pool"),
        pytest.param({"pools": [POOLS[0], POOLS[0]]}, "pools", "same name", id="two pools of one name"),
        pytest.param({"colour": 1}, "colour", "unknown key", id="an unknown key"),
        pytest.param({"zone": "Europe/Berln"}, "zone", "unknown zone", id="a zone that does not exist"),
        pytest.param({"start": "yesterday"}, "start", "ISO 8601", id="a start that is no time"),
        pytest.param({"hours": "long"}, "hours", "must be float", id="a word for a number"),
        pytest.param({"seed": True}, "seed", "must be int", id="a boolean for a number"),
        pytest.param({"step_seconds": 0}, "step_seconds", "positive", id="steps of no length"),
        pytest.param({"services": [{**CHAT, "pool": "x"}]}, "services[0].pool", "no pool 'x'", id="a dangling pool"),
        pytest.param({"services": [{**CHAT, "curve": "x"}]}, "services[0].curve", "no curve", id="a dangling curve"),
        pytest.param({"services": [{**CHAT, "minimum": 4}]}, "services[0].minimum", "maximum", id="minimum too high"),
        pytest.param({"services": [CHAT, CHAT]}, "services", "same name", id="two services of one name"),
        pytest.param(
            {"spikes": [{"service": "x", "at": 1, "seconds": 1, "gpus": 1}]}, "spikes[0].service", "no", id="spike"
        ),
        pytest.param({"faults": [{"kind": "flood", "at": 1}]}, "faults[0].kind", "one of", id="an unheard-of fault"),
        pytest.param({"faults": [{"kind": "api", "at": "noon"}]}, "faults[0].at", "HH:MM", id="a clock that is none"),
        pytest.param(
            {"faults": [{"kind": "api", "at": 1, "target": "slow"}]}, "faults[0].target", "one of", id="no such answer"
        ),
        pytest.param({"pools": [lender(nodes=-1)]}, "pools[0].nodes", "negative", id="fewer than no nodes"),
        pytest.param({"pools": [lender(gpus=-8)]}, "pools[0].gpus", "negative", id="fewer than no GPUs"),
        pytest.param({"pools": [lender(floor_share=7.0)]}, "pools[0].floor_share", "0 and 1", id="a floor of 700 %"),
        pytest.param({"pools": [lender(lends_to=["us"])]}, "pools[0].lends_to[0]", "one of", id="an unknown borrower"),
        pytest.param(
            {"pools": [lender(windows=[{"name": "n", "start": "25:00"}])]},
            "pools[0].windows[0].start",
            "HH:MM",
            id="a window that opens at 25:00",
        ),
        pytest.param(
            {"pools": [lender(windows=[{"name": "n", "days": [7]}])]},
            "pools[0].windows[0].days",
            "0 and 6",
            id="an eighth day",
        ),
        pytest.param({"hours": float("inf")}, "hours", "finite", id="a day without end"),
        pytest.param({"curves": {"c": {}}}, "curves.c", "at least one", id="a curve without points"),
        pytest.param({"curves": {"c": {"24:30": 1.0}}}, "curves.c", "HH:MM", id="a curve point at no time"),
        pytest.param({"services": [{**CHAT, "gpus": 0}]}, "services[0].gpus", "at least 1", id="a replica of no GPU"),
        pytest.param({"streams": [{**STREAM, "shapes": []}]}, "streams[0].shapes", "weight", id="no shape to draw"),
        pytest.param(
            {"streams": [{**STREAM, "shapes": [[1, 8, 0]]}]}, "streams[0].shapes", "weight", id="weights of nothing"
        ),
        pytest.param({"jobs": [job(pods=0)]}, "jobs[0].pods", "at least 1", id="a gang of nobody"),
        pytest.param({"jobs": [job(min_pods=2)]}, "jobs[0].min_pods", "between", id="a minimum above the size"),
        pytest.param({"jobs": [{"name": "x"}]}, "jobs[0].pods", "missing", id="a missing key"),
        pytest.param({"jobs": {"a": 1}}, "jobs", "must be a list", id="a mapping for a list"),
        pytest.param({"curves": [1]}, "curves", "must be a mapping", id="a list for a mapping"),
        pytest.param({"streams": [{**STREAM, "hours": [2]}]}, "streams[0].hours", "2 entries", id="too few entries"),
        pytest.param(
            {"streams": [{**STREAM, "hours": [3, 2]}]}, "streams[0].hours", "ascending", id="a span upside down"
        ),
        pytest.param(
            {"streams": [{**STREAM, "template": {"pods": 2}}]}, "streams[0].template.pods", "drawn", id="drawn twice"
        ),
    ],
)
def test_a_scenario_is_refused_with_path_and_message(change: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario(**change))
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [(90, 90.0), ("21:30", 5400.0), ("20:00", 0.0), ("03:00", 7 * 3600.0), ("19:59", 86400.0 - 60)],
)
def test_a_clock_is_seconds_or_the_next_such_local_time(clock: float | str, seconds: float) -> None:
    assert seconds_of(clock, load(scenario())) == seconds


def test_a_clock_is_right_on_a_night_that_loses_an_hour() -> None:
    night = load(scenario(start="2026-03-28T20:00:00", zone="Europe/Berlin"))
    assert seconds_of("06:00", night) == 9 * 3600.0


def test_a_start_without_an_offset_is_local() -> None:
    assert (
        load(scenario(start="2026-07-01T12:00:00", zone="Europe/Berlin")).start.isoformat()
        == "2026-07-01T12:00:00+02:00"
    )


def test_text_and_files_are_read_and_keys_may_be_replaced(tmp_path: Path) -> None:
    text = "name: x\nstart: 2026-03-10T20:00:00Z\npools: [{name: p, owner: training, nodes: 1, model: A100}]\n"
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert open_scenario(str(file), seed=9) == parse(text, seed=9)
    assert parse(text, seed=9).seed == 9


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="no UTF-8 text"):
        open_scenario(str(file))


@pytest.mark.parametrize(("text", "message"), [("[1, 2]", "mapping"), ("a: [", "no YAML")])
def test_text_that_is_no_mapping_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse(text)


def test_the_policy_takes_the_scenarios_numbers() -> None:
    policy = policy_of(load(scenario(policy={"activities": {"dwell": 600}, "pace": {"circuit_share": 0.5}})))
    assert (policy.activities.dwell.total_seconds(), policy.pace.circuit_share) == (600.0, 0.5)
    assert policy.pools["infer-a100"].windows[0].end_days == 0


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        ({"moods": {}}, "policy.moods"),
        ({"pace": {"x": 1}}, "policy.pace.x"),
        ({"pace": {"circuit_share": "half"}}, "policy.pace.circuit_share"),
        ({"pace": 1}, "policy.pace"),
    ],
)
def test_an_override_that_does_not_exist_is_refused(overrides: dict[str, Any], path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        policy_of(load(scenario(policy=overrides)))
    assert caught.value.path == path
