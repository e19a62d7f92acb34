"""`topics plan|apply|acl`: words and exit codes; what they do to a broker is tested on a real one elsewhere."""

from __future__ import annotations

import json

import pytest

from rebalancer.adapters.streams import admin
from rebalancer.adapters.streams.admin import Action, Change, TopicsRefused
from rebalancer.cli.exits import Code
from rebalancer.wire.topics import topics
from tests.cli.conftest import Run

FIRST = topics()[0]
SAME = Change(FIRST, Action.NOTHING)
DIFFERS = Change(FIRST, Action.CHANGE, {"cleanup.policy": ("delete", "compact")})


def answering(monkeypatch: pytest.MonkeyPatch, *changes: Change) -> None:
    async def answer(*_: object, **__: object) -> list[Change]:
        return list(changes)

    monkeypatch.setattr(admin, "plan", answer)
    monkeypatch.setattr(admin, "apply", answer)


@pytest.mark.parametrize(
    ("change", "code"),
    [pytest.param(SAME, Code.OK, id="nothing differs"), pytest.param(DIFFERS, Code.UNSAFE, id="something differs")],
)
def test_plan_ends_with_3_if_something_would_change(
    run: Run, monkeypatch: pytest.MonkeyPatch, change: Change, code: Code
) -> None:
    answering(monkeypatch, change)
    told = run("topics", "plan")
    assert told.exit_code == code
    assert (FIRST.name in told.stdout) == (code is Code.UNSAFE)


def test_plan_as_json_has_every_topic(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, SAME, DIFFERS)
    told = run("topics", "plan", "--json")
    assert (told.exit_code, [one["action"] for one in json.loads(told.stdout)]) == (3, ["nothing", "change"])
    assert json.loads(told.stdout)[1]["settings"] == {"cleanup.policy": {"is": "delete", "should": "compact"}}


def test_apply_says_what_was_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, DIFFERS)
    told = run("topics", "apply")
    assert told.exit_code == 0
    assert "cleanup.policy delete -> compact" in told.stdout


def test_apply_ends_with_3_if_a_partition_count_differs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> list[Change]:
        raise TopicsRefused(f"{FIRST.name} has 8 partitions and not 4")

    monkeypatch.setattr(admin, "apply", refuse)
    told = run("topics", "apply")
    assert (told.exit_code, told.stdout) == (3, "")
    assert told.stderr == f"nothing was changed: {FIRST.name} has 8 partitions and not 4\n"


def test_acl_prints_the_least_that_a_role_needs(run: Run) -> None:
    lines = run("topics", "acl", "act", "--principal", "User:actor", "--source", "theirs").stdout.splitlines()
    assert any("--operation Write" in line and "gpu.decision.outcome.v1" in line for line in lines)
    assert not any("--operation Write" in line and line.endswith("gpu.state.loan.v1") for line in lines)
    assert any(line.endswith("--topic theirs") for line in lines)
    assert all("User:actor" in line for line in lines)
    assert json.loads(run("topics", "acl", "subscriber", "--json").stdout)[0]["operations"]
