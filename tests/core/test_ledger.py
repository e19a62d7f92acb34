"""The ledger's bookkeeping of plans and outcomes: once each, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core import ledger, outcomes
from rebalancer.core.instructions import RecordWorkload, WorkloadRecord
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import (
    FINAL,
    CloseNode,
    EvictGang,
    LendNode,
    Member,
    Method,
    Outcome,
    Plan,
    RestoreNode,
    Result,
)
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import OutcomeReported
from rebalancer.core.units import Mode, OwnerClass
from tests.core.away import away
from tests.core.build import OWNER_TAINT, START, Rig, gang, node

DUE = START + timedelta(hours=8)
POOL = "infer-a100"
BECAUSE = Because(Reason.CONFIRMED)
HOUR = timedelta(hours=1)
LEND = LendNode(
    "l0", "uid-n0", "n0", POOL, OwnerClass.TRAINING, "ml/a", 8, DUE, DUE - timedelta(minutes=20), OWNER_TAINT
)
MEMBERS = (Member("uid-a-0", "ml", "a-0", "n0", 8),)
EVICT = EvictGang("ml/a", "ml/a", "ml", "Job/ml/a", MEMBERS, True, START, DUE, 0, 30, 5.0, BECAUSE)
HOME = (CloseNode("loan-n0", "uid-n0", "n0"), EVICT, RestoreNode("loan-n0", "uid-n0", "n0", DUE))


def plan_of(*steps: object, method: Method = Method.RETURN, **changes: object) -> Plan:
    base = Plan("p", POOL, method, Mode.ACT, BECAUSE, steps, START, START + timedelta(minutes=10), term=1)  # type: ignore[arg-type]  # steps of any kind
    return replace(base, **changes)  # type: ignore[arg-type]  # any field


def told(step: int, kind: str, result: Result, **changes: object) -> Outcome:
    target = "ml/a" if kind == "evict" else "uid-n0"
    loan = {"lend": "l0", "close": "loan-n0", "restore": "loan-n0"}.get(kind, "")
    base = Outcome("p", POOL, step, kind, target, result, BECAUSE, START + timedelta(minutes=1), loan)
    return replace(base, **changes)  # type: ignore[arg-type]  # any field


def opened(*steps: object, method: Method = Method.RETURN, **changes: object) -> Rig:
    """A rig that has adopted one plan: n0 is lent unless the plan lends it."""
    rig = Rig() if method is Method.LEND else away("n0", pods=gang("a", on=["n0"]))
    if method is Method.LEND:
        rig.sync(node("n0"), *gang("a"))
    ledger.adopt(rig.engine.state, plan_of(*steps, method=method, **changes), rig.now)
    rig.engine.check()
    return rig


def phase(rig: Rig, loan: str = "loan-n0") -> str:
    return rig.loans[loan].phase.value


def test_an_adopted_lend_opens_its_loan_and_keeps_node_and_gang_busy() -> None:
    rig = opened(LEND, method=Method.LEND)
    loan = rig.loans["l0"]
    assert (loan.phase, loan.mode, loan.plan, loan.due) == (LoanPhase.OPENING, Mode.ACT, "p", DUE)
    assert (loan.opened_at, loan.recall_at, loan.owner_taint, loan.gpus) == (START, LEND.recall_at, OWNER_TAINT, 8)
    state = rig.engine.state
    assert (state.busy_nodes, state.busy_gangs) == ({"uid-n0": "p"}, {"ml/a": "p"})
    assert state.loan_of == {"uid-n0": "l0"}


def test_a_plan_adopted_again_after_a_restart_keeps_what_its_loan_has_become() -> None:
    rig = opened(LEND, method=Method.LEND)
    rig.tell(OutcomeReported(told(0, "lend", Result.DONE)))
    assert ledger.adopt(rig.engine.state, plan_of(LEND, method=Method.LEND), rig.now) == []
    assert phase(rig, "l0") == "on-loan"


def test_a_cancel_makes_nothing_busy() -> None:
    rig = Rig()
    assert ledger.adopt(rig.engine.state, plan_of(method=Method.CANCEL, cancels="q"), rig.now) == []
    assert rig.engine.state.plans == {}


@pytest.mark.parametrize(
    ("result", "becomes"),
    [
        pytest.param(Result.DONE, "on-loan", id="done"),
        pytest.param(Result.REFUSED, "undone", id="refused"),
        pytest.param(Result.STALE, "undone", id="stale"),
        pytest.param(Result.EXPIRED, "undone", id="expired"),
        pytest.param(Result.CANCELLED, "undone", id="cancelled"),
        pytest.param(Result.STARTED, "opening", id="started"),
        pytest.param(Result.BLOCKED, "opening", id="blocked"),
    ],
)
def test_what_an_answer_means_for_a_loan_that_opens(result: Result, becomes: str) -> None:
    rig = opened(LEND, method=Method.LEND)
    rig.tell(OutcomeReported(told(0, "lend", result)))
    assert phase(rig, "l0") == becomes
    assert bool(rig.engine.state.plans) is (result not in FINAL)


@pytest.mark.parametrize(
    ("step", "kind", "result", "becomes"),
    [
        pytest.param(0, "close", Result.DONE, "recalling", id="closed"),
        pytest.param(0, "close", Result.REFUSED, "on-loan", id="not closed"),
        pytest.param(0, "close", Result.CANCELLED, "on-loan", id="called off before it closed"),
        pytest.param(2, "restore", Result.DONE, "returned", id="restored, though its closing was not heard of"),
        pytest.param(2, "restore", Result.EXPIRED, "on-loan", id="not restored"),
    ],
)
def test_what_an_answer_means_for_a_loan_that_comes_home(step: int, kind: str, result: Result, becomes: str) -> None:
    rig = opened(*HOME)
    rig.tell(OutcomeReported(told(step, kind, result)))
    assert phase(rig) == becomes


@pytest.mark.parametrize(
    ("result", "becomes"),
    [
        pytest.param(Result.CANCELLED, "on-loan", id="called off: lent again"),
        pytest.param(Result.REFUSED, "recalling", id="refused: still closed"),
        pytest.param(Result.BLOCKED, "recalling", id="blocked: still closed"),
        pytest.param(Result.DONE, "returned", id="done: at home"),
    ],
)
def test_a_closed_loan(result: Result, becomes: str) -> None:
    rig = opened(*HOME)
    rig.tell(OutcomeReported(told(0, "close", Result.DONE)), OutcomeReported(told(2, "restore", result)))
    assert phase(rig) == becomes


def test_a_node_that_act_found_gone_ends_its_loan() -> None:
    rig = opened(*HOME)
    gone = Because(Reason.NODE_GONE, {"node": "n0"})
    rig.tell(OutcomeReported(told(2, "restore", Result.BLOCKED, because=gone)))
    assert phase(rig) == "on-loan"
    rig.tell(OutcomeReported(told(2, "restore", Result.REFUSED, because=gone)))
    assert phase(rig) == "node-gone"


def test_the_first_final_answer_counts_and_the_plan_ends_with_the_last_step() -> None:
    rig = opened(*HOME)
    rig.tell(OutcomeReported(told(0, "close", Result.DONE)))
    assert rig.tell(OutcomeReported(told(0, "close", Result.CANCELLED))) == []
    assert phase(rig) == "recalling"
    rig.tell(OutcomeReported(told(1, "evict", Result.DONE)), OutcomeReported(told(2, "restore", Result.DONE)))
    state = rig.engine.state
    assert (state.plans, state.busy_nodes, state.busy_gangs) == ({}, {}, {})
    assert list(state.finished) == ["p"]


def test_a_return_time_is_learnt_once_and_only_from_a_number() -> None:
    rig = opened(*HOME)
    restored = told(2, "restore", Result.DONE, numbers={"return_seconds": 95})
    rig.tell(OutcomeReported(restored), OutcomeReported(restored))
    assert list(rig.engine.state.returns[POOL]) == [95.0]
    other = opened(*HOME)
    other.tell(OutcomeReported(replace(restored, numbers={"return_seconds": "soon"})))
    assert other.engine.state.returns == {}


def test_an_empty_node_teaches_nothing_of_the_next_return() -> None:
    rig = opened(HOME[0], HOME[2])
    rig.tell(OutcomeReported(told(1, "restore", Result.DONE, numbers={"return_seconds": 2})))
    assert (phase(rig), rig.engine.state.returns) == ("returned", {})


def test_a_gang_that_left_by_itself_was_not_evicted() -> None:
    rig = opened(*HOME)
    assert rig.tell(OutcomeReported(told(1, "evict", Result.DONE, numbers={"members": 0}))) == []
    assert rig.engine.state.workloads == {}


def test_an_eviction_that_act_planned_alone_names_its_workload() -> None:
    """Kafka was silent: no plan of ours knows it."""
    rig = away("n0")
    alone = told(1, "evict", Result.DONE, plan="fallback", numbers={"workload": "ml/w", "namespace": "ml"})
    rig.tell(OutcomeReported(alone), OutcomeReported(alone))
    assert rig.engine.state.workloads["ml/w"].evictions == (alone.at,)
    assert rig.tell(OutcomeReported(replace(alone, numbers={}, at=alone.at + HOUR))) == []


def test_an_eviction_is_counted_once_however_often_it_is_told() -> None:
    rig = opened(*HOME)
    done = told(1, "evict", Result.DONE)
    (recorded,) = rig.tell(OutcomeReported(done))
    assert isinstance(recorded, RecordWorkload)
    assert recorded.record == WorkloadRecord("ml/a", "ml", (done.at,), done.at + timedelta(minutes=15), None, "p")
    assert rig.tell(OutcomeReported(done)) == []
    assert [list(found) for found in rig.engine.state.namespace_evictions.values()] == [[done.at]]


@pytest.mark.parametrize("later_plan", [False, True], ids=["the same plan's", "one that came after it"])
def test_an_outcome_that_a_record_already_contains_is_not_counted_again(later_plan: bool) -> None:
    """After a restart the record and the outcome are both read again, the record perhaps newer."""
    rig = opened(*HOME)
    done = told(1, "evict", Result.DONE)
    moments = (done.at, done.at + timedelta(minutes=3)) if later_plan else (done.at,)
    known = WorkloadRecord("ml/a", "ml", moments, None, None, "q" if later_plan else "p")
    rig.engine.state.workloads["ml/a"] = known
    assert rig.tell(OutcomeReported(done)) == []
    assert rig.engine.state.workloads["ml/a"] == known


@pytest.mark.parametrize("result", [item for item in Result if item is not Result.DONE])
def test_only_a_finished_eviction_counts_as_one(result: Result) -> None:
    rig = opened(*HOME)
    assert rig.tell(OutcomeReported(told(1, "evict", result))) == []
    assert rig.engine.state.workloads == {}


def test_a_gang_that_could_not_be_evicted_is_left_out_for_a_minute() -> None:
    rig = opened(*HOME)
    why = Because(Reason.TWO_BUDGETS, {"pod": "ml/a-0"})
    refused = told(1, "evict", Result.REFUSED, because=why)
    rig.tell(OutcomeReported(refused))
    assert rig.engine.state.blocked_gangs == {"ml/a": (refused.at + timedelta(seconds=60), why)}


@pytest.mark.parametrize(
    ("before", "pause", "protected"),
    [
        pytest.param((), 15, None, id="the first costs a quarter of an hour"),
        pytest.param((2 * HOUR,), 30, None, id="the second of a day doubles it"),
        pytest.param(
            (3 * HOUR, 2 * HOUR), 60, 21, id="the third doubles again and protects till the first is a day old"
        ),
        pytest.param(
            (9 * HOUR, 3 * HOUR, 2 * HOUR), 60, 21, id="no more than an hour, and of four the last three count"
        ),
        pytest.param((25 * HOUR, 24 * HOUR), 15, None, id="what is a day old is forgotten"),
    ],
)
def test_a_cooldown_doubles_up_to_an_hour_and_three_a_day_protect(
    before: tuple[timedelta, ...], pause: int, protected: int | None
) -> None:
    """G9."""
    rig = Rig()
    known = WorkloadRecord("ml/a", "ml", tuple(START - ago for ago in before))
    record = outcomes.evicted_again(rig.engine.state, known, "p", START)
    assert record.cooldown_until == START + timedelta(minutes=pause)
    assert record.protected_until == (START + protected * HOUR if protected is not None else None)
    assert record.evictions[-1] == START
    assert all(START - moment < 24 * HOUR for moment in record.evictions)


def test_a_protection_that_was_given_is_kept() -> None:
    until = START + HOUR
    known = WorkloadRecord("ml/a", "ml", (), None, until)
    assert outcomes.evicted_again(Rig().engine.state, known, "p", START).protected_until == until
