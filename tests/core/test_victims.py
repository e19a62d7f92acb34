"""Which lent nodes come home: whole gangs, fewest and cheapest first, and nobody in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Namespace
from rebalancer.core.instructions import WorkloadRecord
from rebalancer.core.methods import takeback
from rebalancer.core.plan import CloseNode, EvictGang, Method, RestoreNode
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.victims import Choice, Homecoming, choose, eviction, homecoming, lost_work, obstacle
from tests.core.away import away, coming, loan
from tests.core.build import START, Rig, budget, gang, lent, node, policy, pool_policy, replica

LATE = START + timedelta(minutes=10)


def picked(rig: Rig, gpus: int, *, partial: bool = False) -> Choice:
    """What is chosen to bring so many GPUs home."""

    def enough(chosen: Sequence[Homecoming]) -> bool:
        return sum(item.loan.gpus for item in chosen) >= gpus

    return choose(rig.engine.state, rig.engine.state.open_loans(), enough, rig.now, partial=partial)


def names(choice: Choice) -> list[str]:
    return sorted(item.node.name for item in choice.homecomings)


def gone(choice: Choice) -> list[str]:
    return sorted({victim.gang for item in choice.homecomings for victim in item.casualties})


def why(choice: Choice) -> dict[str, Reason]:
    return {item.target: item.because.reason for item in choice.rejected}


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        pytest.param({"started_at": START - timedelta(minutes=5)}, 2 * 8 * 300.0, id="since the start"),
        pytest.param({"checkpointed_at": START - timedelta(minutes=1)}, 2 * 8 * 60.0, id="since the last checkpoint"),
        pytest.param(
            {"started_at": START - timedelta(minutes=2), "checkpointed_at": START - timedelta(hours=9)},
            2 * 8 * 120.0, id="a checkpoint from before this start saves nothing",
        ),
        pytest.param({"started_at": None}, 0.0, id="never started"),
        pytest.param({"node": ""}, 0.0, id="not bound"),
        pytest.param({"started_at": START + timedelta(minutes=1)}, 0.0, id="a start in the future loses nothing"),
        pytest.param({"gpus": None}, 0.0, id="a count that is unknown"),
    ],
)  # fmt: skip
def test_lost_work_in_gpu_seconds(changes: dict[str, Any], seconds: float) -> None:
    assert lost_work(gang("a", pods=2, on=["n0", "n1"], **changes), START) == seconds


def test_members_that_never_started_do_not_hide_what_the_others_lose() -> None:
    early, late = gang("a", pods=2, on=["n0", "n1"])
    assert (
        lost_work([replace(early, started_at=None), replace(late, started_at=START - timedelta(seconds=9))], START)
        == 72
    )


def test_the_fewest_gangs_go() -> None:
    """E03, F13: one job of eight, not one pod of each of eight."""
    ones = [pod for i in range(8) for pod in gang(f"one{i}", on=["n0"], gpus=1)]
    eight = gang("eight", pods=8, on=["n1"] * 8, gpus=1)
    rig = away("n0", "n1", pods=[*ones, *eight])
    choice = picked(rig, 8)
    assert (names(choice), gone(choice)) == (["n1"], ["ml/eight"])
    assert len(choice.homecomings[0].casualties[0].members) == 8
    assert why(choice) == {"n0": Reason.COSTS_MORE}


def test_the_cheapest_work_is_lost() -> None:
    """E15: checkpointed a minute ago before 55 minutes ago."""
    fresh = gang("fresh", on=["n1"], checkpointed_at=START - timedelta(minutes=1))
    stale = gang("stale", on=["n0"], checkpointed_at=START - timedelta(minutes=55))
    choice = picked(away("n0", "n1", pods=[*fresh, *stale]), 8)
    assert gone(choice) == ["ml/fresh"]
    (rejected,) = choice.rejected
    assert rejected.because == Because(Reason.COSTS_MORE, {"gang": "ml/stale", "lost_gpu_seconds": 26400})


def test_an_empty_node_comes_home_before_anybody_goes() -> None:
    choice = picked(away("n0", "n1", pods=gang("a", on=["n0"])), 8)
    assert (names(choice), gone(choice)) == (["n1"], [])


def test_empty_nodes_that_are_not_needed_say_so() -> None:
    choice = picked(away("n0", "n1"), 8)
    assert (names(choice), why(choice)) == (["n0"], {"n1": Reason.NOT_NEEDED})


def test_a_fixed_cost_prefers_one_gang_that_lost_a_little_more_over_two() -> None:
    two = [
        pod for i in range(2) for pod in gang(f"two{i}", on=["n0"], gpus=4, started_at=START - timedelta(minutes=15))
    ]
    one = gang("one", on=["n1"], started_at=START - timedelta(minutes=16))
    assert gone(picked(away("n0", "n1", pods=[*two, *one]), 8)) == ["ml/one"]


def test_a_gang_over_two_nodes_goes_once_and_both_come_home() -> None:
    """Its second node costs nothing more than the first."""
    wide = gang("wide", pods=2, on=["n0", "n1"])
    rig = away("n0", "n1", "n2", pods=[*wide, *gang("small", on=["n2"], started_at=START - timedelta(minutes=50))])
    choice = picked(rig, 16)
    assert (names(choice), gone(choice)) == (["n0", "n1"], ["ml/wide"])
    steps = takeback.steps(
        rig.engine.state,
        choice.homecomings,
        Because(Reason.INFERENCE_PENDING),
        now=rig.now,
        not_before=rig.now,
        deadline=LATE,
    )
    assert [step.kind for step in steps] == ["close", "close", "evict", "restore", "restore"]
    assert [len(step.members) for step in steps if isinstance(step, EvictGang)] == [2]


def test_a_gang_over_a_lent_and_an_own_node_goes_as_a_whole() -> None:
    """F20."""
    found = coming(away("n0", pods=gang("wide", pods=2, on=["n0", "own"])), "n0")
    assert [pod.name for pod in found.casualties[0].members] == ["wide-0", "wide-1"]
    assert found.casualties[0].whole


def test_no_set_that_is_enough_means_nobody_goes() -> None:
    """E18, F33: evicting in vain is worse than waiting."""
    rig = away("n0", pods=gang("a", on=["n0"]))
    assert names(picked(rig, 16)) == []
    assert names(picked(rig, 16, partial=True)) == ["n0"]


def test_nobody_goes_when_nothing_is_needed() -> None:
    assert names(picked(away("n0", pods=gang("a", on=["n0"])), 0)) == []


def test_no_more_is_freed_than_is_needed_in_whole_gangs() -> None:
    """F15, G24."""
    rig = away(*(f"n{i}" for i in range(8)), pods=[pod for i in range(8) for pod in gang(f"g{i}", on=[f"n{i}"])])
    assert len(names(picked(rig, 48))) == 6
    assert len(names(picked(rig, 41))) == 6


def test_a_node_that_a_later_choice_makes_needless_stays() -> None:
    """The last one taken covers it all: the smaller one before it is dropped."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    small, large = lent(node("n0", gpus=4, capacity=4)), lent(node("n1"))
    cheap = gang("cheap", on=["n0"], gpus=4, started_at=START - timedelta(minutes=11))
    rig.sync(small, large, *cheap, *gang("dear", on=["n1"]))
    choice = picked(rig, 8)
    assert (names(choice), gone(choice)) == (["n1"], ["ml/dear"])


