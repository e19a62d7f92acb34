"""Logs: one JSON object a line with the ids of the decision, libraries included; and how `run` sets them up."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from rebalancer.adapters import logs
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.outbox import Outbox
from rebalancer.core.facts import LoanMark
from rebalancer.core.plan import Member, Outcome, Result
from rebalancer.core.protocol.calls import Call, EvictPod, GiveNotice, ListPods, PatchNode, ReadBudgets, ReadMembers
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import OwnerClass
from rebalancer.settings import LogSettings
from tests.streams.fakes import FakePublisher

NOW = datetime(2026, 3, 2, 22, tzinfo=UTC)
MARK = LoanMark("loan-1", "n1", "infer-a100", OwnerClass.TRAINING, "ml/a", NOW, NOW, "on-loan", "plan-1", 1, NOW)
MEMBER = Member("u1", "ml", "a-0", "n1", 8)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_object_a_line_with_ids_as_keys(capsys: pytest.CaptureFixture[str]) -> None:
    logs.for_roles(LogSettings(format="json"))
    log = structlog.get_logger("test")
    with structlog.contextvars.bound_contextvars(plan="p1", loan="l1", gang="ml/a"):
        log.info("evicted", count=8, at_all=NOW, odd={1, 2})
    log.debug("not at this level")
    (told,) = lines(capsys.readouterr().err)
    assert {key: told[key] for key in ("event", "level", "plan", "loan", "gang", "count")} == {
        "event": "evicted", "level": "info", "plan": "p1", "loan": "l1", "gang": "ml/a", "count": 8,
    }  # fmt: skip
    assert datetime.fromisoformat(told["at"]).tzinfo is not None


def test_errors_and_lines_of_libraries_are_objects_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.for_roles(LogSettings(format="json"))
    try:
        int("two\nlines")
    except ValueError:
        structlog.get_logger("test").exception("failed", plan="p1")
    logging.getLogger("aiokafka").warning("%s is away", "the broker")
    logging.getLogger("aiokafka").info("nobody's news")
    ours, theirs = lines(capsys.readouterr().err)
    assert (ours["plan"], ours["exception"][0]["exc_value"]) == (
        "p1",
        "invalid literal for int() with base 10: 'two\\nlines'",
    )
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("the broker is away", "aiokafka", "warning")


def test_people_see_only_what_is_wrong_and_never_among_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    logs.for_people()
    structlog.get_logger("test").info("decided")
    structlog.get_logger("test").warning("something", plan="p1")
    told = capsys.readouterr()
    assert told.out == ""
    assert [("something" in line, "plan=p1" in line) for line in told.err.splitlines()] == [(True, True)]


def test_set_up_twice_a_line_still_comes_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        logs.for_roles(LogSettings(format="text"))
    logging.getLogger("aiokafka").warning("away")
    assert capsys.readouterr().err.count("away") == 1


@pytest.mark.parametrize(
    ("call", "ids"),
    [
        pytest.param(
            PatchNode("n1", "a-1", "7", (), MARK), {"node": "a-1", "loan": "loan-1", "plan": "plan-1"}, id="a patch",
        ),
        pytest.param(PatchNode("n1", "a-1", "7", (), None), {"node": "a-1"}, id="a patch back"),
        pytest.param(EvictPod(MEMBER, "plan-1"), {"plan": "plan-1", "pod": "ml/a-0"}, id="an eviction"),
        pytest.param(GiveNotice("ml/a", (), "", NOW, ""), {"gang": "ml/a"}, id="a notice"),
        pytest.param(ListPods("a-1"), {"node": "a-1"}, id="a list"),
        pytest.param(ReadMembers((MEMBER, MEMBER)), {"pod": "ml/a-0"}, id="a look at members"),
        pytest.param(ReadBudgets("ml"), {"namespace": "ml"}, id="a look at budgets"),
    ],
)  # fmt: skip
def test_a_call_says_what_it_is_about(call: Call, ids: dict[str, str]) -> None:
    assert logs.concerned(call) == ids


async def test_each_outcome_is_a_line_under_the_ids_by_which_why_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.for_roles(LogSettings(format="json"))
    outbox = Outbox(FakePublisher(), "berlin", Metrics())  # type: ignore[arg-type]  # as the publisher
    because = Because(Reason.BUDGET_BLOCKED, {"budget": "b", "allowed": 0, "members": 8, "gang": "ml/a"})
    outbox.add([Outcome("p1", "infer-a100", 1, "evict", "ml/a", Result.REFUSED, because, NOW)])
    outbox.add([Outcome("p1", "infer-a100", 2, "restore", "n1", Result.DONE, Because(Reason.CONFIRMED), NOW, "l1")])
    await asyncio.sleep(0)
    told = [{key: line.get(key) for key in ("plan", "loan", "gang", "node", "result", "sentence")} for line in
            lines(capsys.readouterr().err)]  # fmt: skip
    assert told == [
        {"plan": "p1", "loan": None, "gang": "ml/a", "node": None, "result": "refused",
         "sentence": "budget b allows 0 of the 8 members of ml/a now"},
        {"plan": "p1", "loan": "l1", "gang": None, "node": "n1", "result": "done", "sentence": "confirmed"},
    ]  # fmt: skip
