"""Reclaim: waiting pods at once, a rising load after its debounce, and called off when the need is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.look import Look, look
from rebalancer.core.methods import reclaim
from rebalancer.core.plan import EvictGang, Method, Outcome, Plan, RestoreNode, Result
from rebalancer.core.policy import Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import Approved, DemandReported, OutcomeReported
from rebalancer.core.telemetry import DemandSample
from rebalancer.core.underway import Draft, OpenPlan
from tests.core.build import OWNER_TAINT, START, Rig, budget, gang, lent, node, policy, pool_policy, replica
from tests.core.test_ledger import plan_of

POOL = "infer-a100"


def fleet(lent_nodes: int = 4, home: int = 4, **pace: Any) -> Rig:
    """Full nodes at home, and lent ones with a gang each."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0), pace=Pace(**pace)))
    rig.sync(*(lent(node(f"n{i}")) for i in range(lent_nodes)), *(node(f"h{i}") for i in range(home)))
    rig.see(*(replica(f"full-{i}", on=f"h{i}") for i in range(home)))
    rig.see(*(pod for i in range(lent_nodes) for pod in gang(f"g{i}", on=[f"n{i}"])))
    return rig


def waits(rig: Rig, count: int = 1, **changes: Any) -> None:
    rig.see(*(replica(f"new-{i}", created_at=rig.now, **changes) for i in range(count)))


def of(plans: list[Plan], method: Method = Method.RECLAIM) -> list[Plan]:
    return [plan for plan in plans if plan.method is method]


def closed(plan: Plan | Draft) -> list[str]:
    return [step.node_name for step in plan.steps if step.kind == "close"]


def evictions(plan: Plan) -> list[EvictGang]:
    return [step for step in plan.steps if isinstance(step, EvictGang)]


def test_a_pod_that_waits_brings_one_node_home_at_once() -> None:
    rig = fleet()
    waits(rig)
    (plan,) = of(rig.plans())
    assert (closed(plan), plan.pressing, plan.awaits_approval) == (["n0"], True, False)
    assert plan.because == Because(
        Reason.INFERENCE_PENDING, {"pool": POOL, "pods": 1, "needed_gpus": 8, "ready_gpus": 32}
    )
    assert {item.because.reason for item in plan.alternatives} == {Reason.COSTS_MORE}
    assert isinstance(plan.steps[-1], RestoreNode)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        pytest.param({}, 10, id="ten seconds after it was created"),
        pytest.param({"unschedulable_since": START - timedelta(seconds=4)}, 6, id="after it was found unschedulable"),
        pytest.param({"unschedulable_since": START - timedelta(minutes=4)}, 0, id="at once if it waits for long"),
    ],
)
def test_nobody_is_evicted_before_the_wait_has_lasted(changes: dict[str, Any], seconds: int) -> None:
    """F29: the node closes at once, the first eviction comes after a short debounce."""
    rig = fleet()
    waits(rig, **changes)
    (plan,) = of(rig.plans())
    (evict,) = evictions(plan)
    assert evict.not_before == START + timedelta(seconds=seconds)
    assert evict.deadline == evict.not_before + timedelta(minutes=10)


def test_the_pod_that_waits_longest_sets_the_time() -> None:
    rig = fleet()
    rig.see(replica("young", created_at=START), replica("old", created_at=START - timedelta(seconds=7)))
    (evict, _) = evictions(of(rig.plans())[0])
    assert evict.not_before == START + timedelta(seconds=3)


def test_nodes_on_their_way_home_are_counted_and_not_doubled() -> None:
    rig = fleet()
    waits(rig)
    assert len(of(rig.plans())) == 1
    assert of(rig.pass_time(0.1)) == []
    waits(rig, 2)
    assert [len(closed(plan)) for plan in of(rig.pass_time(0.1))] == [1]


def test_a_pod_that_no_lent_node_could_house_evicts_nobody() -> None:
    """E18."""
    rig = fleet()
    waits(rig, gpus=16)
    assert of(rig.plans()) == []


def test_pods_that_can_be_housed_are_helped_though_another_cannot() -> None:
    rig = fleet()
    waits(rig)
    rig.see(replica("huge", gpus=16))
    (plan,) = of(rig.plans())
    assert (closed(plan), plan.because.numbers["pods"]) == (["n0"], 1)


def test_a_waiting_pod_that_finds_room_at_home_evicts_nobody() -> None:
    rig = fleet()
    rig.sync(node("h9"))
    waits(rig)
    assert of(rig.plans()) == []


