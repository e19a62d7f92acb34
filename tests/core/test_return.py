"""Return: loans come home because they fall due or a person said so, the last gang out on time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest

from rebalancer.core.facts import Control
from rebalancer.core.loans import LoanPhase
from rebalancer.core.methods.return_ import start_of_return
from rebalancer.core.plan import EvictGang, Method, Plan, Result
from rebalancer.core.policy import Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import RecallRequested
from tests.core.away import away
from tests.core.build import START, Rig, budget, gang, lent, node, policy, pool_policy

POOL = "infer-a100"


def fleet(*due: float, pools: tuple[str, ...] = (POOL,), **pace: Any) -> Rig:
    """Lent nodes, each with a gang, due in so many minutes."""
    named = [pool_policy(name, floor_nodes=0, floor_share=0.0) for name in pools]
    rig = Rig(policy(*named, pace=Pace(**pace)))
    nodes = [
        lent(node(f"n{index}", pool=pools[index % len(pools)]), due=START + timedelta(minutes=minutes))
        for index, minutes in enumerate(due)
    ]
    rig.sync(*nodes, *(pod for index in range(len(due)) for pod in gang(f"g{index}", on=[f"n{index}"])))
    return rig


def closed(plans: list[Plan]) -> list[list[str]]:
    return [
        [step.node_name for step in plan.steps if step.kind == "close"]
        for plan in plans
        if plan.method is Method.RETURN
    ]


@pytest.mark.parametrize(
    ("minutes", "starts"),
    [(21.1, False), (21.0, True), (5, True), (-5, True)],
    ids=["before its time", "the return time and a minute before due", "late", "overdue"],
)
def test_a_loan_starts_home_its_return_time_before_it_is_due(minutes: float, starts: bool) -> None:
    """G14: twenty minutes until return times are learnt, and a minute's margin."""
    rig = fleet(120)
    rig.now = START + timedelta(minutes=120 - minutes)
    assert closed(rig.plans()) == ([["n0"]] if starts else [])


def test_the_because_and_the_deadline_of_a_return() -> None:
    rig = fleet(20)
    (plan,) = rig.plans()
    assert plan.because == Because(
        Reason.LOAN_DUE, {"node": "n0", "due": "2026-03-02T22:20+00:00", "return_seconds": 1200.0}
    )
    assert (plan.method, plan.pressing) == (Method.RETURN, True)
    (evict,) = [step for step in plan.steps if isinstance(step, EvictGang)]
    assert (evict.not_before, evict.deadline) == (START, START + timedelta(minutes=20))


def test_what_is_overdue_has_to_be_gone_now() -> None:
    rig = fleet(20)
    rig.now += timedelta(hours=1)
    (plan,) = rig.plans()
    assert [step.deadline for step in plan.steps if isinstance(step, EvictGang)] == [rig.now]


def test_a_learnt_return_time_counts() -> None:
    rig = fleet(20)
    rig.engine.state.returns[POOL] = [240.0, 300.0]  # type: ignore[assignment]  # read only here
    assert closed(rig.plans()) == []
    rig.now = START + timedelta(minutes=14)
    assert closed(rig.plans()) == [["n0"]]


def test_a_gang_that_takes_longer_to_leave_is_given_its_time() -> None:
    rig = away("n0", pods=gang("slow", on=["n0"], grace_seconds=900, notice_seconds=600))
    loan = rig.loans["loan-n0"]
    assert start_of_return(rig.engine.state, POOL, loan, 0) == loan.due - timedelta(minutes=26)


@pytest.mark.parametrize(
    ("later", "spans"),
    [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)],
    ids=["alone", "one more", "a batch more", "a batch and one more", "two batches more"],
)
def test_a_batch_starts_a_span_earlier_for_each_batch_that_comes_later(later: int, spans: int) -> None:
    rig = fleet(120, nodes_per_pool=2)
    loan = rig.loans["loan-n0"]
    started = start_of_return(rig.engine.state, POOL, loan, later)
    assert started == loan.due - timedelta(minutes=21 + 10 * spans)


