"""What is over is kept for its time, then forgotten: first from memory, then off the topics, also over a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from rebalancer.core.instructions import ClearAlert, ForgetAlert, ForgetLoan, Instruction, RaiseAlert
from rebalancer.core.keeping import A_PASS, IN_MEMORY, ON_TOPICS, Keeping
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import PolicyAdopted, PolicyRefused, Restored, TimePassed
from tests.core.build import START, Rig, lent, node, policy

SECOND = timedelta(seconds=1)


def closed(at: datetime = START, name: str = "loan-n1") -> Loan:
    """A loan as the ledger topic has it after its return."""
    rig = Rig()
    rig.see(lent(node("n1")))
    return replace(rig.loans["loan-n1"], id=name, phase=LoanPhase.RETURNED, closed_at=at)


def restored(*loans: Loan, alerts: tuple[RaiseAlert, ...] = (), cleared: tuple[ClearAlert, ...] = ()) -> Rig:
    rig = Rig()
    rig.tell(Restored(loans, (), (), (), (), synced=False, at=START, alerts=alerts, cleared=cleared))
    return rig


def at(rig: Rig, moment: datetime) -> list[Instruction]:
    """What is forgotten at a moment."""
    rig.now = moment
    return [item for item in rig.tell(TimePassed()) if isinstance(item, ForgetLoan | ForgetAlert)]


def test_a_closed_loan_leaves_memory_first_and_its_topic_later() -> None:
    rig = restored(closed())
    assert at(rig, START + IN_MEMORY) == []
    assert "loan-n1" in rig.loans
    assert at(rig, START + IN_MEMORY + SECOND) == []
    assert "loan-n1" not in rig.loans
    assert at(rig, START + ON_TOPICS) == []
    assert at(rig, START + ON_TOPICS + SECOND) == [ForgetLoan("loan-n1")]
    assert at(rig, START + ON_TOPICS + 2 * SECOND) == []


def test_a_loan_that_came_to_life_again_is_not_forgotten() -> None:
    rig = restored(closed())
    rig.now = START + timedelta(hours=1)
    rig.see(lent(node("n1"), due=START + timedelta(days=90)))
    assert rig.loans["loan-n1"].open
    assert at(rig, START + IN_MEMORY + SECOND) == []
    assert "loan-n1" in rig.loans
    assert at(rig, START + ON_TOPICS + SECOND) == []


def test_the_time_begins_anew_when_it_closes_again() -> None:
    rig = restored(closed())
    rig.now = START + timedelta(days=10)
    rig.see(lent(node("n1")))
    rig.lose("node", "uid-n1")
    assert at(rig, START + ON_TOPICS + SECOND) == []
    assert at(rig, START + timedelta(days=10) + ON_TOPICS + SECOND) == [ForgetLoan("loan-n1")]


def test_after_a_long_stop_the_past_is_forgotten_in_bounded_shares() -> None:
    keeping = Keeping()
    for index in range(A_PASS):
        keeping.loan_closed(f"l{index}", START)
    later = START + ON_TOPICS + SECOND
    shares = [[entry.what for entry in keeping.due(later)] for _ in range(3)]
    assert [len(share) for share in shares] == [A_PASS, A_PASS, 0]
    assert set(shares[0]) == {"loan-memory"}
    assert set(shares[1]) == {"loan"}


def test_a_loan_told_twice_waits_once() -> None:
    keeping = Keeping()
    keeping.loan_closed("a", START)
    keeping.loan_closed("a", START)
    assert [entry.what for entry in keeping.due(START + ON_TOPICS + SECOND)] == ["loan-memory", "loan"]


def refuse(rig: Rig) -> list[Instruction]:
    return [*rig.tell(PolicyRefused("pools: none", rig.now)), *rig.tell(TimePassed())]


def test_a_cleared_alert_is_forgotten_after_its_time() -> None:
    rig = Rig()
    (raised,) = (item for item in refuse(rig) if isinstance(item, RaiseAlert))
    rig.now += timedelta(hours=1)
    rig.tell(PolicyAdopted(policy(), "x"))
    assert ClearAlert(raised.id, rig.now) in rig.tell(TimePassed())
    cleared = rig.now
    assert at(rig, cleared + ON_TOPICS) == []
    assert at(rig, cleared + ON_TOPICS + SECOND) == [ForgetAlert(raised.id)]


def test_an_alert_that_stands_again_is_not_forgotten() -> None:
    rig = Rig()
    refuse(rig)
    rig.tell(PolicyAdopted(policy(), "x"), TimePassed())
    cleared = rig.now
    rig.now += timedelta(days=1)
    refuse(rig)
    assert at(rig, cleared + ON_TOPICS + SECOND) == []


def test_a_restart_keeps_the_time_of_a_cleared_alert() -> None:
    rig = restored(cleared=(ClearAlert("a", START),))
    assert at(rig, START + ON_TOPICS) == []
    assert at(rig, START + ON_TOPICS + SECOND) == [ForgetAlert("a")]


def test_an_alert_that_ended_while_we_were_away_is_cleared_after_a_restart() -> None:
    because = Because(Reason.OVERDUE, {"node": "n1", "overdue_seconds": 9})
    rig = restored(alerts=(RaiseAlert("a", "critical", "n1", "infer-a100", because, START),))
    rig.sync(node("n1"))
    assert ClearAlert("a", rig.now) in rig.tell(TimePassed())