def test_a_node_that_is_gone_cannot_come_home() -> None:
    rig = away("n0")
    gone_loan = replace(loan(rig, "n0"), node="uid-other")
    assert homecoming(rig.engine.state, gone_loan, rig.now) == Because(Reason.NODE_GONE, {"node": "n0"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"gpus": None}, Reason.GPU_COUNT_UNKNOWN, id="a count that is unknown"),
        pytest.param({"reclaimable": False}, Reason.SQUATTER, id="a squatter"),
        pytest.param({"protected": ("claims",)}, Reason.PROTECTED, id="a protected pod"),
        pytest.param({"namespace": "kube-system"}, Reason.PROTECTED, id="a protected namespace"),
        pytest.param({"opted_out": True}, Reason.OPTED_OUT, id="a pod that opted out"),
        pytest.param({"namespace": "quiet"}, Reason.OPTED_OUT, id="a namespace that opted out"),
    ],
)
def test_who_is_never_chosen_keeps_the_whole_gang_and_its_node(changes: dict[str, Any], reason: Reason) -> None:
    """E15 W: safe-to-evict=false never goes, not even as one member of two."""
    good, bad = gang("a", pods=2, on=["n0", "own"])
    rig = away("n0", "n1", pods=[good, replace(bad, **changes), *gang("b", on=["n1"])])
    rig.see(Namespace("uid-ns", "quiet", opted_out=True))
    choice = picked(rig, 8)
    assert gone(choice) == ["ml/b"]
    assert why(choice) == {"n0": reason}
    (rejected,) = choice.rejected
    assert rejected.because.numbers.get("why", "claims") in ("claims", "kube-system")


def test_a_pod_without_gpus_is_in_nobodys_way() -> None:
    """F35."""
    found = coming(away("n0", pods=gang("cpu", on=["n0"], gpus=0, reclaimable=False)), "n0")
    assert found.casualties == ()


RECORD = WorkloadRecord("ml/a", "ml", (START,) * 3)


