"""How much of a gang goes for a node: all of it, or what an elastic gang has beyond its minimum."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import GangSpec, PodPhase
from rebalancer.core.methods import takeback
from rebalancer.core.plan import EvictGang
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.victims import homecoming
from tests.core.away import away, coming, loan
from tests.core.build import START, Rig, gang

LATE = START + timedelta(minutes=10)


def test_an_elastic_gang_shrinks_to_its_minimum() -> None:
    elastic = [replace(pod, gang_min=2) for pod in gang("e", pods=3, on=["n0", "n1", "n2"])]
    rig = away("n0", "n1", "n2", pods=elastic)
    victim = coming(rig, "n0").casualties[0]
    assert ([pod.name for pod in victim.members], victim.whole) == (["e-0"], False)
    assert victim.lost_gpu_seconds == 8 * 3600.0


@pytest.mark.parametrize(
    ("least", "size", "spec", "members"),
    [
        pytest.param(3, 3, None, 3, id="a rigid gang goes as a whole"),
        pytest.param(1, 1, None, 3, id="a gang that does not say its size goes as a whole"),
        pytest.param(1, 3, None, 1, id="one that may shrink loses the member"),
        pytest.param(1, 3, 3, 3, id="a gang object that asks for all makes it rigid"),
        pytest.param(1, 3, 2, 1, id="a gang object that asks for the rest leaves it elastic"),
        pytest.param(1, 1, 2, 3, id="a gang object alone makes nobody elastic"),
    ],
)
def test_who_shrinks(least: int, size: int, spec: int | None, members: int) -> None:
    pods = [replace(pod, gang_min=least, gang_size=size) for pod in gang("e", pods=3, on=["n0", "n1", "n2"])]
    rig = away("n0", pods=pods)
    if spec is not None:
        rig.see(GangSpec("uid-g", "ml/e", "ml", 3, spec))
    assert len(coming(rig, "n0").casualties[0].members) == members


def test_an_elastic_gang_all_of_which_is_on_the_node_goes_as_a_whole() -> None:
    pods = [replace(pod, gang_min=1, gpus=4) for pod in gang("e", pods=2, on=["n0", "n0"])]
    victim = coming(away("n0", pods=pods), "n0").casualties[0]
    assert (len(victim.members), victim.whole) == (2, True)


def shrunk(rig: Rig, *nodes: str) -> EvictGang:
    (step,) = [
        step
        for step in takeback.steps(
            rig.engine.state, [coming(rig, name) for name in nodes], Because(Reason.LOAN_DUE),
            now=rig.now, not_before=rig.now, deadline=LATE,
        )
        if isinstance(step, EvictGang)
    ]  # fmt: skip
    return step


@pytest.mark.parametrize(
    ("nodes", "members", "whole"),
    [(["n0"], 1, False), (["n0", "n1"], 2, False), (["n0", "n1", "n2"], 4, True)],
    ids=["one node", "two nodes add up", "below the minimum the whole gang goes"],
)
def test_shrinkings_of_one_gang_on_several_nodes(nodes: list[str], members: int, whole: bool) -> None:
    pods = [replace(pod, gang_min=2) for pod in gang("e", pods=4, on=["n0", "n1", "n2", "n3"])]
    step = shrunk(away("n0", "n1", "n2", pods=pods), *nodes)
    assert (len(step.members), step.whole) == (members, whole)
    assert step.lost_gpu_seconds == members * 8 * 3600.0


def test_ended_members_neither_go_nor_count_towards_the_minimum() -> None:
    pods = [replace(pod, gang_min=2) for pod in gang("e", pods=5, on=["n0", "n1", "n2", "n3", "n3"])]
    pods[4] = replace(pods[4], phase=PodPhase.SUCCEEDED)
    step = shrunk(away("n0", "n1", "n2", pods=pods), "n0", "n1", "n2")
    assert [member.name for member in step.members] == ["e-0", "e-1", "e-2", "e-3"]


def test_members_that_are_leaving_are_not_evicted_again_and_not_counted_as_staying() -> None:
    """F32: no N+1 victims."""
    pods = [replace(pod, gang_min=2) for pod in gang("e", pods=3, on=["n0", "n1", "n2"])]
    pods[2] = replace(pods[2], deleting_at=START)
    victim = coming(away("n0", pods=pods), "n0").casualties[0]
    assert ([pod.name for pod in victim.members], victim.whole) == (["e-0", "e-1"], True)


def test_a_member_that_is_leaving_does_not_cost_the_rest_of_its_gang() -> None:
    """What stands on this node goes without us: the others are left alone."""
    here, there = gang("a", pods=2, on=["n0", "own"])
    assert coming(away("n0", pods=[replace(here, deleting_at=START), there]), "n0").casualties == ()


def test_pods_that_an_open_plan_evicts_stand_in_nobodys_way_and_the_rest_of_their_gang_waits() -> None:
    pods = [replace(pod, gang_min=1) for pod in gang("e", pods=3, on=["n0", "n1", "n2"])]
    rig = away("n0", "n1", "n2", pods=pods)
    state = rig.engine.state
    step = shrunk(rig, "n0")
    state.busy_gangs["ml/e"] = "plan"
    assert homecoming(state, loan(rig, "n1"), rig.now) == Because(Reason.IN_TRANSIT, {"node": "ml/e"})
    assert step.members[0].node == "n0"
