"""Leftovers of a crash while nobody decides: repaired after the quarantine, and nobody is evicted for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control, Node, Taint
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.strays import Strays
from rebalancer.core.units import CLOSING, ON_LOAN, Mode, OwnerClass
from tests.core.protocol.fake import FOREIGN, OWNER, T0, Cluster, Driver, mark, node, pod

POOL = PoolPolicy("infer-a100", "A100", OwnerClass.INFERENCE, Mode.ACT, owner_taint=OWNER)
POLICY = Policy({"infer-a100": POOL})
TTL = POLICY.acting.quarantine_ttl
PLACE = Taint(ON_LOAN, "training")
CLOSED = node(taints=(FOREIGN, OWNER, Taint(CLOSING)))
ON_LOAN_ONLY = node(taints=(FOREIGN, PLACE))


@pytest.mark.parametrize("bad", [CLOSED, ON_LOAN_ONLY], ids=["closed by a crash", "on loan by nobody's mark"])
def test_a_stray_is_repaired_once_its_quarantine_is_over(bad: Node) -> None:
    strays = Strays()
    assert strays.ripe([bad], POLICY, T0) == []
    assert strays.ripe([bad], POLICY, T0 + TTL - timedelta(seconds=1)) == []
    ripe = strays.ripe([bad], POLICY, T0 + TTL)
    (plan,) = strays.plans(ripe, [], POLICY, T0 + TTL, term=7)
    cluster = Cluster()
    cluster.put(bad)
    driver = Driver(cluster, Actor(POLICY, epoch=1)).feed(replace(plan, made_at=T0, valid_until=T0 + TTL)).run()
    assert driver.results() == ["restore done confirmed"]
    assert cluster.nodes["n1"].taints == (FOREIGN, OWNER)
    assert plan.term == 7


@pytest.mark.parametrize(
    ("bad", "policy"),
    [
        pytest.param(node(), POLICY, id="a node with nothing of ours"),
        pytest.param(node(taints=(PLACE,), loan=mark()), POLICY, id="a loan with its mark"),
        pytest.param(CLOSED, Policy({"infer-a100": replace(POOL, mode=Mode.SHADOW)}), id="a pool in shadow"),
        pytest.param(CLOSED, Policy({}), id="a pool that no policy names"),
    ],
)
def test_what_is_not_ours_to_touch_never_ripens(bad: Node, policy: Policy) -> None:
    strays = Strays()
    strays.ripe([bad], policy, T0)
    assert strays.ripe([bad], policy, T0 + 10 * TTL) == []


@pytest.mark.parametrize(("wanted", "ripe"), [(Mode.SHADOW, 0), (Mode.ACT, 1)])
def test_the_mode_that_a_person_set_holds_here_as_well(wanted: Mode, ripe: int) -> None:
    """Whatever the policy file says."""
    strays = Strays()
    policy = Policy({"infer-a100": replace(POOL, mode=Mode.ACT if wanted is Mode.SHADOW else Mode.SHADOW)})
    control = Control(modes={"infer-a100": wanted})
    strays.ripe([CLOSED], policy, T0, control)
    assert len(strays.ripe([CLOSED], policy, T0 + TTL, control)) == ripe


def test_a_node_that_others_use_is_left_as_it_is_and_its_owners_pods_are_no_others() -> None:
    strays = Strays()
    strays.ripe([CLOSED], POLICY, T0)
    ripe = strays.ripe([CLOSED], POLICY, T0 + TTL)
    ours = pod("r", owner=OwnerClass.INFERENCE, reclaimable=False)
    assert len(strays.plans(ripe, [ours], POLICY, T0 + TTL, 0)) == 1
    assert strays.plans(ripe, [ours, pod("w")], POLICY, T0 + TTL, 0) == []


def test_asking_again_makes_no_second_plan_until_its_retries_are_over() -> None:
    strays = Strays()
    strays.ripe([CLOSED], POLICY, T0)

    def plan_at(seconds: float) -> str:
        now = T0 + TTL + timedelta(seconds=seconds)
        return strays.plans(strays.ripe([CLOSED], POLICY, now), [], POLICY, now, 0)[0].id

    assert plan_at(0) == plan_at(5)
    assert plan_at(0) != plan_at(POLICY.acting.retry_deadline.total_seconds())


def test_a_quarantine_begins_anew_once_kafka_was_heard_or_the_node_was_well() -> None:
    strays = Strays()
    strays.ripe([CLOSED], POLICY, T0)
    strays.ripe([node()], POLICY, T0 + TTL / 2)
    assert strays.ripe([CLOSED], POLICY, T0 + TTL) == []
    strays.forget()
    assert strays.ripe([CLOSED], POLICY, T0 + 2 * TTL) == []
