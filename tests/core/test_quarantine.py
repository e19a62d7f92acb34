"""Nodes that bear our taint and no mark of their own: told at once, never lent, no supply, repaired after a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Control, Node, Taint
from rebalancer.core.instructions import ClearAlert, RaiseAlert
from rebalancer.core.methods.refusals import refuses
from rebalancer.core.plan import Method, Plan, Result
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import TimePassed
from rebalancer.core.units import CLOSING, ON_LOAN, Mode
from tests.core.build import OWNER_TAINT, START, Rig, gang, lent, node, policy, pool_policy, replica


def stray(name: str = "n1", key: str = ON_LOAN, **changes: Any) -> Node:
    """A node with our taint in the owner's place (closing: beside it), and no mark."""
    taints = (Taint(ON_LOAN, "training"),) if key == ON_LOAN else (OWNER_TAINT, Taint(CLOSING))
    return node(name, taints=taints, **changes)


def copied(name: str = "n1") -> Node:
    """A node that bears the mark of the one it replaced."""
    return lent(node(name), node_uid="uid-before")


KINDS = {"on-loan": stray(), "closing": stray(key=CLOSING), "a copied mark": copied()}


def rig_with(*facts: Node, **changes: Any) -> Rig:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0, **changes)))
    rig.sync(*facts, node("n2"), node("n3"))
    rig.idle()
    return rig


def alerts(rig: Rig) -> list[RaiseAlert]:
    found = rig.engine.state.alerts.values()
    return [alert for alert in found if alert.because.reason is Reason.NODE_QUARANTINED]


def repairs(rig: Rig, minutes: int) -> list[Plan]:
    return [plan for _ in range(minutes) for plan in rig.pass_time() if plan.method is Method.RETURN]


@pytest.mark.parametrize("bad", KINDS.values(), ids=KINDS)
def test_a_stray_is_told_at_once_and_is_no_supply(bad: Node) -> None:
    rig = rig_with(bad)
    rig.plans()
    assert [alert.target for alert in alerts(rig)] == ["n1"]
    assert rig.engine.state.open_loans() == []
    totals = rig.engine.state.inventory.totals("infer-a100")
    assert (totals.owned, totals.usable, totals.unusable, totals.away) == (24, 16, 8, 0)


@pytest.mark.parametrize("bad", KINDS.values(), ids=KINDS)
def test_a_stray_is_not_lent(bad: Node) -> None:
    rig = rig_with(bad)
    rig.see(*gang("a", 3))
    made = rig.watch(9)
    assert not [step for plan in made for step in plan.steps if step.kind == "lend" and step.node_name == "n1"]
    why = refuses(rig.engine.state, rig.engine.state.inventory.nodes["uid-n1"], rig.now)
    assert why is not None
    assert why.reason is Reason.NODE_QUARANTINED


LACKING = {"on-loan": OWNER_TAINT, "closing": None, "a copied mark": OWNER_TAINT}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_made_its_owners_again_after_a_while(kind: str) -> None:
    rig = rig_with(KINDS[kind])
    assert repairs(rig, 9) == []
    (plan,) = repairs(rig, 1)
    (step,) = plan.steps
    assert step.kind == "restore"
    assert (step.loan, step.node_name, step.owner_taint) == ("", "n1", LACKING[kind])
    assert (plan.because.reason, plan.pressing) == (Reason.NODE_QUARANTINED, False)
    assert repairs(rig, 5) == [], "the actor is at it"
    assert alerts(rig) == [], "it is in transit now"


def test_once_repaired_the_alert_is_over_and_the_node_rests() -> None:
    rig = rig_with(stray())
    (plan,) = repairs(rig, 10)
    rig.report(plan)
    rig.see(node("n1"))
    answers = rig.tell(TimePassed())
    assert alerts(rig) == []
    assert rig.engine.state.strays == {}
    assert [item.kind for item in answers if isinstance(item, ClearAlert)] in ([], ["clear-alert"])
    rig.idle()
    why = refuses(rig.engine.state, rig.engine.state.inventory.nodes["uid-n1"], rig.now)
    assert why is not None
    assert why.reason is Reason.RESTING


