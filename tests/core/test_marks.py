"""Square the ledger with the marks that nodes bear: the cluster wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core import ledger
from rebalancer.core.facts import Node, Taint
from rebalancer.core.instructions import RecordLoan
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import LendNode, Method
from rebalancer.core.stimuli import FactObserved
from rebalancer.core.units import ON_LOAN, Mode, OwnerClass
from tests.core.away import away
from tests.core.build import OWNER_TAINT, START, Rig, closing, gang, lent, node, policy, pool_policy
from tests.core.test_ledger import LEND, opened, plan_of

NAMES = ["n0"]


def phase(rig: Rig, loan: str = "loan-n0") -> str:
    return rig.loans[loan].phase.value


def test_a_mark_that_nobody_told_us_of_is_a_loan() -> None:
    """A ledger that was lost is rebuilt from the nodes."""
    rig = Rig()
    (record,) = rig.tell(FactObserved(lent(node("n0")), START))
    assert isinstance(record, RecordLoan)
    loan = record.loan
    assert (loan.id, loan.node, loan.lender, loan.borrower) == ("loan-n0", "uid-n0", "infer-a100", OwnerClass.TRAINING)
    assert (loan.phase, loan.mode, loan.gpus, loan.gang) == (LoanPhase.ON_LOAN, Mode.ACT, 8, "ml/any")
    assert (loan.due, loan.recall_at) == (START + timedelta(hours=6), START + timedelta(hours=5, minutes=40))
    assert (loan.opened_at, loan.lent_at) == (START - timedelta(hours=2),) * 2
    assert (loan.owner_taint, loan.plan) == (OWNER_TAINT, "plan-0")


@pytest.mark.parametrize(
    ("item", "recalling"),
    [
        pytest.param(lent(node("n0"), phase="recalling"), True, id="its mark says so"),
        pytest.param(closing(lent(node("n0"))), True, id="it is closed"),
        pytest.param(lent(node("n0")), False, id="neither"),
    ],
)
def test_a_found_loan_is_on_its_way_home_if_the_node_says_so(item: Node, recalling: bool) -> None:
    rig = Rig()
    rig.see(item)
    assert phase(rig) == ("recalling" if recalling else "on-loan")


def test_the_mark_may_come_before_the_outcome() -> None:
    rig = opened(LEND, method=Method.LEND)
    rig.now += timedelta(minutes=1)
    rig.see(lent(node("n0"), loan="l0"))
    assert phase(rig, "l0") == "on-loan"
    assert rig.loans["l0"].lent_at == rig.now


def test_a_mark_seen_again_changes_nothing() -> None:
    rig = away("n0")
    rig.now += timedelta(minutes=1)
    assert rig.tell(FactObserved(lent(node("n0", cordoned=True)), rig.now)) == []


def _unmarked(rig: Rig, item: Node, minutes: float = 3.1) -> None:
    """Watch the node without its mark for a while."""
    rig.now += timedelta(minutes=1)
    rig.see(item)
    rig.pass_time(minutes)


@pytest.mark.parametrize(
    ("item", "becomes"),
    [
        pytest.param(node("n0"), "returned", id="the owner taint is back: restored by other hands"),
        pytest.param(node("n0", taints=()), "lost", id="no owner taint"),
        pytest.param(
            node("n0", taints=(OWNER_TAINT, Taint(ON_LOAN, "training"))), "lost", id="our on-loan taint stays"
        ),
        pytest.param(closing(node("n0")), "lost", id="our closing taint stays"),
    ],
)
def test_a_loan_whose_mark_is_gone(item: Node, becomes: str) -> None:
    rig = away("n0")
    _unmarked(rig, item)
    assert phase(rig) == becomes


def test_a_lender_without_an_owner_taint_has_its_node_back_once_ours_are_off() -> None:
    rig = Rig()
    rig.sync(lent(node("n0"), taint=None, taint_index=None))
    _unmarked(rig, node("n0", taints=()))
    assert phase(rig) == "returned"


def test_a_mark_that_is_missing_for_a_moment_is_no_loss() -> None:
    rig = away("n0")
    _unmarked(rig, node("n0"), minutes=3.0)
    assert phase(rig) == "on-loan"
    rig.see(lent(node("n0", cordoned=True)))
    rig.pass_time(60)
    assert phase(rig) == "on-loan"


def test_while_a_plan_works_on_the_node_its_mark_is_not_missed() -> None:
    rig = away("n0")
    rig.engine.state.busy_nodes["uid-n0"] = "p"
    _unmarked(rig, node("n0"), minutes=60)
    assert phase(rig) == "on-loan"
    del rig.engine.state.busy_nodes["uid-n0"]
    rig.pass_time(1)
    assert phase(rig) == "returned"


def test_news_from_before_the_lending_is_no_loss() -> None:
    rig = away("n0")
    loan = rig.loans["loan-n0"]
    ledger.keep(rig.engine.state, replace(loan, lent_at=rig.now + timedelta(minutes=5)))
    _unmarked(rig, node("n0"))
    assert phase(rig) == "on-loan"


def test_a_lost_loan_that_is_found_again_is_on_loan() -> None:
    rig = away("n0")
    _unmarked(rig, node("n0", taints=()))
    rig.now += timedelta(seconds=1)
    rig.see(lent(node("n0")))
    assert phase(rig) == "on-loan"


@pytest.mark.parametrize(("minutes", "found"), [(0, False), (5, True)], ids=["late news", "news"])
def test_the_mark_of_a_closed_loan_counts_only_if_it_is_news(minutes: int, found: bool) -> None:
    rig = away("n0")
    _unmarked(rig, node("n0"))
    closed = rig.loans["loan-n0"].closed_at
    assert closed is not None
    rig.tell(FactObserved(lent(node("n0")), closed + timedelta(minutes=minutes)))
    assert phase(rig) == ("on-loan" if found else "returned")


def _virtual() -> Rig:
    rig = Rig(policy(pool_policy(mode=Mode.SHADOW)))
    rig.sync(node("n0"), *gang("a"))
    ledger.adopt(rig.engine.state, plan_of(LEND, method=Method.LEND, mode=Mode.SHADOW), rig.now)
    return rig


def _opening() -> Rig:
    return opened(LEND, method=Method.LEND)


def _on_loan() -> Rig:
    rig = Rig()
    rig.sync(lent(node("n0"), loan="l0"))
    return rig


def _undone() -> Rig:
    rig = _on_loan()
    _unmarked(rig, node("n0", taints=()))
    ledger.adopt(rig.engine.state, plan_of(replace(LEND, loan="loan-n0"), method=Method.LEND), rig.now)
    return rig


@pytest.mark.parametrize(
    ("begin", "former"),
    [
        pytest.param(_virtual, "returned", id="in shadow"),
        pytest.param(_opening, "undone", id="still opening"),
        pytest.param(_on_loan, "lost", id="on loan"),
    ],
)
def test_a_mark_that_names_another_loan_ends_the_one_we_knew(begin: Callable[[], Rig], former: str) -> None:
    """One node, one loan: the one its mark names."""
    rig = begin()
    rig.now += timedelta(minutes=1)
    rig.see(lent(node("n0")))
    assert (phase(rig, "l0"), phase(rig)) == (former, "on-loan")
    assert [loan.id for loan in rig.engine.state.open_loans()] == ["loan-n0"]


def test_a_lost_loan_that_is_found_again_ends_the_one_that_opened_meanwhile() -> None:
    rig = _undone()
    rig.now += timedelta(minutes=1)
    rig.see(lent(node("n0"), loan="l0"))
    assert (phase(rig, "l0"), phase(rig)) == ("on-loan", "undone")


def test_a_node_that_is_deleted_ends_its_loan_and_its_history() -> None:
    rig = away("n0")
    rig.idle()
    rig.lose("node", "uid-n0")
    assert phase(rig) == "node-gone"
    state = rig.engine.state
    assert (state.verdicts, state.home_since, state.loan_of, state.unmarked) == ({}, {}, {}, {})


def test_a_node_that_comes_again_under_its_name_starts_anew() -> None:
    """The old one's loan ends, whether its deletion is heard of before, after, or never."""
    rig = away("n0")
    rig.idle()
    rig.now += timedelta(minutes=1)
    (record,) = rig.tell(FactObserved(node("n0", uid="uid-new"), rig.now))
    assert isinstance(record, RecordLoan)
    assert (record.loan.id, phase(rig)) == ("loan-n0", "node-gone")
    rig.lose("node", "uid-n0")
    assert list(rig.engine.state.inventory.nodes) == ["uid-new"]
    assert rig.engine.state.verdicts == {}
    assert rig.engine.state.watches["infer-a100"].counted == {}


def test_a_virtual_loan_needs_no_mark() -> None:
    rig = _virtual()
    _unmarked(rig, node("n0", cordoned=True), minutes=30)
    assert phase(rig, "l0") == "on-loan"
    assert isinstance(LEND, LendNode)


def test_a_pool_that_begins_to_act_ends_its_virtual_loans() -> None:
    rig = _virtual()
    rig.engine.state.policy = policy(pool_policy(mode=Mode.ACT))
    rig.pass_time(1)
    assert phase(rig, "l0") == "returned"


def test_a_node_that_came_home_is_remembered_with_the_latest_return() -> None:
    rig = away("n0")
    loan = rig.loans["loan-n0"]
    early, late = START - timedelta(hours=3), START - timedelta(minutes=3)
    for name, moment in (("x", late), ("y", early)):
        ledger.keep(rig.engine.state, replace(loan, id=name, phase=LoanPhase.RETURNED, closed_at=moment))
    assert rig.engine.state.home_since["uid-n0"] == late
