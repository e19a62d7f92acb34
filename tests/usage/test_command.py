"""`rebalancer usage`: the invoice from a tapped folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.tap import to_line
from rebalancer.cli.app import app
from rebalancer.core.units import Activity
from tests.usage.ground import Ground


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tap of two hours with a loan, one record told twice, and one that was corrected."""
    ground = Ground()
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.judge("n0", Activity.BUSY)
    ground.at(31)
    ground.serve("r", "n1", late=11)
    ground.at(32)
    ground.at(60)
    ground.end("g")
    ground.restore("n0", "loan-1")
    ground.at(91)
    for number, one in enumerate([*ground.records, ground.records[-1]]):
        with (tmp_path / f"{one.topic}.jsonl").open("ab") as lines:
            lines.write(to_line(Came(one.topic, 0, number, one.key, one.value, one.headers)))
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["usage", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})


def asked(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    told = run("--from", folder, "--json", *arguments)
    assert told.exit_code == 0, told.output
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


GANG = {"allocated": 28800.0, "busy": 28800.0, "transit": 0.0, "lost": 0.0, "unused": 0.0}


@pytest.mark.parametrize(("by", "name"), [("gang", "ml/g"), ("loan", "loan-1"), ("namespace", "ml")])
def test_what_was_borrowed_is_added_up_by(folder: Path, by: str, name: str) -> None:
    (found,) = asked(folder, "--by", by)
    assert (found["name"], found["gpu_seconds"], found["records"]) == (name, GANG, 2)
    assert (found["since"], found["until"]) == ("2026-03-02T21:30:00Z", "2026-03-02T22:30:00Z")


def test_pools_show_where_their_gpus_were_and_a_correction_counts_once(folder: Path) -> None:
    (found,) = asked(folder, "--by", "pool")
    spent = found["gpu_seconds"]
    assert (spent["capacity"], spent["lent"], spent["own"]) == (3 * 28800.0, 28800.0, 8 * 600.0 + 28800.0)
    assert sum(spent[name] for name in ("own", "lent", "transit", "idle", "unhealthy")) == spent["capacity"]


@pytest.mark.parametrize(
    ("options", "hours"),
    [
        pytest.param(["--since", "2026-03-02T22:00Z"], 0.5, id="from an hour on"),
        pytest.param(["--until", "2026-03-02T22:00:00"], 0.5, id="until an hour, without a zone"),
        pytest.param(["--since", "2026-03-02", "--until", "2026-03-02T23:30+01:00"], 1.0, id="a date and another zone"),
    ],
)
def test_hours_can_be_narrowed(folder: Path, options: list[str], hours: float) -> None:
    (found,) = asked(folder, *options)
    assert found["gpu_seconds"]["allocated"] == hours * 28800.0


def test_people_get_gpu_hours_in_a_table(folder: Path) -> None:
    told = run("--from", folder)
    assert told.exit_code == 0
    assert "allocated" in told.stdout
    assert any(line.startswith("ml/g") and "8.00" in line for line in told.stdout.splitlines())


def test_hours_of_which_nothing_was_told_are_said_to_be_so(folder: Path) -> None:
    told = run("--from", folder, "--since", "2027-01-01")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no usage has been told for these hours\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(["--by", "moon"], "'moon' is none of loan, gang, namespace, pool", id="by what there is not"),
        pytest.param(["--since", "yesterday"], "--since: 'yesterday' is no moment", id="a moment that is none"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_why(folder: Path, options: list[str], said: str) -> None:
    told = run("--from", folder, *options)
    assert told.exit_code == 2
    assert said in told.stderr


def test_a_record_that_is_not_ours_is_passed_over(folder: Path) -> None:
    before = asked(folder)
    path = folder / "gpu.usage.loan.v1.jsonl"
    row = orjson.loads(path.read_bytes().splitlines()[0])
    with path.open("ab") as lines:
        lines.write(orjson.dumps({**row, "value": {"no": "envelope"}}, option=orjson.OPT_APPEND_NEWLINE))
    assert asked(folder) == before
