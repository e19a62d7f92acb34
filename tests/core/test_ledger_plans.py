"""How plans end in the ledger: as a whole, by their validity, and without leaving anything busy behind."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core import ledger
from rebalancer.core.instructions import RecordLoan
from rebalancer.core.plan import Method, Result
from rebalancer.core.stimuli import OutcomeReported
from tests.core.away import away
from tests.core.build import lent, node
from tests.core.test_ledger import HOME, LEND, opened, phase, plan_of, told


@pytest.mark.parametrize("result", [Result.REFUSED, Result.STALE, Result.EXPIRED, Result.CANCELLED])
def test_an_answer_to_the_whole_plan_ends_all_its_steps(result: Result) -> None:
    rig = opened(LEND, method=Method.LEND)
    (record,) = rig.tell(OutcomeReported(told(-1, "plan", result)))
    assert isinstance(record, RecordLoan)
    assert (phase(rig, "l0"), rig.engine.state.busy_nodes) == ("undone", {})
    assert rig.tell(OutcomeReported(told(-1, "plan", result))) == []


def test_a_plan_as_a_whole_that_started_or_is_unknown_changes_nothing() -> None:
    rig = opened(LEND, method=Method.LEND)
    assert rig.tell(OutcomeReported(told(-1, "plan", Result.STARTED))) == []
    assert rig.tell(OutcomeReported(told(-1, "plan", Result.REFUSED, plan="other"))) == []
    assert phase(rig, "l0") == "opening"


def test_steps_that_ended_before_the_plan_did_keep_their_end() -> None:
    other = replace(LEND, loan="l1", node="uid-n1", node_name="n1")
    rig = opened(LEND, other, method=Method.LEND)
    rig.tell(OutcomeReported(told(0, "lend", Result.DONE)), OutcomeReported(told(-1, "plan", Result.EXPIRED)))
    assert (phase(rig, "l0"), phase(rig, "l1")) == ("on-loan", "undone")


def test_outcomes_of_plans_we_do_not_know_still_move_their_loans() -> None:
    """What act brought home while Kafka was silent."""
    rig = away("n0")
    rig.tell(OutcomeReported(told(2, "restore", Result.DONE, plan="fallback")))
    assert phase(rig) == "returned"
    assert rig.tell(OutcomeReported(told(2, "restore", Result.DONE, plan="fallback", loan="never-heard-of"))) == []


def test_a_plan_past_its_validity_is_let_go_with_its_unopened_loans() -> None:
    rig = opened(LEND, method=Method.LEND)
    rig.now += timedelta(minutes=10)
    rig.plans()
    assert phase(rig, "l0") == "opening"
    rig.now += timedelta(seconds=1)
    rig.plans()
    assert (phase(rig, "l0"), rig.engine.state.plans, rig.engine.state.busy_gangs) == ("undone", {}, {})


def test_an_expired_way_home_leaves_its_loan_to_be_planned_again() -> None:
    rig = opened(*HOME)
    rig.tell(OutcomeReported(told(0, "close", Result.DONE)))
    rig.now += timedelta(minutes=11)
    (again,) = rig.plans()
    assert (again.method, [step.kind for step in again.steps]) == (Method.RETURN, ["close", "evict", "restore"])


def test_closed_loans_are_forgotten_after_two_days_and_finished_plans_beyond_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "FINISHED_KEPT", 1)
    rig = opened(*HOME)
    rig.tell(*(OutcomeReported(told(i, kind, Result.DONE)) for i, kind in enumerate(("close", "evict", "restore"))))
    ledger.finish(rig.engine.state, rig.engine.state.finished["p"])
    rig.engine.state.finished["q"] = rig.engine.state.finished.pop("p")
    ledger.finish(rig.engine.state, replace(rig.engine.state.finished["q"], plan=plan_of(*HOME, id="r")))
    assert list(rig.engine.state.finished) == ["r"]
    rig.pass_time(2 * 24 * 60 + 1)
    assert "loan-n0" in rig.loans
    rig.pass_time(1)
    assert "loan-n0" not in rig.loans


def test_a_finished_plan_frees_only_what_is_still_its_own() -> None:
    rig = opened(*HOME)
    rig.engine.state.busy_nodes["uid-n0"] = "newer"
    rig.engine.state.busy_gangs["ml/a"] = "newer"
    ledger.finish(rig.engine.state, rig.engine.state.plans["p"])
    assert (rig.engine.state.busy_nodes, rig.engine.state.busy_gangs) == ({"uid-n0": "newer"}, {"ml/a": "newer"})


def test_what_blocks_a_step_is_told_until_it_goes_on() -> None:
    rig = opened(*HOME)
    rig.tell(OutcomeReported(told(1, "evict", Result.BLOCKED)))
    assert list(rig.engine.state.complaints) == [("p", 1)]
    rig.tell(OutcomeReported(told(1, "evict", Result.STARTED)))
    assert rig.engine.state.complaints == {}
    rig.tell(OutcomeReported(told(1, "evict", Result.BLOCKED)))
    ledger.finish(rig.engine.state, rig.engine.state.plans["p"])
    assert rig.engine.state.complaints == {}


def test_marks_are_not_touched_by_bookkeeping() -> None:
    rig = opened(*HOME)
    assert rig.engine.state.inventory.nodes["uid-n0"] == lent(node("n0"))