def test_a_repair_that_failed_is_tried_again_after_the_same_while() -> None:
    rig = rig_with(stray())
    (plan,) = repairs(rig, 10)
    rig.report(plan, Result.REFUSED)
    assert repairs(rig, 9) == []
    assert alerts(rig) != []
    assert len(repairs(rig, 1)) == 1


def test_a_plan_that_was_just_over_does_not_make_an_alert_flicker() -> None:
    rig = rig_with(stray())
    (plan,) = repairs(rig, 10)
    rig.report(plan)
    rig.plans()
    assert alerts(rig) == []
    rig.pass_time(0.1)
    assert alerts(rig) != []


HOLDS: dict[str, Callable[[Rig], None]] = {
    "somebody else's pod sits there": lambda rig: rig.see(*gang("a", on=["n1"])),
    "lending is paused": lambda rig: rig.see(Control(paused=True)),
    "the pool is paused": lambda rig: rig.see(Control(paused_pools=("infer-a100",))),
    "the pool is in shadow": lambda rig: rig.see(Control(modes={"infer-a100": Mode.SHADOW})),
}


@pytest.mark.parametrize("change", HOLDS.values(), ids=HOLDS)
def test_what_keeps_it_from_being_repaired_keeps_the_alert(change: Callable[[Rig], None]) -> None:
    rig = rig_with(stray())
    change(rig)
    assert repairs(rig, 15) == []
    assert [alert.target for alert in alerts(rig)] == ["n1"]


def test_its_owners_pods_may_stay() -> None:
    rig = rig_with(stray())
    rig.see(replica("r", on="n1"))
    assert len(repairs(rig, 10)) == 1


def test_whoever_retires_us_leaves_nothing_behind() -> None:
    rig = rig_with(stray())
    rig.see(Control(retired=True))
    assert len(repairs(rig, 10)) == 1


def test_a_node_on_its_way_to_a_borrower_is_in_transit() -> None:
    rig = rig_with(node("n1"))
    rig.see(*gang("a"))
    made = (rig.pass_time() for _ in range(40))
    plan = next(plan for plans in made for plan in plans if plan.method is Method.LEND)
    (step,) = plan.steps
    assert step.kind == "lend"
    rig.see(stray(step.node_name, CLOSING))
    rig.plans()
    assert alerts(rig) == []
    why = refuses(rig.engine.state, rig.engine.state.inventory.nodes[step.node], rig.now)
    assert why is not None
    assert why.reason is Reason.IN_TRANSIT


def test_a_loan_whose_mark_went_missing_is_lost_then_repaired_then_over() -> None:
    rig = rig_with(lent(node("n1")))
    rig.pass_time(1)
    rig.see(stray())
    rig.plans()
    assert alerts(rig) == []
    rig.pass_time(4)
    assert rig.loans["loan-n1"].phase.value == "lost"
    assert alerts(rig) != []
    (plan,) = repairs(rig, 7)
    rig.report(plan)
    assert rig.loans["loan-n1"].phase.value == "returned"


def test_a_replaced_node_ends_the_loan_of_the_one_before() -> None:
    rig = rig_with(lent(node("n1")))
    rig.pass_time(1)
    rig.see(replace(copied(), uid="uid-n1-new", loan=lent(node("n1")).loan))
    rig.plans()
    assert rig.loans["loan-n1"].phase.value == "node-gone"
    assert [alert.because.numbers["why"] for alert in alerts(rig)] == ["its mark belongs to another node"]


def test_the_while_begins_when_the_node_was_first_seen_so() -> None:
    rig = rig_with(stray())
    rig.now += timedelta(minutes=9)
    rig.see(replace(stray(), labels={"gpu-model": "A100", "node-pool": "infer-a100", "x": "y"}))
    assert rig.engine.state.strays["uid-n1"].since == START
