"""The ledger's legality: every row of the table, and every pair that is not in it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.loans import OPEN_PHASES, TRANSITIONS, IllegalTransition, Loan, LoanEvent, LoanPhase, advance
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode, OwnerClass
from tests.core.build import START

LEGAL = {
    ("opening", "lent"): "on-loan",
    ("opening", "mark-found"): "on-loan",
    ("opening", "refused"): "undone",
    ("opening", "node-deleted"): "node-gone",
    ("on-loan", "closed"): "recalling",
    ("on-loan", "restored"): "returned",
    ("on-loan", "mark-missing"): "lost",
    ("on-loan", "node-deleted"): "node-gone",
    ("recalling", "reopened"): "on-loan",
    ("recalling", "restored"): "returned",
    ("recalling", "mark-missing"): "lost",
    ("recalling", "node-deleted"): "node-gone",
    ("lost", "mark-found"): "on-loan",
    ("lost", "restored"): "returned",
    ("lost", "node-deleted"): "node-gone",
    ("undone", "mark-found"): "on-loan",
    ("returned", "mark-found"): "on-loan",
}
"""Written out a second time on purpose: the table is the product."""
LATER = START + timedelta(minutes=7)


def loan(phase: LoanPhase, **changes: Any) -> Loan:
    values: dict[str, Any] = {
        "id": "l", "node": "uid-n0", "node_name": "n0", "lender": "infer-a100", "borrower": OwnerClass.TRAINING,
        "gang": "ml/a", "gpus": 8, "mode": Mode.ACT, "phase": phase, "plan": "p",
        "because": Because(Reason.IDLE_PROVEN),
        "opened_at": START, "due": START + timedelta(hours=8), "recall_at": START + timedelta(hours=7),
    }  # fmt: skip
    return Loan(**(values | changes))


PAIRS = [(phase, event) for phase in LoanPhase for event in LoanEvent]


@pytest.mark.parametrize(
    ("phase", "event"),
    [pytest.param(*pair, id=f"{pair[0]} then {pair[1]}") for pair in PAIRS if (pair[0].value, pair[1].value) in LEGAL],
)
def test_a_legal_event_moves_the_loan(phase: LoanPhase, event: LoanEvent) -> None:
    assert advance(loan(phase), event, LATER).phase == LEGAL[phase.value, event.value]


@pytest.mark.parametrize(
    ("phase", "event"),
    [
        pytest.param(*pair, id=f"{pair[0]} never {pair[1]}")
        for pair in PAIRS
        if (pair[0].value, pair[1].value) not in LEGAL
    ],
)
def test_any_other_event_is_illegal_and_says_so(phase: LoanPhase, event: LoanEvent) -> None:
    with pytest.raises(IllegalTransition, match=f"loan l in phase {phase} cannot have event {event}"):
        advance(loan(phase), event, LATER)


def test_the_table_has_no_row_that_is_not_written_here() -> None:
    assert {(a.value, b.value): c.value for (a, b), c in TRANSITIONS.items()} == LEGAL


def test_open_are_those_whose_node_is_away() -> None:
    assert {phase.value for phase in OPEN_PHASES} == {"opening", "on-loan", "recalling"}
    assert [phase.value for phase in LoanPhase if loan(phase).open] == ["opening", "on-loan", "recalling"]


def test_the_moments_of_a_whole_life() -> None:
    opened = loan(LoanPhase.OPENING)
    lent = advance(opened, LoanEvent.LENT, LATER)
    assert (lent.lent_at, lent.closing_at, lent.closed_at) == (LATER, None, None)
    closing = advance(lent, LoanEvent.CLOSED, LATER + timedelta(hours=1))
    assert (closing.closing_at, closing.closed_at) == (LATER + timedelta(hours=1), None)
    home = advance(closing, LoanEvent.RESTORED, LATER + timedelta(hours=1, seconds=90))
    assert (home.closed_at, home.return_seconds) == (LATER + timedelta(hours=1, seconds=90), 90.0)
    assert home.lent_at == LATER


def test_a_reopened_loan_forgets_its_recall_and_keeps_its_beginning() -> None:
    closing = advance(advance(loan(LoanPhase.OPENING), LoanEvent.LENT, START), LoanEvent.CLOSED, LATER)
    again = advance(closing, LoanEvent.REOPENED, LATER)
    assert (again.lent_at, again.closing_at) == (START, None)


def test_a_loan_that_is_found_again_is_not_closed_any_more() -> None:
    lost = advance(loan(LoanPhase.ON_LOAN, lent_at=START), LoanEvent.MARK_MISSING, LATER)
    found = advance(lost, LoanEvent.MARK_FOUND, LATER + timedelta(minutes=1))
    assert (lost.closed_at, found.closed_at, found.lent_at) == (LATER, None, START)


@pytest.mark.parametrize(
    ("event", "closing"),
    [(LoanEvent.MARK_MISSING, True), (LoanEvent.NODE_DELETED, True), (LoanEvent.RESTORED, False)],
    ids=["lost", "the node went", "restored without a recall of ours"],
)
def test_only_a_recall_that_ends_at_home_measures_a_return_time(event: LoanEvent, closing: bool) -> None:
    phase = LoanPhase.RECALLING if closing else LoanPhase.ON_LOAN
    ended = advance(loan(phase, closing_at=START if closing else None), event, LATER)
    assert ended.return_seconds is None


def test_loans_of_the_shadow_ledger_are_virtual() -> None:
    assert loan(LoanPhase.ON_LOAN, mode=Mode.SHADOW).virtual
    assert not loan(LoanPhase.ON_LOAN).virtual