def starts(rig: Rig, minutes: int) -> dict[str, datetime]:
    """When each node starts home."""
    found: dict[str, datetime] = {}
    for _ in range(minutes):
        for names in closed(rig.pass_time(1)):
            found |= dict.fromkeys(names, rig.now)
    return found


def test_a_pool_whose_loans_are_due_together_is_paced_by_its_caps_and_ends_on_time() -> None:
    """G15: five nodes, two a span: batches of two start a span apart, the last ones just in time."""
    rig = fleet(*[120] * 5, nodes_per_pool=2)
    began = {name: (moment - START) // timedelta(minutes=1) for name, moment in starts(rig, 110).items()}
    assert began == {"n0": 79, "n1": 89, "n2": 89, "n3": 99, "n4": 99}


def test_two_pools_that_are_due_together_both_come_home_on_time() -> None:
    """F71."""
    rig = fleet(*[60] * 4, pools=(POOL, "infer-l20"), nodes_per_pool=1, nodes_per_cluster=2)
    began = starts(rig, 59)
    assert sorted(began) == ["n0", "n1", "n2", "n3"]
    assert max(began.values()) <= START + timedelta(minutes=39)


def test_loans_that_are_due_a_span_later_do_not_hurry_the_first() -> None:
    rig = fleet(60, 71, 72, nodes_per_pool=1)
    assert {name: (at - START) // timedelta(minutes=1) for name, at in starts(rig, 60).items()}["n0"] == 39


@pytest.mark.parametrize(
    ("scope", "target", "home"),
    [
        pytest.param("node", "n1", [["n1"]], id="a node by name"),
        pytest.param("node", "uid-n1", [["n1"]], id="a node by uid"),
        pytest.param("pool", "infer-l20", [["n1"]], id="a pool"),
        pytest.param("all", "", [["n0", "n2"], ["n1"]], id="all"),
        pytest.param("node", "infer-l20", [], id="a node that bears a pool's name is not the pool"),
        pytest.param("pool", "n1", [], id="nor the other way round"),
        pytest.param("node", "n9", [], id="a node that is not lent"),
    ],
)
def test_a_recall_by_request(scope: Literal["node", "pool", "all"], target: str, home: list[list[str]]) -> None:
    rig = fleet(300, 300, 300, pools=(POOL, "infer-l20"))
    rig.tell(RecallRequested(scope, target, "ops", rig.now))
    plans = rig.plans()
    assert closed(plans) == home
    assert all(
        plan.because == Because(Reason.OPERATOR_RECALL, {"by": "ops", "target": target or "all"}) for plan in plans
    )


@pytest.mark.parametrize(
    ("brake", "home", "because"),
    [
        pytest.param(
            {"recall_all": True}, [["n0", "n2"], ["n1"]],
            Because(Reason.OPERATOR_RECALL, {"by": "ops", "target": "all"}), id="all",
        ),
        pytest.param(
            {"recall_pools": ("infer-l20",)}, [["n1"]],
            Because(Reason.OPERATOR_RECALL, {"by": "ops", "target": "infer-l20"}), id="a pool",
        ),
        pytest.param(
            {"recall_nodes": ("n2",)}, [["n2"]],
            Because(Reason.OPERATOR_RECALL, {"by": "ops", "target": "n2"}), id="a node",
        ),
        pytest.param({"retired": True}, [["n0", "n2"], ["n1"]], Because(Reason.RETIRING), id="for good"),
        pytest.param({"paused": True}, [], None, id="a pause brings nobody home"),
    ],
)  # fmt: skip
def test_the_brakes_bring_loans_home(brake: dict[str, Any], home: list[list[str]], because: Because | None) -> None:
    rig = fleet(300, 300, 300, pools=(POOL, "infer-l20"))
    rig.see(Control(by="ops", **brake))
    plans = rig.plans()
    assert closed(plans) == home
    assert all(plan.because == because for plan in plans)


def test_nodes_recalled_one_by_one_are_plans_of_their_own_and_what_is_due_comes_first() -> None:
    rig = fleet(15, 300, 300)
    rig.see(Control(recall_nodes=("n0", "n1", "n2"), by="ops"))
    plans = rig.plans()
    assert closed(plans) == [["n0"], ["n1"], ["n2"]]
    assert [plan.because.reason for plan in plans] == [Reason.LOAN_DUE, Reason.OPERATOR_RECALL, Reason.OPERATOR_RECALL]


def test_several_loans_that_are_due_are_one_plan() -> None:
    (plan,) = fleet(15, 16).plans()
    assert (closed([plan]), plan.because.numbers["node"]) == ([["n0", "n1"]], "2 nodes")


def test_a_loan_on_its_way_home_is_not_started_again() -> None:
    rig = fleet(15)
    assert len(rig.plans()) == 1
    assert closed(rig.watch(5)) == []


def test_a_way_home_that_ended_unfinished_is_planned_again() -> None:
    rig = fleet(300)
    rig.see(Control(recall_all=True, by="ops"))
    (plan,) = rig.plans()
    rig.report(plan, kinds=("close",))
    rig.see(Control(by="ops"))
    rig.report(plan, Result.EXPIRED, kinds=("evict", "restore"))
    assert rig.loans["loan-n0"].phase is LoanPhase.RECALLING
    assert closed(rig.pass_time(1)) == [["n0"]]


def test_a_budget_does_not_stop_what_is_due() -> None:
    """E11: planned all the same; act waits and alerts."""
    rig = fleet(15)
    rig.see(budget("b", "g0", 0))
    assert closed(rig.plans()) == [["n0"]]


def test_beside_a_squatter_the_others_still_go_and_it_is_told() -> None:
    rig = fleet(15)
    rig.see(*gang("squats", on=["n0"], reclaimable=False))
    (plan,) = rig.plans()
    assert [step.gang for step in plan.steps if isinstance(step, EvictGang)] == ["ml/g0"]
    assert [(item.target, item.because) for item in plan.alternatives] == [
        ("n0", Because(Reason.SQUATTER, {"pod": "ml/squats-0", "node": "n0"}))
    ]


def test_a_gang_with_a_protected_member_stays_and_the_node_closes() -> None:
    rig = fleet(15)
    bad, good = gang("half", pods=2, on=["n0", "n0"], gpus=0)
    rig.see(replace(bad, gpus=1, protected=("claims",)), replace(good, gpus=1))
    (plan,) = rig.plans()
    assert [step.gang for step in plan.steps if isinstance(step, EvictGang)] == ["ml/g0"]


def test_a_gang_that_another_plan_evicts_is_not_evicted_again_beside_a_squatter() -> None:
    rig = fleet(15)
    rig.see(*gang("a-squatter", on=["n0"], reclaimable=False))
    rig.engine.state.busy_gangs["ml/g0"] = "other"
    (plan,) = rig.plans()
    assert [step.kind for step in plan.steps] == ["close", "restore"]


def test_a_node_with_a_gang_that_another_plan_evicts_in_part_waits_for_that_plan() -> None:
    rig = fleet(15)
    rig.engine.state.busy_gangs["ml/g0"] = "other"
    assert closed(rig.plans()) == []


def test_a_node_that_is_not_known_any_more_is_left_alone() -> None:
    rig = fleet(15, 15)
    rig.engine.state.loans["loan-n1"] = replace(rig.loans["loan-n1"], node="uid-x")
    rig.engine.state.loan_of = {"uid-n0": "loan-n0", "uid-x": "loan-n1"}
    assert closed(rig.plans()) == [["n0"]]


def test_an_empty_node_comes_home_without_evictions() -> None:
    rig = away("n0")
    rig.see(Control(recall_all=True))
    (plan,) = rig.plans()
    assert [step.kind for step in plan.steps] == ["close", "restore"]
    assert plan.because.numbers["by"] == "control"