def test_small_pods_share_a_node() -> None:
    rig = fleet()
    waits(rig, 4, gpus=2)
    assert [closed(plan) for plan in of(rig.plans())] == [["n0"]]


def test_as_many_as_can_be_helped_are_when_not_all_can() -> None:
    rig = fleet(lent_nodes=2)
    rig.see(budget("b", "g0", 0))
    waits(rig, 2)
    (plan,) = of(rig.plans())
    assert closed(plan) == ["n1"]
    assert [(item.target, item.because.reason) for item in plan.alternatives] == [("n0", Reason.BUDGET_BLOCKED)]


def test_a_node_that_would_be_no_supply_is_not_called_home() -> None:
    rig = fleet(lent_nodes=1)
    rig.see(lent(node("n0", cordoned=True)))
    waits(rig)
    assert of(rig.plans()) == []


def test_caps_pace_what_waiting_pods_bring_home() -> None:
    rig = fleet(nodes_per_pool=2)
    waits(rig, 4)
    assert [len(closed(plan)) for plan in of(rig.plans())] == [2]


# -- rising load ---------------------------------------------------------------------------------------------


def seen(rig: Rig, **changes: Any) -> Look:
    found = look(rig.engine.state, POOL, [], rig.now)
    assert found is not None
    return replace(found, **changes)


def wants(rig: Rig, gpus: float) -> None:
    """The demand topic asks; verdicts keep telemetry fresh."""
    rig.busy(utilisation=1.0)
    rig.tell(DemandReported(DemandSample(POOL, gpus, rig.now)))


def pressed(rig: Rig, gpus: float, *seconds: float) -> list[list[Draft]]:
    """What is proposed at each moment, seconds apart."""
    found = []
    for step in seconds:
        rig.now += timedelta(seconds=step)
        wants(rig, gpus)
        item = seen(rig)
        found.append(list(reclaim.propose(rig.engine.state, item, rig.now)))
    return found


@pytest.mark.parametrize(
    ("steps", "rises"),
    [
        pytest.param((0, 59), False, id="for less than a minute, in two samples"),
        pytest.param((0, 60), True, id="for a minute"),
        pytest.param((0, 15, 15), True, id="three samples in half a minute"),
        pytest.param((0, 14, 14, 1), False, id="samples that come too fast count once"),
        pytest.param((0,), False, id="one sample"),
    ],
)
def test_a_rise_counts_after_its_debounce(steps: tuple[float, ...], rises: bool) -> None:
    """G2: for 60 s, or over three samples a scrape apart."""
    assert bool(pressed(fleet(), 40, *steps)[-1]) is rises


def test_a_calm_moment_begins_the_debounce_anew() -> None:
    rig = fleet()
    pressed(rig, 40, 0, 50)
    rig.lose("pod", "uid-full-0", "uid-full-1")
    assert pressed(rig, 0, 5) == [[]]
    assert pressed(rig, 40, 4, 59)[-1] == []
    assert pressed(rig, 40, 1)[-1] != []


def test_one_pools_calm_does_not_reset_anothers() -> None:
    """G2, F49."""
    rig = fleet()
    watch = rig.engine.state.watches
    pressed(rig, 40, 0, 59)
    reclaim.propose(rig.engine.state, replace(seen(rig), pool="train-a100"), rig.now)
    assert watch[POOL].rising_since == START
    assert pressed(rig, 40, 1)[-1] != []


def test_the_numbers_of_a_rise_and_no_more_nodes_than_it_needs() -> None:
    rig = fleet()
    (draft,) = pressed(rig, 40, 0, 60)[-1]
    headroom = draft.because.numbers["headroom_gpus"]
    assert headroom == 6.4
    assert draft.because == Because(
        Reason.INFERENCE_RISING,
        {"pool": POOL, "demand_gpus": 40.0, "headroom_gpus": headroom, "ready_gpus": 32},
    )
    assert (closed(draft), draft.pressing, draft.awaits_approval) == (["n0", "n1"], False, False)


@pytest.mark.parametrize(
    ("share", "held"),
    [(0.25, False), (0.24, True)],
    ids=["a quarter of the pool goes by itself", "more than the share waits for a person"],
)
def test_the_circuit_breaker(share: float, held: bool) -> None:
    (draft,) = pressed(fleet(circuit_share=share), 40, 0, 60)[-1]
    assert draft.awaits_approval is held
    if held:
        assert draft.alternatives[0].because == Because(
            Reason.CIRCUIT_OPEN, {"pool": POOL, "share_percent": 25, "limit_percent": 24}
        )


