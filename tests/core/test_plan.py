"""Plans and outcomes as data: equal decisions have equal ids, and repeats are recognised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.core.plan import FINAL, Method, Outcome, Plan, Result, stable_id
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode
from tests.core.build import START

BECAUSE = Because(Reason.CONFIRMED)
PLAN = Plan("p", "pool", Method.RECLAIM, Mode.ACT, BECAUSE, (), START, START, awaits_approval=True)
TOLD = Outcome("p", "pool", 1, "evict", "ml/a", Result.BLOCKED, Because(Reason.BUDGET_BLOCKED), START)


def test_a_stable_id_is_the_same_on_any_machine() -> None:
    assert stable_id("a", "b") == "f04cdced9736a69d"
    assert len(stable_id()) == 16


def test_parts_of_an_id_do_not_run_together() -> None:
    assert len({stable_id("ab", "c"), stable_id("a", "bc"), stable_id("abc"), stable_id("c", "ab")}) == 4


def test_a_plan_in_a_term_and_approved() -> None:
    assert PLAN.in_term(7) == replace(PLAN, term=7)
    assert PLAN.approved(8) == replace(PLAN, term=8, awaits_approval=False)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"at": START.replace(hour=1)}, True, id="told later"),
        pytest.param({"epoch": 3}, True, id="told by another actor"),
        pytest.param({"because": Because(Reason.TWO_BUDGETS)}, False, id="blocked by something else"),
        pytest.param({"result": Result.DONE}, False, id="another result"),
        pytest.param({"step": 2}, False, id="another step"),
        pytest.param({"plan": "q"}, False, id="another plan"),
        pytest.param({"target": "ml/b"}, False, id="another target"),
        pytest.param({"kind": "close"}, False, id="another kind"),
    ],
)
def test_when_two_outcomes_are_one(change: dict[str, Any], same: bool) -> None:
    assert (replace(TOLD, **change).id == TOLD.id) is same


def test_a_final_outcome_is_one_whatever_reason_it_is_told_with() -> None:
    done = replace(TOLD, result=Result.DONE)
    assert replace(done, because=Because(Reason.NODE_GONE)).id == done.id


def test_which_results_are_final() -> None:
    assert [result.value for result in Result if result not in FINAL] == ["started", "blocked"]
