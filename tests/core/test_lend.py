"""Lend: which nodes go to whom. All or none for a gang, deducted within one pass, and never to spare room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Requirement, Toleration
from rebalancer.core.look import Look, look
from rebalancer.core.methods import lend
from rebalancer.core.plan import LendNode, Method, Plan, Result
from rebalancer.core.policy import Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import Fact
from rebalancer.core.underway import Draft
from rebalancer.core.units import ON_LOAN, Mode, OwnerClass
from tests.core.build import OWNER_TAINT, START, Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"
FREE = pool_policy(floor_nodes=0, floor_share=0.0)


def fleet(*facts: Fact, size: int = 6, chosen: Any = None) -> Rig:
    rig = Rig(chosen or policy(FREE))
    rig.sync(*(node(f"n{index}") for index in range(size)), *facts)
    rig.idle()
    return rig


def seen(rig: Rig, lendable: float) -> Look:
    found = look(rig.engine.state, POOL, [], rig.now)
    assert found is not None
    return replace(found, lendable=lendable)


def drafts(rig: Rig, lendable: float = 48.0) -> list[Draft]:
    return list(lend.propose(rig.engine.state, seen(rig, lendable), rig.now))


def lent_to(made: Sequence[Draft | Plan]) -> dict[str, list[str]]:
    """Gang -> nodes."""
    found: dict[str, list[str]] = {}
    for item in made:
        for step in item.steps:
            assert isinstance(step, LendNode)
            found.setdefault(step.gang, []).append(step.node_name)
    return found


def blocker(rig: Rig) -> Reason | None:
    because = rig.engine.state.watches[POOL].borrower
    return because.reason if because is not None else None


def test_one_node_for_a_gang_of_one_with_its_because_and_its_due_time() -> None:
    (draft,) = drafts(fleet(*gang("a")))
    assert (draft.pool, draft.method, draft.because.reason) == (POOL, Method.LEND, Reason.IDLE_PROVEN)
    assert draft.because.numbers.items() >= {
        "gpus": 8, "node": "n0", "idle_minutes": 60.0, "spare_nodes": 6, "gang": "ml/a",
        "due": "2026-03-03T06:00+00:00",
    }.items()  # fmt: skip
    (step,) = draft.steps
    assert isinstance(step, LendNode)
    due = START + timedelta(hours=8)
    assert (step.node, step.lender, step.borrower, step.gpus) == ("uid-n0", POOL, OwnerClass.TRAINING, 8)
    assert (step.due, step.recall_at, step.owner_taint) == (due, due - timedelta(minutes=20), OWNER_TAINT)


def test_a_node_without_the_owner_taint_gets_none_back() -> None:
    rig = Rig(policy(FREE))
    rig.sync(node("n0", taints=()), *gang("a"))
    rig.idle()
    (step,) = drafts(rig)[0].steps
    assert isinstance(step, LendNode)
    assert step.owner_taint is None


@pytest.mark.parametrize(
    ("pods", "gpus", "lendable", "nodes"),
    [
        pytest.param(4, 8, 48, 4, id="a node for each member"),
        pytest.param(4, 4, 48, 2, id="two members a node"),
        pytest.param(3, 8, 24, 3, id="exactly what is spare"),
        pytest.param(4, 8, 31.9, 0, id="a GPU too few is none at all"),
        pytest.param(7, 8, 99, 0, id="more nodes than there are is none at all"),
    ],
)
def test_a_gang_that_needs_several_nodes_gets_all_or_none(pods: int, gpus: int, lendable: float, nodes: int) -> None:
    made = drafts(fleet(*gang("a", pods=pods, gpus=gpus)), lendable)
    assert [len(found) for found in lent_to(made).values()] == ([nodes] if nodes else [])
    assert len(made) == (1 if nodes else 0)


@pytest.mark.parametrize(
    ("pods", "lendable", "reason"),
    [(4, 24, Reason.HEADROOM), (7, 99, Reason.TOO_LARGE)],
    ids=["what inference keeps", "what there is at all"],
)
def test_why_a_large_gang_gets_nothing(pods: int, lendable: float, reason: Reason) -> None:
    rig = fleet(*gang("a", pods=pods))
    assert drafts(rig, lendable) == []
    assert blocker(rig) is reason


def test_a_gang_larger_than_a_cap_is_not_told_that_inference_needs_the_room() -> None:
    rig = fleet(*gang("a", pods=3), chosen=policy(FREE, pace=Pace(nodes_per_pool=2)))
    assert drafts(rig, 99) == []
    assert blocker(rig) is Reason.TOO_LARGE


def test_what_one_gang_takes_is_deducted_for_the_next() -> None:
    """F46."""
    rig = fleet(*gang("a", pods=3), *gang("b", pods=3), *gang("c", pods=1))
    made = drafts(rig, 40)
    assert lent_to(made) == {"ml/a": ["n0", "n1", "n2"], "ml/c": ["n3"]}
    assert [(item.target, item.because.reason) for item in made[1].alternatives] == [("ml/b", Reason.HEADROOM)]


def test_the_cap_of_nodes_is_deducted_too() -> None:
    chosen = policy(FREE, pace=Pace(nodes_per_pool=2))
    assert lent_to(drafts(fleet(*gang("a"), *gang("b"), *gang("c"), chosen=chosen))) == {"ml/a": ["n0"], "ml/b": ["n1"]}


def test_nodes_of_unequal_size_never_exceed_what_is_spare() -> None:
    rig = Rig(policy(FREE))
    rig.sync(node("n0", gpus=4), node("n1"), node("n2"), *gang("a", pods=3, gpus=4))
    rig.idle()
    assert lent_to(drafts(rig, 12.0)) == {"ml/a": ["n0", "n1"]}
    assert drafts(rig, 11.0) == []


def test_a_small_gang_moves_into_what_the_gang_before_it_left() -> None:
    """One node for both: the second loan is not needed."""
    made = drafts(fleet(*gang("a", gpus=4, priority=1), *gang("b", gpus=4)))
    assert lent_to(made) == {"ml/a": ["n0"]}


@pytest.mark.parametrize(
    ("room", "borrows"),
    [
        pytest.param(node("t0", pool="train-a100"), False, id="a free training node"),
        pytest.param(lent(node("n9")), False, id="a lent node that stays"),
        pytest.param(node("t0", pool="train-a100", cordoned=True), True, id="a cordoned training node"),
        pytest.param(node("t0", pool="train-l20", labels={"gpu-model": "T4"}), True, id="a node it does not declare"),
    ],
)
def test_a_gang_that_the_scheduler_can_place_without_us_borrows_nothing(room: Any, borrows: bool) -> None:
    made = drafts(fleet(room, *gang("a")))
    assert bool(made) is borrows


def test_a_lent_node_on_its_way_home_is_no_room() -> None:
    rig = fleet(lent(node("n9")), *gang("a"))
    rig.engine.state.busy_nodes["uid-n9"] = "plan"
    assert lent_to(drafts(rig)) == {"ml/a": ["n0"]}


def test_room_elsewhere_is_given_once() -> None:
    rig = fleet(node("t0", pool="train-a100"), *gang("a"), *gang("b"))
    assert lent_to(drafts(rig)) == {"ml/b": ["n0"]}


def test_free_inference_nodes_are_no_room_for_training() -> None:
    assert lent_to(drafts(fleet(*gang("a"), size=1))) == {"ml/a": ["n0"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"reclaimable": False}, Reason.NOT_RECLAIMABLE, id="not reclaimable"),
        pytest.param({"node_terms": ()}, Reason.MODEL_MISMATCH, id="declares no model"),
        pytest.param(
            {"node_terms": ((Requirement("gpu-model", "In", ("H100",)),),)}, Reason.MODEL_MISMATCH, id="another model"
        ),
    ],
)
def test_the_reason_why_nobody_may_borrow_is_kept(changes: dict[str, Any], reason: Reason) -> None:
    rig = fleet(*gang("a", **changes))
    assert drafts(rig) == []
    assert blocker(rig) is reason


def test_a_gang_that_can_be_helped_clears_the_blocker_of_the_one_before() -> None:
    rig = fleet(*gang("a", reclaimable=False, priority=9), *gang("b"))
    assert lent_to(drafts(rig)) == {"ml/b": ["n0"]}
    assert blocker(rig) is None


def test_a_pool_that_does_not_lend_proposes_nothing() -> None:
    assert drafts(fleet(*gang("a"), chosen=policy(pool_policy(lends_to=())))) == []


def test_only_the_named_classes_borrow() -> None:
    taint = (Toleration(ON_LOAN, "Equal", "batch"),)
    rig = fleet(*gang("a", owner=OwnerClass.BATCH, tolerations=taint))
    assert drafts(rig) == []
    both = policy(replace(FREE, lends_to=(OwnerClass.TRAINING, OwnerClass.BATCH)))
    (draft,) = drafts(fleet(*gang("a", owner=OwnerClass.BATCH, tolerations=taint), chosen=both))
    (step,) = draft.steps
    assert isinstance(step, LendNode)
    assert step.borrower is OwnerClass.BATCH


def test_a_pool_wide_refusal_is_remembered_until_it_is_over() -> None:
    rig = fleet(*gang("a"), chosen=policy(pool_policy(windows=())))
    assert drafts(rig) == []
    refusal = rig.engine.state.watches[POOL].refusal
    assert refusal == Because(Reason.WINDOW_CLOSED, {"pool": POOL})


def test_alternatives_told_are_bounded() -> None:
    refused = [pod for i in range(12) for pod in gang(f"r{i:02}", reclaimable=False, priority=5)]
    (draft,) = drafts(fleet(*refused, *gang("a")))
    assert [item.target for item in draft.alternatives] == [f"ml/r{i:02}" for i in range(4, 12)]


# -- through the engine --------------------------------------------------------------------------------------


def lends(plans: list[Plan]) -> list[Plan]:
    return [plan for plan in plans if plan.method is Method.LEND]


def test_spare_is_the_minimum_over_a_dwell() -> None:
    """A pool that was full a moment ago lends nothing, and a pool not yet watched for a dwell neither."""
    rig = fleet(replica("chat", on="n0"), *gang("a"))
    early = lends(rig.watch(19))
    assert early == []
    assert len(lends(rig.watch(3))) == 1


def test_a_rise_within_the_dwell_is_kept_for_inference() -> None:
    rig = fleet(*gang("a", pods=6), size=6)
    rig.see(*(replica(f"chat-{index}", on=f"n{index}") for index in range(3)))
    assert lends(rig.watch(25)) == []


def test_a_gang_is_lent_to_once_while_its_plan_is_open() -> None:
    rig = fleet(*gang("a", pods=2))
    made = lends(rig.watch(25))
    assert [len(plan.steps) for plan in made] == [2]
    assert {rig.loans[step.loan].phase.value for step in made[0].steps if isinstance(step, LendNode)} == {"opening"}


def test_a_refused_loan_is_undone_and_its_node_rests() -> None:
    rig = fleet(node("n1", opted_out=True), *gang("a"), size=1)
    (plan,) = lends(rig.watch(25))
    rig.report(plan, Result.REFUSED)
    assert lends(rig.watch(18)) == []
    rig.idle()
    assert len(lends(rig.watch(4))) == 1


def test_in_shadow_the_loan_is_virtual_and_no_node_is_touched() -> None:
    rig = fleet(*gang("a"), chosen=policy(replace(FREE, mode=Mode.SHADOW)))
    (plan,) = lends(rig.watch(25))
    (loan,) = rig.loans.values()
    assert (plan.mode, loan.virtual, loan.phase.value) == (Mode.SHADOW, True, "on-loan")
    assert not rig.engine.state.touched


def test_a_gang_whose_loan_is_told_before_its_mark_is_seen_is_not_lent_to_again() -> None:
    """Topics have no common order: the outcome may overtake the node."""
    rig = fleet(*gang("a"))
    (plan,) = lends(rig.watch(25))
    rig.report(plan)
    rig.idle()
    assert lends(rig.watch(2)) == []


def test_a_gang_whose_room_another_took_goes_where_the_other_was_to_go_instead_of_being_lent_to_again() -> None:
    first, second = gang("a"), gang("b")
    rig = fleet(*first, *second)
    rig.watch(1)
    plans = [plan for plan in rig.watch() if plan.method is Method.LEND]
    assert lent_to(plans) == {"ml/a": ["n0"], "ml/b": ["n1"]}
    (step,) = plans[0].steps
    assert isinstance(step, LendNode)
    rig.see(lent(rig.engine.state.inventory.nodes["uid-n0"], due=step.due, loan=step.loan, opened_at=rig.now))
    rig.report(plans[0])
    rig.see(replace(second[0], node="n0"))  # the scheduler knows nothing of what was meant for whom
    assert lent_to(drafts(rig)) == {}
    (step,) = plans[1].steps
    assert isinstance(step, LendNode)
    rig.see(lent(rig.engine.state.inventory.nodes["uid-n1"], due=step.due, loan=step.loan, opened_at=rig.now))
    rig.report(plans[1])
    assert lent_to(drafts(rig)) == {}