def test_caps_of_the_span_limit_a_rise() -> None:
    rig = fleet()
    rig.engine.state.touched.append((rig.now, POOL, 19))
    (draft,) = pressed(rig, 40, 0, 60)[-1]
    assert closed(draft) == ["n0"]


def test_what_is_coming_home_is_deducted_from_a_rise() -> None:
    """F72."""
    rig = fleet(circuit_share=1.0)
    wants(rig, 40)
    rig.pass_time(0.5)
    wants(rig, 40)
    (first,) = of(rig.pass_time(1))
    assert len(closed(first)) == 2
    wants(rig, 40)
    assert of(rig.pass_time(0.5)) == []
    wants(rig, 48)
    assert [len(closed(plan)) for plan in of(rig.pass_time(0.5))] == [1]


def test_a_plan_that_waits_for_a_person_is_not_followed_by_another_until_it_is_approved() -> None:
    rig = fleet(circuit_share=0.1)
    wants(rig, 40)
    rig.pass_time(0.5)
    wants(rig, 40)
    (held,) = of(rig.pass_time(1))
    assert held.awaits_approval
    assert not rig.engine.state.touched
    wants(rig, 40)
    assert of(rig.pass_time(1)) == []
    (published,) = rig.tell(Approved(held.id, "ops", rig.now))
    assert published.kind == "publish-plan"
    assert not published.plan.awaits_approval
    assert [count for _, _, count in rig.engine.state.touched] == [2]


def test_a_node_that_just_covers_the_rise_is_enough() -> None:
    (draft,) = pressed(fleet(), 33.6, 0, 60)[-1]
    assert closed(draft) == ["n0"]


@pytest.mark.parametrize("other", ["a-pool", "z-pool"])
def test_a_plan_of_another_pool_that_waits_for_a_person_holds_nothing_back(other: str) -> None:
    rig = fleet()
    held = plan_of(method=Method.RECLAIM, awaits_approval=True)
    rig.engine.state.plans["p"] = OpenPlan(replace(held, pool=other))
    assert pressed(rig, 40, 0, 60)[-1] != []
    rig.engine.state.plans["p"] = OpenPlan(held)
    rig.engine.state.turned(held.pool)
    assert pressed(rig, 40, 1)[-1] == []


def test_a_pool_that_is_not_inference_is_never_reclaimed_for() -> None:
    rig = fleet()
    assert pressed(rig, 40, 0, 60)[-1] != []
    other = replace(seen(rig), policy=rig.engine.state.policy.pools["train-a100"])
    assert list(reclaim.propose(rig.engine.state, other, rig.now)) == []


@pytest.mark.parametrize("seen_first", [False, True], ids=["told before it is seen", "seen before it is told"])
def test_a_node_that_was_handed_back_is_counted_once_whichever_stream_says_so_first(seen_first: bool) -> None:
    rig = fleet()
    waits(rig)
    (plan,) = of(rig.plans())
    rig.report(plan, kinds=("close",))
    rig.lose("pod", "uid-g0-0")
    rig.report(plan, kinds=("evict",), members=1)
    home = replace(rig.engine.state.inventory.nodes["uid-n0"], loan=None, taints=(OWNER_TAINT,))
    rig.now += timedelta(minutes=2)
    rig.see(home) if seen_first else rig.report(plan, kinds=("restore",))
    for _ in range(4):
        assert of(rig.pass_time(1.0)) == []  # neither for the pod that waits nor for a deficit that seems to last
    rig.report(plan, kinds=("restore",)) if seen_first else rig.see(home)
    rig.see(replica("new-0", on="n0"))
    assert of(rig.pass_time(1.0)) == []
    assert seen(rig).ready == 40


def test_a_node_that_is_home_is_ready_while_others_of_its_plan_are_on_their_way() -> None:
    rig = fleet()
    waits(rig, 2)
    (plan,) = of(rig.plans())
    assert closed(plan) == ["n0", "n1"]
    rig.report(plan, kinds=("close",))
    rig.lose("pod", "uid-g0-0")
    index = next(at for at, step in enumerate(plan.steps) if step.kind == "restore")
    confirmed = Because(Reason.CONFIRMED)
    done = Outcome(plan.id, POOL, index, "restore", "uid-n0", Result.DONE, confirmed, rig.now, "loan-n0", 1)
    rig.tell(OutcomeReported(done))
    rig.see(replace(rig.engine.state.inventory.nodes["uid-n0"], loan=None, taints=(OWNER_TAINT,)))
    assert (seen(rig).ready, seen(rig).returning) == (40, 8)
    for _ in range(4):
        assert of(rig.pass_time(1.0)) == []
