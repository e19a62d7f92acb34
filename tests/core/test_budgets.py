"""Arithmetic of disruption budgets over whole gangs, as measured on a real control plane."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.budgetindex import BudgetIndex
from rebalancer.core.budgets import blocked_now, ceiling, covers, never_evictable
from rebalancer.core.facts import Budget, Pod, Requirement
from rebalancer.core.fit import matches
from rebalancer.core.inventory import Inventory
from rebalancer.core.reasons import Reason
from tests.core.build import START, budget, gang


def known(*facts: Pod | Budget) -> Inventory:
    inventory = Inventory()
    for fact in facts:
        inventory.observe(fact, START)
    return inventory


def ruled(expected: int, **thresholds: Any) -> Budget:
    return replace(budget("b", "a", 0, expected=expected, min_available=None), **thresholds)


@pytest.mark.parametrize(
    ("expected", "thresholds", "kind", "members", "most"),
    [
        pytest.param(8, {"min_available": 0}, "Job", 8, 8, id="minAvailable 0 lets all go"),
        pytest.param(8, {"min_available": 6}, "Job", 8, 2, id="minAvailable leaves that many"),
        pytest.param(8, {"min_available": 8}, "Job", 8, 0, id="minAvailable of all never allows"),
        pytest.param(8, {"min_available": 9}, "Job", 8, 0, id="minAvailable above all is no negative number"),
        pytest.param(8, {"min_available": 6}, "ReplicaSet", 8, 2, id="minAvailable on a scalable owner"),
        pytest.param(8, {"min_available": "50%"}, "Job", 8, 0, id="a percentage on an owner without scale"),
        pytest.param(8, {"min_available": "50%"}, "StatefulSet", 8, 4, id="a percentage on a scalable owner"),
        pytest.param(7, {"min_available": "50%"}, "StatefulSet", 7, 3, id="minAvailable in percent rounds up"),
        pytest.param(7, {"min_available": "0%"}, "StatefulSet", 7, 7, id="minAvailable of 0 %"),
        pytest.param(7, {"min_available": "100%"}, "StatefulSet", 7, 0, id="minAvailable of 100 %"),
        pytest.param(8, {"max_unavailable": 8}, "Job", 8, 0, id="maxUnavailable on an owner without scale"),
        pytest.param(8, {"max_unavailable": "100%"}, "Job", 8, 0, id="nor in percent"),
        pytest.param(8, {"max_unavailable": 3}, "Deployment", 8, 3, id="maxUnavailable on a scalable owner"),
        pytest.param(8, {"max_unavailable": 30}, "Deployment", 8, 8, id="maxUnavailable never exceeds what there is"),
        pytest.param(7, {"max_unavailable": "50%"}, "ReplicaSet", 7, 4, id="maxUnavailable in percent rounds up"),
        pytest.param(8, {"max_unavailable": 0}, "ReplicaSet", 8, 0, id="maxUnavailable 0"),
        pytest.param(8, {}, "Job", 8, 8, id="no threshold at all"),
        pytest.param(2, {"min_available": 2}, "Job", 8, 6, id="members that the status does not know yet count"),
        pytest.param(16, {"min_available": 8}, "Job", 8, 8, id="others under the same budget count"),
        pytest.param(8, {"max_unavailable": "many"}, "ReplicaSet", 8, 0, id="an unreadable maxUnavailable"),
        pytest.param(8, {"min_available": "few"}, "ReplicaSet", 8, 0, id="an unreadable minAvailable"),
        pytest.param(8, {"max_unavailable": "inf%"}, "ReplicaSet", 8, 0, id="an endless maxUnavailable"),
        pytest.param(100, {"max_unavailable": "7%"}, "ReplicaSet", 100, 7, id="a percentage is exact"),
    ],
)
def test_the_most_a_budget_could_ever_allow(
    expected: int, thresholds: dict[str, int | str], kind: str, members: int, most: int
) -> None:
    pods = [replace(pod, controller_kind=kind) for pod in gang("a", pods=members)]
    assert ceiling(ruled(expected, **thresholds), pods) == most


def test_one_member_without_a_scalable_owner_is_enough_to_allow_nothing() -> None:
    scalable, job = (
        replace(pod, controller_kind=kind) for pod, kind in zip(gang("a", 2), ("ReplicaSet", "Job"), strict=True)
    )
    assert ceiling(ruled(2, max_unavailable=2), [scalable, job]) == 0


@given(expected=st.integers(1, 300), percent=st.integers(0, 100))
def test_the_two_thresholds_agree_with_the_disruption_controller(expected: int, percent: int) -> None:
    """Both round up: minAvailable p leaves floor((1 - p) n) to go, maxUnavailable p lets ceil(p n) go."""
    pods = [replace(pod, controller_kind="ReplicaSet") for pod in gang("a")]
    share = math.ceil(percent * expected / 100)
    assert ceiling(ruled(expected, min_available=f"{percent}%"), pods) == expected - share
    assert ceiling(ruled(expected, max_unavailable=f"{percent}%"), pods) == share


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        pytest.param({}, True, id="selector and namespace match"),
        pytest.param({"namespace": "other"}, False, id="of another namespace"),
        pytest.param({"selector": None}, False, id="no selector covers nothing"),
        pytest.param({"selector": ()}, True, id="the empty selector covers everything"),
        pytest.param({"selector": (Requirement("job", "In", ("b",)),)}, False, id="another job's"),
    ],
)
def test_which_pods_a_budget_covers(changes: dict[str, Any], covered: bool) -> None:
    (pod,) = gang("a")
    inventory = known(pod, replace(budget("b", "a", 1), **changes))
    assert bool(inventory.budgets.over(pod)) is covered


def test_a_budget_that_selects_others_now_is_over_those_it_selected_no_more() -> None:
    (pod,) = gang("a")
    inventory = known(pod, budget("b", "a", 1))
    assert inventory.observe(replace(budget("b", "a", 1), selector=(Requirement("job", "In", ("b",)),)), START)
    assert inventory.budgets.over(pod) == []
    assert inventory.budgets.over(replace(pod, labels={"job": "b"}))


REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(["job", "app"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(tuple),
)
SELECTORS = st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple)
CHANGES = st.lists(st.tuples(st.sampled_from("12345"), st.sampled_from(["put", "drop"]), SELECTORS), max_size=12)


@given(changes=CHANGES, labels=st.dictionaries(st.sampled_from(["job", "app"]), st.sampled_from("abc")))
def test_whatever_came_and_went_the_budgets_over_a_pod_are_those_that_select_it(
    changes: list[tuple[str, str, tuple[Requirement, ...] | None]], labels: dict[str, str]
) -> None:
    (first, *_) = gang("a")
    pod, index = replace(first, labels=labels), BudgetIndex()
    held: dict[str, Budget] = {}
    for uid, what, selector in changes:
        old = held.pop(uid, None)
        if what == "put":
            held[uid] = replace(budget("b", "a", 1), uid=uid, name=uid, selector=selector)
            index.put(held[uid], old)
        elif old is not None:
            index.drop(old)
    selected = [one for one in held.values() if one.selector is not None and matches(one.selector, labels)]
    assert index.over(pod) == sorted(selected, key=lambda one: one.name)
    assert sorted(one.uid for one in index.all()) == sorted(
        uid for uid, one in held.items() if one.selector is not None
    )


def test_budgets_come_in_name_order_with_the_members_they_cover() -> None:
    one, two = gang("a", pods=2)
    two = replace(two, labels={"job": "other"})
    inventory = known(one, two, budget("z", "a", 1), budget("m", "other", 1))
    assert [(cover.budget.name, [pod.name for pod in cover.members]) for cover in covers(inventory, [one, two])] == [
        ("m", ["a-1"]), ("z", ["a-0"]),
    ]  # fmt: skip
    assert covers(known(one), [one]) == []


def test_two_budgets_over_one_pod_never_let_it_go() -> None:
    """The eviction API answers 500 for ever (E09)."""
    (pod,) = gang("a", on=["n0"])
    inventory = known(pod, budget("b", "a", 9), budget("c", "a", 9))
    for found in (never_evictable(inventory, "ml/a", [pod]), blocked_now(inventory, "ml/a", [pod], {})):
        assert found is not None
        assert (found.reason, dict(found.numbers)) == (Reason.TWO_BUDGETS, {"pod": "ml/a-0"})


@pytest.mark.parametrize(("least", "never"), [(0, False), (1, True)], ids=["all may go", "one too few may go"])
def test_a_gang_whose_budget_can_never_let_all_of_it_go(least: int, never: bool) -> None:
    pods = gang("a", pods=4)
    inventory = known(*pods, budget("b", "a", 4, expected=4, min_available=least))
    found = never_evictable(inventory, "ml/a", pods)
    assert (found is not None) is never
    if found is not None:
        assert found.reason is Reason.BUDGET_NEVER_ALLOWS
        assert dict(found.numbers) == {"budget": "b", "ceiling": 3, "members": 4, "gang": "ml/a"}


def test_a_budget_may_allow_more_than_the_gang_has() -> None:
    pods = gang("a", pods=2)
    inventory = known(*pods, budget("b", "a", 0, expected=8))
    assert never_evictable(inventory, "ml/a", pods) is None
    assert never_evictable(known(*pods), "ml/a", pods) is None


def test_what_a_budget_allows_now_says_nothing_about_what_it_could_ever_allow() -> None:
    pods = gang("a", pods=4)
    assert never_evictable(known(*pods, budget("b", "a", 0, expected=4)), "ml/a", pods) is None


@pytest.mark.parametrize(
    ("allowed", "current", "in_flight", "blocked"),
    [
        pytest.param(3, True, {}, None, id="as many as the gang has"),
        pytest.param(2, True, {}, 2, id="one too few"),
        pytest.param(9, False, {}, 0, id="a status of an older spec allows nothing"),
        pytest.param(4, True, {"ml/b": 1}, None, id="our evictions on the way are taken off"),
        pytest.param(4, True, {"ml/b": 2}, 2, id="and may leave too few"),
        pytest.param(4, True, {"other/b": 2}, None, id="those of a namesake elsewhere are not"),
    ],
)
def test_what_blocks_a_gang_now(allowed: int, current: bool, in_flight: dict[str, int], blocked: int | None) -> None:
    """F17: one budget that does not allow all members keeps the whole gang."""
    pods = gang("a", pods=3, on=["n0", "n1", "n2"])
    inventory = known(*pods, replace(budget("b", "a", allowed), current=current))
    found = blocked_now(inventory, "ml/a", pods, in_flight)
    assert (found.numbers["allowed"] if found is not None else None) == blocked
    if found is not None:
        assert (found.reason, found.numbers["members"], found.numbers["gang"]) == (Reason.BUDGET_BLOCKED, 3, "ml/a")
        assert found.numbers["budget"] == "b"


def test_members_that_wait_or_are_leaving_need_no_allowance() -> None:
    """Pending pods pass a budget by, and a pod that is being deleted is counted by its status already."""
    bound, waits, leaves = gang("a", pods=3, on=["n0", "n1", "n2"])
    pods = [bound, replace(waits, node=""), replace(leaves, deleting_at=START)]
    assert blocked_now(known(*pods, budget("b", "a", 1)), "ml/a", pods, {}) is None
    assert blocked_now(known(*pods, budget("b", "a", 0)), "ml/a", pods, {}) is not None
