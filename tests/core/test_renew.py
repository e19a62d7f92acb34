"""Renewal: when a loan that would have to come home goes on, what keeps it from that, and what the ledger says then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Control, Node
from rebalancer.core.plan import Method, Plan, Result
from rebalancer.core.policy import Borrowing
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import DemandReported, FactObserved, Restored, Stimulus, StreamLagged
from rebalancer.core.telemetry import DemandSample
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window
from tests.core.build import START, ZONE, Rig, budget, gang, lent, node, policy, pool_policy, replica

DUE = START + timedelta(hours=1)
BORROWING = Borrowing(max_loan=timedelta(hours=1))


def away(names: Sequence[str] = ("n1",), **changes: Any) -> Rig:
    """Four nodes of which some are lent until DUE to one gang, quiet for so long that their return is near."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0, **changes), borrowing=BORROWING))
    home = [node(name) for name in ("n1", "n2", "n3", "n4") if name not in names]
    rig.sync(*home, *(lent(node(name), due=DUE) for name in names), *gang("a", len(names), on=names))
    rig.idle()
    assert rig.watch(30) == []
    return rig


def until_due(rig: Rig, *, heartbeat: bool = True) -> list[Plan]:
    """Plans until the return has to begin, and a minute more."""
    return [plan for _ in range(10) for plan in rig.pass_time(heartbeat=heartbeat)]


def methods(plans: Sequence[Plan]) -> list[Method]:
    return [plan.method for plan in plans]


def renewal(rig: Rig) -> Plan:
    """The first renewal, the moment it is made."""
    for _ in range(10):
        made = rig.pass_time()
        if made:
            assert methods(made) == [Method.RENEW]
            return made[0]
    pytest.fail("no renewal")


def test_a_loan_goes_on_for_as_long_as_a_new_one_would() -> None:
    rig = away()
    plan = renewal(rig)
    assert plan.because.reason is Reason.LOAN_RENEWED
    (step,) = plan.steps
    assert step.kind == "renew"
    assert step.loan == "loan-n1"
    assert step.due == rig.now + timedelta(hours=1)
    assert step.recall_at == step.due - timedelta(minutes=20)
    assert plan.valid_until == rig.now + timedelta(seconds=60)


def test_a_renewed_loan_is_left_alone_until_its_new_due_time_is_near() -> None:
    rig = away()
    plan = renewal(rig)
    rig.report(plan)
    loan = rig.loans["loan-n1"]
    assert (loan.due, loan.renewed_at) == (plan.steps[0].due, rig.now)  # type: ignore[union-attr]  # a renewal
    assert rig.engine.state.busy_nodes == {}
    rig.idle()
    assert rig.watch(30) == []


def test_the_actor_is_awaited_before_anything_else_is_planned_for_the_node() -> None:
    rig = away()
    renewal(rig)
    assert rig.plans() == []
    assert rig.pass_time(0.9) == []


@pytest.mark.parametrize("result", [Result.REFUSED, Result.STALE, Result.EXPIRED, Result.CANCELLED])
def test_what_act_does_not_renew_comes_home_at_once(result: Result) -> None:
    rig = away()
    rig.report(renewal(rig), result)
    assert methods(rig.plans()) == [Method.RETURN]


def test_one_refusal_does_not_wait_for_the_other_steps() -> None:
    rig = away(("n1", "n2"))
    plan = renewal(rig)
    assert [step.kind for step in plan.steps] == ["renew", "renew"]
    rig.report(replace(plan, steps=plan.steps[:1]), Result.REFUSED)
    (home,) = rig.plans()
    assert home.method is Method.RETURN
    assert [step.node_name for step in home.steps if step.kind == "close"] == ["n1"]


def test_a_renewal_that_nobody_answers_is_given_up_in_time() -> None:
    rig = away()
    renewal(rig)
    rig.pass_time(1.0)
    assert methods(rig.pass_time(0.1)) == [Method.RETURN]


Change = Callable[[Rig], None]


def _cordon(rig: Rig, **changes: Any) -> None:
    rig.see(replace(rig.engine.state.inventory.nodes["uid-n1"], **changes))


def _told(rig: Rig, stimulus: Stimulus) -> None:
    rig.tell(stimulus)


def _left(rig: Rig) -> None:
    rig.lose("pod", "uid-a-0")


def _late_gang(rig: Rig, **changes: Any) -> None:
    (pod,) = rig.engine.state.inventory.gang_pods("ml/a")
    rig.see(replace(pod, **changes))


OBSTACLES: dict[str, Change] = {
    "paused": lambda rig: rig.see(Control(paused=True)),
    "the pool is paused": lambda rig: rig.see(Control(paused_pools=("infer-a100",))),
    "retired": lambda rig: rig.see(Control(retired=True)),
    "recalled": lambda rig: rig.see(Control(recall_nodes=("n1",))),
    "the streams are behind": lambda rig: _told(rig, StreamLagged(behind=True, lag_seconds=90.0)),
    "the node is cordoned": lambda rig: _cordon(rig, cordoned=True),
    "the node opted out": lambda rig: _cordon(rig, opted_out=True),
    "nobody uses the node": _left,
    "a budget could never let the gang go": lambda rig: rig.see(budget("b", "a", 0, min_available=8, expected=8)),
    "two budgets cover the gang": lambda rig: rig.see(budget("b", "a", 1), budget("c", "a", 1)),
    "the gang would leave too slowly": lambda rig: _late_gang(rig, grace_seconds=1200),
    "the gang is not reclaimable any more": lambda rig: _late_gang(rig, reclaimable=False),
    "demand leaves nothing to spare": lambda rig: _told(
        rig, DemandReported(DemandSample("infer-a100", 25.0, rig.now, "test"))
    ),
}


