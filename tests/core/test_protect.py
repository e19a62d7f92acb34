"""Protect: every alert stands while its cause holds, is raised once, and is cleared when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.instructions import ClearAlert, RaiseAlert
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import OutcomeReported, PolicyAdopted, PolicyRefused, TimePassed
from rebalancer.core.units import Activity
from tests.core.away import away
from tests.core.build import OWNER_TAINT, START, Rig, gang, lent, node

POOL = "infer-a100"
DUE = START + timedelta(hours=6)


def alerts(rig: Rig) -> list[RaiseAlert]:
    """Alerts raised at this look."""
    return [item for item in rig.tell(TimePassed()) if isinstance(item, RaiseAlert)]


def raised(rig: Rig) -> list[tuple[str, str, str]]:
    return [(item.target, item.because.reason.value, item.severity) for item in alerts(rig)]


def cleared(rig: Rig) -> list[str]:
    return [item.id for item in rig.tell(TimePassed()) if isinstance(item, ClearAlert)]


def _overdue(rig: Rig) -> None:
    rig.now = DUE + timedelta(seconds=1)


def _squatted(rig: Rig) -> None:
    rig.see(*gang("squats", on=["n0"], reclaimable=False))


def _lost(rig: Rig) -> None:
    rig.now += timedelta(minutes=1)
    rig.see(node("n0", taints=()))
    rig.now += timedelta(minutes=4)


def _silent(rig: Rig) -> None:
    rig.busy()
    rig.now += timedelta(minutes=4)


def _unknown(rig: Rig) -> None:
    rig.judge(Activity.UNKNOWN, None, (), rig.now)


def _conflict(rig: Rig) -> None:
    rig.see(node("n1", quarantine="two models"))


def _registers_nothing(rig: Rig) -> None:
    _without(rig, starting=True, capacity=0)


def _loses_its_gpus(rig: Rig) -> None:
    _without(rig, capacity=8)


def _without(rig: Rig, **changes: Any) -> None:
    rig.see(node("n1", gpus=0, **changes))
    rig.tell(TimePassed())
    rig.now += timedelta(minutes=10)


def _contended(rig: Rig) -> None:
    why = Because(Reason.CONTENDED, {"node": "n1", "why": "a taint comes back"})
    rig.tell(OutcomeReported(Outcome("p", POOL, 2, "restore", "uid-n1", Result.BLOCKED, why, rig.now)))


def _barred(rig: Rig) -> None:
    there = rig.engine.state.inventory.nodes["uid-n0"]
    rig.see(replace(there, taints=(*there.taints, OWNER_TAINT)))


def _stuck(rig: Rig) -> None:
    why = Because(Reason.STUCK, {"pod": "ml/a-0", "seconds": 130})
    rig.tell(OutcomeReported(Outcome("p", POOL, 1, "evict", "ml/a", Result.BLOCKED, why, rig.now)))


def _split(rig: Rig) -> None:
    why = Because(Reason.GANG_SPLIT, {"gone": 1, "members": 2, "gang": "ml/a", "why": "a budget"})
    rig.tell(OutcomeReported(Outcome("p", POOL, 1, "evict", "ml/a", Result.BLOCKED, why, rig.now)))


def _blocked(rig: Rig) -> None:
    why = Because(Reason.BUDGET_BLOCKED, {"gang": "ml/a"})
    rig.tell(OutcomeReported(Outcome("p", POOL, 1, "evict", "ml/a", Result.BLOCKED, why, rig.now)))


def _refused(rig: Rig) -> None:
    rig.tell(PolicyRefused("pools: none", rig.now))


@pytest.mark.parametrize(
    ("cause", "alert"),
    [
        pytest.param(_overdue, ("n0", "overdue", "critical"), id="a loan past its due time"),
        pytest.param(_squatted, ("ml/squats-0", "squatter", "warning"), id="somebody who did not opt in"),
        pytest.param(_lost, ("n0", "loan-lost", "critical"), id="a loan that is lost"),
        pytest.param(_silent, (POOL, "telemetry-silent", "warning"), id="telemetry that fell silent"),
        pytest.param(_unknown, (POOL, "telemetry-silent", "warning"), id="telemetry that knows nothing"),
        pytest.param(_conflict, ("n1", "label-conflict", "warning"), id="labels that contradict"),
        pytest.param(_registers_nothing, ("n1", "node-not-usable", "warning"), id="a labelled node without GPUs"),
        pytest.param(_loses_its_gpus, ("n1", "node-not-usable", "warning"), id="GPUs none of which is allocatable"),
        pytest.param(_contended, ("n1", "contended", "warning"), id="a taint that somebody else keeps putting back"),
        pytest.param(_barred, ("n0", "contended", "warning"), id="the owner's taint put back on a lent node"),
        pytest.param(_stuck, ("ml/a", "stuck", "warning"), id="a pod that does not go"),
        pytest.param(_split, ("ml/a", "gang-split", "critical"), id="a gang that is split"),
        pytest.param(_blocked, ("ml/a", "budget-blocked", "warning"), id="an eviction that is blocked"),
        pytest.param(_refused, ("test", "invalid-policy", "warning"), id="a policy that was refused"),
    ],
)
def test_what_is_alerted(cause: Callable[[Rig], None], alert: tuple[str, str, str]) -> None:
    rig = away("n0")
    rig.sync(node("n1"), node("n2"))
    assert raised(rig) == []
    cause(rig)
    assert raised(rig) == [alert]
    rig.now += timedelta(seconds=1)
    assert raised(rig) == []


def test_a_loan_is_not_overdue_at_its_due_time() -> None:
    rig = away("n0")
    rig.now = DUE
    assert "overdue" not in [reason for _, reason, _ in raised(rig)]


def test_an_alert_keeps_its_id_and_since_when_it_stands_and_is_cleared_once() -> None:
    rig = away("n0")
    _squatted(rig)
    (first,) = alerts(rig)
    assert (first.since, first.pool) == (rig.now, POOL)
    rig.now += timedelta(minutes=5)
    assert alerts(rig) == []
    assert rig.engine.state.alerts[first.id].since == first.since
    rig.lose("pod", "uid-squats-0")
    rig.now += timedelta(seconds=1)
    assert cleared(rig) == [first.id]
    rig.now += timedelta(seconds=1)
    assert cleared(rig) == []


def test_a_policy_that_is_adopted_clears_the_alert_of_the_refused_one() -> None:
    rig = away("n0")
    _refused(rig)
    (alert,) = alerts(rig)
    rig.tell(PolicyAdopted(rig.engine.state.policy, "d"))
    assert cleared(rig) == [alert.id]


def test_telemetry_of_one_node_is_enough_to_be_heard() -> None:
    rig = away("n0")
    rig.sync(node("n1"), node("n2"))
    rig.judge(Activity.UNKNOWN, None, ["n1"], rig.now)
    rig.busy("n2")
    assert raised(rig) == []


@pytest.mark.parametrize(
    ("changes", "minutes"),
    [
        pytest.param({"starting": True}, 60, id="a starting node whose GPUs are there"),
        pytest.param({"gpus": 0, "capacity": 0, "starting": True}, 9, id="one that has just begun"),
        pytest.param({"gpus": 0}, 9, id="one whose plugin restarts"),
        pytest.param({"gpus": 0, "capacity": 0}, 60, id="one that was never to have GPUs"),
    ],
)
def test_a_node_is_given_time_to_register_its_gpus(changes: dict[str, Any], minutes: int) -> None:
    rig = away("n0")
    rig.see(node("n1", **changes))
    assert raised(rig) == []
    rig.now += timedelta(minutes=minutes)
    assert raised(rig) == []


def test_a_node_that_had_its_gpus_in_between_is_given_its_time_anew() -> None:
    rig = away("n0")
    rig.see(node("n1", gpus=0))
    assert raised(rig) == []
    rig.now += timedelta(minutes=9)
    rig.see(node("n1"))
    assert raised(rig) == []
    rig.see(node("n1", gpus=0))
    rig.now += timedelta(minutes=1)
    assert raised(rig) == []
    rig.now += timedelta(minutes=10)
    assert raised(rig) == [("n1", "node-not-usable", "warning")]


def test_the_alert_of_a_node_without_gpus_goes_on_standing_after_a_restart() -> None:
    rig = away("n0")
    _loses_its_gpus(rig)
    (alert,) = alerts(rig)
    again = away("n0")
    again.now = rig.now
    again.engine.state.recall_alerts([alert], [])
    again.see(node("n1", gpus=0))
    assert cleared(again) == []
    assert alert.id in again.engine.state.alerts


def test_opted_in_pods_on_a_lent_node_are_no_squatters() -> None:
    assert raised(away("n0", pods=gang("a", on=["n0"]))) == []


def test_a_loan_found_again_ends_the_alert_of_its_loss() -> None:
    rig = away("n0")
    _lost(rig)
    (alert,) = alerts(rig)
    rig.now += timedelta(seconds=1)
    rig.see(lent(node("n0", taints=(OWNER_TAINT,))))
    assert cleared(rig) == [alert.id]
