"""The cluster as last observed: whatever order news come in, totals are exact and nothing is resurrected."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from rebalancer.core import news
from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, PodPhase
from rebalancer.core.inventory import Inventory
from rebalancer.core.stimuli import Fact, FactKind, kind_of
from rebalancer.core.supply import Totals, usable
from rebalancer.core.units import OwnerClass
from tests.core.build import START, budget, gang, lent, node, replica

POOL = "infer-a100"


def later(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def known(*facts: Fact) -> Inventory:
    inventory = Inventory()
    for fact in facts:
        inventory.observe(fact, START)
    return inventory


def test_the_same_pod_three_times_is_held_once() -> None:
    """F59."""
    pod = replica("chat", on="n0")
    inventory = known(node("n0"))
    assert [inventory.observe(pod, START) for _ in range(3)] == [True, False, False]
    assert inventory.totals(POOL).held == 8


@pytest.mark.parametrize(
    ("version", "at", "applied"),
    [
        pytest.param("11", later(-5), True, id="a higher version counts, whatever its event time"),
        pytest.param("10", later(5), False, id="the same version is the same news"),
        pytest.param("9", later(5), False, id="a lower version is late"),
        pytest.param("", later(5), True, id="without a version the later time counts"),
        pytest.param("", later(-5), False, id="without a version the earlier time is late"),
        pytest.param("b7", later(5), True, id="an opaque version is not compared"),
        pytest.param("b7", later(-5), False, id="an opaque version falls back to the time"),
        pytest.param("", START, True, id="of one moment the last told counts"),
    ],
)
def test_which_of_two_versions_counts(version: str, at: datetime, applied: bool) -> None:
    inventory = known(node("n0", resource_version="10"))
    assert inventory.observe(node("n0", resource_version=version, cordoned=True), at) is applied
    assert inventory.nodes["uid-n0"].cordoned is applied


def test_a_budget_that_comes_late_is_old_news_and_one_of_the_same_moment_is_not() -> None:
    inventory = known(budget("b", "a", 3))
    assert not inventory.observe(budget("b", "a", 0), later(-1))
    assert inventory.observe(budget("b", "a", 1), START)
    assert [one.allowed for one in inventory.budgets.all()] == [1]
    assert inventory.observed_at("uid-budget-b") == START


@pytest.mark.parametrize("of", ["pod", "node", "budget", "group", "namespace"])
def test_a_deletion_wins_over_an_addition_that_comes_after_it(of: FactKind) -> None:
    facts: dict[str, Fact] = {
        "pod": replica("chat", on="n0"),
        "node": node("n0"),
        "budget": budget("b", "a", 1),
        "group": GangSpec("uid-g", "ml/a", "ml", 2, 2),
        "namespace": Namespace("uid-ns", "ml"),
    }
    inventory = Inventory()
    assert inventory.delete(of, facts[of].uid) is None
    assert not inventory.observe(facts[of], later(5))
    assert inventory.uids(of) == []


def test_the_control_object_may_come_again_after_its_deletion() -> None:
    """It has one name for ever: deleting it lifts the brakes, creating it again applies them."""
    inventory = known(Control(paused=True))
    assert inventory.delete("control", "control") == Control(paused=True)
    assert not inventory.control.paused
    assert inventory.observe(Control(paused=True), later(1))
    assert inventory.control.paused


def test_the_graveyard_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "GRAVEYARD", 2)
    inventory = Inventory()
    for name in ("a", "b", "c"):
        inventory.delete("pod", f"uid-{name}")
    assert inventory.observe(replica("a"), START)
    assert not inventory.observe(replica("b"), START)
    assert not inventory.observe(replica("c"), START)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        pytest.param({}, True, id="ready"),
        pytest.param({"ready": False}, False, id="not ready"),
        pytest.param({"cordoned": True}, False, id="cordoned"),
        pytest.param({"starting": True}, False, id="its device plugin has not registered"),
        pytest.param({"quarantine": "two models"}, False, id="labels in conflict"),
        pytest.param({"gpus": 0}, False, id="nothing allocatable"),
    ],
)
def test_what_counts_as_supply(changes: dict[str, Any], counts: bool) -> None:
    """F36, F38, F58."""
    item = replace(node("n0"), **changes)
    totals = known(item).totals(POOL)
    assert usable(item) is counts
    assert (totals.usable, totals.unusable) == ((8, 0) if counts else (0, item.gpus))


def test_sums_of_a_pool() -> None:
    leaving = replace(gang("a", on=["n1"])[0], gpus=4, deleting_at=later(1))
    inventory = known(
        node("n0"), lent(node("n1")), node("n2", ready=False), replica("chat", on="n0", gpus=5), leaving,
        *gang("ended", on=["n1"], phase=PodPhase.SUCCEEDED),
    )  # fmt: skip
    assert inventory.totals(POOL) == Totals(
        nodes=3, owned=24, usable=8, away=8, held=9, held_by_owner=5, releasing=4, borrowed=4, unusable=8
    )
    assert inventory.totals("nowhere") == Totals()
    assert inventory.free(inventory.nodes["uid-n0"]) == 3


def test_free_is_never_negative() -> None:
    inventory = known(node("n0", gpus=4), replica("chat", on="n0", gpus=8))
    assert inventory.free(inventory.nodes["uid-n0"]) == 0
    assert inventory.held(inventory.nodes["uid-n0"]) == 8


def test_a_pod_bound_before_its_node_is_known_counts_once_the_node_comes() -> None:
    inventory = known(replica("chat", on="n0"))
    assert inventory.totals(POOL).held == 0
    inventory.observe(node("n0"), START)
    assert inventory.totals(POOL).held == 8


def test_a_node_that_changes_its_pool_takes_its_sums_along() -> None:
    inventory = known(node("n0"), replica("chat", on="n0"))
    inventory.observe(node("n0", pool="infer-l20"), later(1))
    assert (inventory.totals(POOL), inventory.totals("infer-l20").held) == (Totals(), 8)
    assert POOL not in inventory.members
    assert list(inventory.members["infer-l20"]) == ["uid-n0"]


def test_the_name_of_a_node_is_the_newest_one_that_bears_it() -> None:
    inventory = known(node("n0"), replica("chat", on="n0"))
    inventory.observe(node("n0", uid="uid-new"), later(1))
    assert list(inventory.nodes) == ["uid-new"]
    assert inventory.totals(POOL).owned == 8
    assert inventory.totals(POOL).held == 8
    assert not inventory.observe(node("n0"), later(2))
    found = inventory.node_named("n0")
    assert found is not None
    assert found.uid == "uid-new"


def test_deleting_the_old_bearer_of_a_name_leaves_the_new_one() -> None:
    inventory = known(node("n0"))
    inventory.observe(node("n0", uid="uid-new"), later(1))
    assert inventory.delete("node", "uid-n0") is None
    assert inventory.node_named("n0") is not None
    inventory.delete("node", "uid-new")
    assert inventory.node_named("n0") is None


def test_what_a_pod_is_waiting_for_holds_its_nominated_node() -> None:
    """A nominated node is not empty, though nothing is held there."""
    waiting = replica("chat", nominated_node="n0")
    inventory = known(node("n0"), node("n1"))
    assert list(inventory.shares.empty[POOL]) == ["uid-n0", "uid-n1"]
    inventory.observe(waiting, START)
    assert list(inventory.shares.empty[POOL]) == ["uid-n1"]
    inventory.observe(replace(waiting, nominated_node="", node="n1", phase=PodPhase.RUNNING), later(1))
    assert inventory.nominated == {}
    assert list(inventory.shares.empty[POOL]) == ["uid-n0"]


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        pytest.param({}, True, id="asked for and not bound"),
        pytest.param({"gpus": None}, True, id="with an unknown count"),
        pytest.param({"gpus": 0}, False, id="without GPUs"),
        pytest.param({"gated": True}, False, id="gated"),
        pytest.param({"node": "n0"}, False, id="bound"),
        pytest.param({"phase": PodPhase.FAILED}, False, id="ended"),
        pytest.param({"deleting_at": START}, False, id="leaving"),
    ],
)
def test_who_is_pending(changes: dict[str, Any], waits: bool) -> None:
    pod = replace(replica("chat"), **changes)
    assert (pod.uid in known(pod).pending[OwnerClass.INFERENCE]) is waits


def test_a_pod_that_stops_waiting_leaves_every_index() -> None:
    inventory = known(node("n0"), replica("chat", nominated_node="n0"))
    inventory.delete("pod", "uid-chat")
    assert inventory.pending[OwnerClass.INFERENCE] == {}
    assert (inventory.gangs, inventory.nominated, inventory.pods_on) == ({}, {}, {})
    assert list(inventory.shares.empty[POOL]) == ["uid-n0"]


def test_members_of_a_gang_come_in_name_order() -> None:
    pods = gang("a", pods=3)
    assert [pod.name for pod in known(*pods[::-1]).gang_pods("ml/a")] == ["a-0", "a-1", "a-2"]


def test_labels_change_the_version_that_caches_look_at_and_readiness_does_not() -> None:
    inventory = known(node("n0"))
    inventory.label_keys.add("gpu-model")
    before = inventory.labels_version
    inventory.observe(node("n0", ready=False), later(1))
    assert inventory.labels_version == before
    inventory.observe(node("n0", labels={"gpu-model": "L20"}), later(2))
    assert inventory.labels_version == before + 1
    inventory.delete("node", "uid-n0")
    assert inventory.labels_version == before + 2


def test_marks_are_indexed_and_dropped() -> None:
    inventory = known(lent(node("n0")), lent(node("n1")))
    inventory.observe(node("n0"), later(1))
    inventory.delete("node", "uid-n1")
    assert inventory.marked == {}


def test_other_objects_are_found_by_what_they_are_about_and_go_with_their_deletion() -> None:
    spec, space, rule = (
        GangSpec("uid-g", "ml/a", "ml", 2, 2),
        Namespace("uid-ns", "ml", opted_out=True),
        budget("b", "a", 1),
    )
    inventory = known(spec, space, rule)
    assert (inventory.specs["ml/a"], inventory.namespaces["ml"]) == (spec, space)
    assert inventory.uids("budget") == [rule.uid]
    assert inventory.delete("group", spec.uid) == spec
    assert inventory.delete("namespace", space.uid) == space
    assert inventory.delete("budget", rule.uid) == rule
    assert (inventory.specs, inventory.namespaces, inventory.budgets.all()) == ({}, {}, [])


def test_kinds_are_told_by_class() -> None:
    facts: list[Fact] = [
        node("n0"),
        replica("c"),
        budget("b", "a", 1),
        GangSpec("g", "g", "n", 1, 1),
        Namespace("n", "n"),
        Control(),
    ]
    assert [kind_of(fact) for fact in facts] == ["node", "pod", "budget", "group", "namespace", "control"]


def test_a_budget_of_another_namespace_is_kept_apart() -> None:
    one, other = budget("b", "a", 1), replace(budget("b", "a", 1), uid="uid-2", namespace="other")
    inventory = known(one, other)
    (pod,) = gang("a")
    assert [found.uid for found in inventory.budgets.over(pod)] == [one.uid]
    assert isinstance(inventory.delete("budget", "uid-2"), Budget)