@pytest.mark.parametrize(
    ("changes", "record", "reason"),
    [
        pytest.param({"checkpoint_in_progress": True}, None, Reason.CHECKPOINTING, id="saving a checkpoint"),
        pytest.param({"started_at": START - timedelta(seconds=599)}, None, Reason.MIN_RUNTIME, id="just started"),
        pytest.param({"started_at": START - timedelta(seconds=600)}, None, None, id="ran its minimum"),
        pytest.param({"started_at": None}, None, None, id="not started at all"),
        pytest.param({}, replace(RECORD, cooldown_until=LATE), Reason.COOLDOWN, id="evicted lately"),
        pytest.param({}, replace(RECORD, cooldown_until=START), None, id="its cooldown is over"),
        pytest.param({}, replace(RECORD, protected_until=LATE), Reason.PREEMPTED_TOO_OFTEN, id="evicted too often"),
        pytest.param({}, replace(RECORD, protected_until=START), None, id="its protection is over"),
    ],
)
def test_others_are_preferred_while_patience_is_due(
    changes: dict[str, Any], record: WorkloadRecord | None, reason: Reason | None
) -> None:
    """E15 Z, G8, G9: a dearer gang goes first; nobody else there, patience ends."""
    start = changes.pop("started_at", START - timedelta(minutes=15))
    pods = gang("a", on=["n0"], started_at=start, **changes)
    dear = gang("dear", on=["n1"], started_at=START - timedelta(days=9))
    rig = away("n0", "n1", pods=[*pods, *dear])
    if record is not None:
        rig.engine.state.workloads["ml/a"] = record
    choice = picked(rig, 8)
    assert gone(choice) == (["ml/a"] if reason is None else ["ml/dear"])
    if reason is not None:
        assert why(choice) == {"n0": reason}
        assert gone(picked(rig, 16)) == ["ml/a", "ml/dear"]


def test_the_clock_of_a_gang_is_its_latest_members_start() -> None:
    """G8."""
    old, young = gang("a", pods=2, on=["n0", "own"])
    young = replace(young, started_at=START - timedelta(minutes=9))
    victim = coming(away("n0", pods=[old, young]), "n0").casualties[0]
    assert victim.patience == Because(Reason.MIN_RUNTIME, {"gang": "ml/a", "run_seconds": 540.0, "min_seconds": 600.0})


def test_a_gang_that_could_not_be_evicted_a_moment_ago_is_left_out_until_then() -> None:
    rig = away("n0", pods=gang("a", on=["n0"]))
    refusal = Because(Reason.BUDGET_BLOCKED, {"gang": "ml/a"})
    for until, found in ((LATE, refusal), (START, None), (START - timedelta(seconds=1), None)):
        rig.engine.state.blocked_gangs["ml/a"] = (until, refusal)
        assert obstacle(rig.engine.state, coming(rig, "n0"), rig.now, {}) == found


def test_a_budget_is_charged_with_evictions_on_the_way() -> None:
    rig = away("n0", pods=gang("a", on=["n0"]))
    rig.see(budget("b", "a", 1))
    found = coming(rig, "n0")
    assert obstacle(rig.engine.state, found, rig.now, {}) is None
    blocked = obstacle(rig.engine.state, found, rig.now, {"ml/b": 1})
    assert blocked is not None
    assert blocked.reason is Reason.BUDGET_BLOCKED


def test_the_eviction_step_says_all_that_act_needs() -> None:
    one, two = gang("a", pods=2, on=["n0", "own"])
    two = replace(two, notice_seconds=60, grace_seconds=300)
    rig = away("n0", pods=[one, two])
    rig.see(budget("b", "a", 2))
    state, because = rig.engine.state, Because(Reason.LOAN_DUE)
    step = eviction(state, coming(rig, "n0").casualties[0], START, LATE, because)
    assert (step.gang, step.workload, step.namespace, step.top_owner) == ("ml/a", "ml/a", "ml", "Job/ml/a")
    assert (step.notice_seconds, step.grace_seconds, step.whole) == (60, 300, True)
    assert (step.not_before, step.deadline, step.because) == (START, LATE, because)
    assert [(m.uid, m.node, m.gpus, m.budgets) for m in step.members] == [
        ("uid-a-0", "n0", 8, ("b",)), ("uid-a-1", "own", 8, ("b",)),
    ]  # fmt: skip
    assert step.lost_gpu_seconds == 2 * 8 * 3600.0


def test_steps_close_first_and_restore_last() -> None:
    rig = away("n0")
    close, restore = takeback.steps(
        rig.engine.state, [coming(rig, "n0")], Because(Reason.LOAN_DUE), now=rig.now, not_before=rig.now, deadline=LATE
    )
    assert close == CloseNode("loan-n0", "uid-n0", "n0")
    assert restore == RestoreNode("loan-n0", "uid-n0", "n0", START + timedelta(hours=6))


def test_a_gang_about_to_end_by_itself_is_asked_last() -> None:
    """Almost done and said so: others go first, dearer ones too (E15)."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    soon = rig.now + timedelta(minutes=4)
    ending = [replace(pod, finishes_at=soon, checkpointed_at=rig.now) for pod in gang("ending", on=["n0"])]
    rig.sync(lent(node("n0")), lent(node("n1")), *ending, *gang("dear", on=["n1"]))
    rig.see(replica("chat-new"))
    (plan,) = [item for item in rig.plans() if item.method is Method.RECLAIM]
    assert [step.gang for step in plan.steps if step.kind == "evict"] == ["ml/dear"]
    assert {one.target: one.because.reason for one in plan.alternatives}["n0"] is Reason.FINISHING