@pytest.mark.parametrize("change", OBSTACLES.values(), ids=OBSTACLES)
def test_what_keeps_a_loan_from_going_on(change: Change) -> None:
    rig = away()
    change(rig)
    made = until_due(rig)
    assert Method.RENEW not in methods(made)
    assert [step.kind for plan in made for step in plan.steps if step.kind == "restore"] == ["restore"]


def test_a_blind_pool_renews_nothing() -> None:
    rig = away()
    assert methods(until_due(rig, heartbeat=False)) == [Method.RETURN]


def test_nothing_goes_on_while_replicas_wait() -> None:
    rig = away(("n1", "n2", "n3", "n4"))
    rig.see(replica("r"))
    assert Method.RENEW not in methods(until_due(rig))


def test_a_window_that_closes_is_not_outlived() -> None:
    night = Window("night", ZONE, START.time(), DUE.time())
    rig = away(windows=(night,))
    assert methods(until_due(rig)) == [Method.RETURN]


def test_a_window_that_was_prolonged_is_used_to_its_end() -> None:
    end = DUE + timedelta(minutes=15)
    rig = away(windows=(Window("night", ZONE, START.time(), end.time()),))
    assert [step.due for step in renewal(rig).steps if step.kind == "renew"] == [end]


def test_a_class_that_may_not_borrow_any_more_goes_home() -> None:
    assert methods(until_due(away(lends_to=(OwnerClass.BATCH,)))) == [Method.RETURN]


def test_a_gang_goes_on_with_all_its_nodes_or_none() -> None:
    rig = away(("n1", "n2"))
    rig.see(Control(recall_nodes=("n2",)))
    assert Method.RENEW not in methods(until_due(rig))


def test_a_shadow_loan_goes_on_in_the_ledger_at_once() -> None:
    rig = away(("n1",), mode=Mode.SHADOW)
    loan = replace(rig.loans["loan-n1"], id="v", node="uid-n4", node_name="n4", mode=Mode.SHADOW)
    rig.tell(Restored((loan,), (), (), (), (), synced=True, at=rig.now))
    made = [plan for plan in until_due(rig) if plan.method is Method.RENEW]
    assert made
    assert made[0].mode is Mode.SHADOW
    assert rig.loans["v"].due > DUE


# -- what the node's mark says ---------------------------------------------------------------------------------


def marked(rig: Rig, minutes: float, seen_after: float = 0.0) -> None:
    """The node's mark says DUE and so many minutes, in a fact from so many minutes after now."""
    old = rig.engine.state.inventory.nodes["uid-n1"]
    later = DUE + timedelta(minutes=minutes)
    fresh: Node = lent(node("n1"), due=later, opened_at=old.loan.opened_at if old.loan else START)
    rig.tell(FactObserved(fresh, rig.now + timedelta(minutes=seen_after)))


def test_a_later_due_time_in_the_mark_holds_whoever_wrote_it() -> None:
    rig = away()
    marked(rig, 30)
    assert rig.loans["loan-n1"].due == DUE + timedelta(minutes=30)


def test_the_outcome_and_the_mark_may_come_in_any_order() -> None:
    dues = []
    for mark_first in (True, False):
        rig = away()
        plan = renewal(rig)
        (step,) = plan.steps
        assert step.kind == "renew"
        more = (step.due - DUE).total_seconds() / 60
        if mark_first:
            marked(rig, more)
        rig.report(plan)
        if not mark_first:
            marked(rig, more)
        dues.append(rig.loans["loan-n1"].due)
    assert dues[0] == dues[1] > DUE


def test_an_old_mark_does_not_undo_a_renewal() -> None:
    rig = away()
    rig.report(renewal(rig))
    renewed = rig.loans["loan-n1"].due
    marked(rig, 0, seen_after=1.0)
    assert rig.loans["loan-n1"].due == renewed > DUE


def test_a_mark_that_is_surely_newer_may_shorten_a_loan() -> None:
    rig = away()
    rig.report(renewal(rig))
    marked(rig, 5, seen_after=3.0)
    assert rig.loans["loan-n1"].due == DUE + timedelta(minutes=5)


def test_a_restart_keeps_the_new_due_time() -> None:
    rig = away()
    plan = renewal(rig)
    rig.report(plan)
    again = Rig(rig.engine.state.policy, now=rig.now)
    again.tell(Restored((rig.loans["loan-n1"],), (), (), (plan,), (), synced=True, at=rig.now))
    again.see(lent(node("n1"), due=DUE))
    again.report(plan)
    assert again.loans["loan-n1"] == rig.loans["loan-n1"]
