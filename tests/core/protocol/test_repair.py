"""Act repairs a node that bears our taint and no mark of its own, and only that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Node, Taint
from rebalancer.core.plan import Method, Plan, RestoreNode
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import PatchNode
from rebalancer.core.protocol.fallback import due_returns
from rebalancer.core.units import CLOSING, ON_LOAN, OwnerClass
from tests.core.protocol.fake import FOREIGN, OWNER, POLICY, T0, Cluster, Driver, lent, mark, node, plan_of, pod

POOL = PoolPolicy("infer-a100", "A100", OwnerClass.INFERENCE, owner_taint=OWNER)
PLACE = Taint(ON_LOAN, "training")
COPIED = replace(mark(), node_uid="uid-before", epoch=99)


def plan(owner_taint: Taint | None = OWNER, loan: str = "") -> Plan:
    return plan_of(RestoreNode(loan, "uid-n1", "n1", T0, owner_taint), method=Method.RETURN, pressing=False)


def drive(bad: Node, made: Plan | None = None, cluster: Cluster | None = None) -> tuple[Cluster, Driver]:
    cluster = cluster or Cluster()
    cluster.put(bad)
    actor = Actor(Policy({"infer-a100": POOL}), epoch=1)
    return cluster, Driver(cluster, actor).feed(made or plan()).run()


STRAYS: dict[str, tuple[Node, Taint | None]] = {
    "on loan": (node(taints=(FOREIGN, PLACE)), OWNER),
    "on loan and closing": (node(taints=(FOREIGN, PLACE, Taint(CLOSING))), OWNER),
    "closing": (node(taints=(FOREIGN, OWNER, Taint(CLOSING))), None),
    "a copied mark": (node(taints=(FOREIGN, PLACE), loan=COPIED), OWNER),
    "the owner's taint came back meanwhile": (node(taints=(FOREIGN, OWNER, PLACE)), OWNER),
}


@pytest.mark.parametrize(("bad", "lacks"), STRAYS.values(), ids=STRAYS)
def test_the_owners_taint_is_back_and_nothing_of_ours_is_left(bad: Node, lacks: Taint | None) -> None:
    cluster, driver = drive(bad, plan(lacks))
    assert driver.results() == ["restore done confirmed"]
    assert cluster.nodes["n1"].taints == (FOREIGN, OWNER)
    assert cluster.nodes["n1"].loan is None


def test_a_node_that_somebody_repaired_is_left_as_it_is() -> None:
    cluster, driver = drive(node())
    assert driver.results() == ["restore done confirmed"]
    assert not [call for call in cluster.log if isinstance(call, PatchNode)]


def test_its_owners_pods_may_stay() -> None:
    cluster = Cluster()
    cluster.pods["r"] = pod("r", owner=OwnerClass.INFERENCE, reclaimable=False)
    _, driver = drive(node(taints=(PLACE,)), cluster=cluster)
    assert driver.results() == ["restore done confirmed"]


def test_nobody_is_left_without_a_place_by_a_repair() -> None:
    cluster = Cluster()
    cluster.pods["t"] = pod("t")
    _, driver = drive(node(taints=(FOREIGN, PLACE)), cluster=cluster)
    assert driver.results() == ["restore cancelled node-taken"]
    assert cluster.nodes["n1"].taints == (FOREIGN, PLACE)
    assert cluster.real_evictions() == []


def test_a_lent_node_is_not_a_stray() -> None:
    cluster, driver = drive(lent())
    assert driver.results() == ["restore refused node-changed"]
    assert cluster.nodes["n1"].loan == mark()


def test_no_plan_may_put_another_taint_on_a_node() -> None:
    cluster, driver = drive(node(taints=(PLACE,)), plan(Taint("evil", "", "NoExecute")))
    assert driver.results() == ["restore refused node-changed"]
    assert cluster.log == []


def test_a_taint_in_the_plan_means_nothing_where_the_mark_says_it() -> None:
    bare = replace(lent(), loan=replace(mark(), taint=None, taint_index=None))
    cluster, driver = drive(replace(bare, taints=(FOREIGN, PLACE)), plan(OWNER, loan="loan-n1"))
    assert driver.results() == ["restore done confirmed"]
    assert cluster.nodes["n1"].taints == (FOREIGN,)


def test_a_copied_mark_brings_nobody_home_while_kafka_is_silent() -> None:
    late = T0 + timedelta(days=1)
    assert due_returns([replace(lent(), loan=COPIED)], [], [], POLICY, late) == []
    assert len(due_returns([lent()], [], [], POLICY, late)) == 1
