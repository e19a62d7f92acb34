"""A gang is read and checked once while its nodes are being closed; what was asked long before counts for nothing."""

from __future__ import annotations

from datetime import timedelta

from rebalancer.core.protocol.calls import Answer, AnswerKind, Call, EvictPod, ReadBudgets, ReadMembers, writes
from rebalancer.core.protocol.check import AHEAD
from rebalancer.core.reasons import Reason
from tests.core.protocol.fake import T0, Cluster, Driver, Fault, budget, lent_cluster, pod, take_back


def small() -> Cluster:
    return lent_cluster("n1", pods=[pod("p0", gpus=4), pod("p1", gpus=4)])


def kinds(calls: list[tuple[int, Call]]) -> list[str]:
    return [call.kind for _, call in calls]


def test_it_is_read_and_checked_while_its_node_is_closed_and_nothing_is_written_of_it_before_that() -> None:
    driver = Driver(small()).feed(take_back(small()))
    first = driver.actor.advance(T0)
    assert kinds(first) == ["read-node", "read-members"]
    for call_id, call in first:
        driver.actor.answered(call_id, driver.cluster.answer(call), T0)
    patch, *check = driver.actor.advance(T0)
    assert kinds([patch, *check]) == ["patch-node", "read-budgets", "evict-pod", "evict-pod"]
    assert [call.dry_run for _, call in check if isinstance(call, EvictPod)] == [True, True]
    for call_id, call in check:
        driver.actor.answered(call_id, driver.cluster.answer(call), T0)
    assert driver.actor.advance(T0) == []
    driver.actor.answered(patch[0], driver.cluster.answer(patch[1]), T0)
    evictions = [call for _, call in driver.actor.advance(T0)]
    assert [call.dry_run for call in evictions if isinstance(call, EvictPod)] == [False, False]


def test_while_closing_is_held_up_it_is_read_and_checked_once_and_once_more_when_that_is_over() -> None:
    cluster = small()
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.UNREACHABLE))] * 3
    driver = Driver(cluster).feed(take_back(cluster)).run()
    first = next(at for at, call in enumerate(cluster.log) if isinstance(call, EvictPod) and not call.dry_run)
    closed = max(at for at, call in enumerate(cluster.log) if call.kind == "patch-node" and at < first)
    for kind, times in ((ReadMembers, 1), (ReadBudgets, 1), (EvictPod, 2)):
        asked = [at < closed for at, call in enumerate(cluster.log) if isinstance(call, kind) and at < first]
        assert asked == [True] * times + [False] * times, kind
    assert all(item.result.value == "done" for item in driver.finals())


def test_what_was_asked_long_before_its_node_was_closed_counts_for_nothing_also_if_it_is_answered_after() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster))
    read, members = driver.actor.advance(T0)
    old, later = cluster.answer(members[1]), T0 + 3 * AHEAD
    driver.actor.answered(read[0], cluster.answer(read[1]), later)
    ((patch_id, patch),) = driver.actor.advance(later)
    driver.actor.answered(patch_id, cluster.answer(patch), later)
    driver.actor.answered(members[0], old, later)
    assert kinds(driver.actor.advance(later)) == ["read-members"]


def test_nothing_is_written_of_a_gang_whose_node_cannot_be_closed() -> None:
    cluster = small()
    cluster.always = lambda call: Fault(Answer(AnswerKind.FORBIDDEN)) if call.kind == "patch-node" else None
    Driver(cluster).feed(take_back(cluster)).run(limit=timedelta(hours=1))
    assert {call.kind for call in cluster.log if writes(call)} == {"patch-node"}
    assert len([call for call in cluster.log if isinstance(call, EvictPod)]) == 2, "a dry run each"


def test_no_check_is_asked_before_all_nodes_are_being_closed() -> None:
    cluster = lent_cluster("n1", "n2", pods=[pod("p0", "n1"), pod("p1", "n2")])
    cluster.faults["read-node"] = [Fault(Answer(AnswerKind.UNREACHABLE))]
    Driver(cluster).feed(take_back(cluster)).run()
    patches = [at for at, call in enumerate(cluster.log) if call.kind == "patch-node"]
    checks = [at for at, call in enumerate(cluster.log) if isinstance(call, EvictPod | ReadBudgets)]
    assert patches[1] < checks[0]


def test_what_a_check_has_refused_is_not_asked_again_while_closing_is_held_up() -> None:
    cluster = small()
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.UNREACHABLE))] * 4
    cluster.faults["read-budgets"] = [Fault(Answer(AnswerKind.FORBIDDEN))] * 9
    driver = Driver(cluster).feed(take_back(cluster)).run()
    asked = [call for call in cluster.log if isinstance(call, ReadBudgets)]
    assert len(asked) == 2, "once ahead, and once anew since that was long before all were closed"
    assert [item.because.reason for item in driver.finals() if item.kind == "evict"] == [Reason.FORBIDDEN]


def test_a_check_that_was_overtaken_by_an_eviction_of_ours_is_made_anew_once_all_are_closed() -> None:
    cluster = lent_cluster("n1", pods=[pod("a0", gang="a", labels={"gang": "both"})])
    cluster.budgets["a"] = budget(1, gang="both")
    driver = Driver(cluster).feed(take_back(cluster))
    asked = driver.actor.advance(T0)
    for call_id, call in asked:
        driver.actor.answered(call_id, cluster.answer(call), T0)
    (patch_id, patch), *check = driver.actor.advance(T0)
    for call_id, call in check:
        driver.actor.answered(call_id, cluster.answer(call), T0)
    cluster.budgets["a"] = budget(0, gang="both")
    driver.actor._site.flights.accepted("other")  # of another plan, and gone by now
    driver.actor.answered(patch_id, cluster.answer(patch), T0)
    assert driver.run().finals()[1].because.reason is Reason.BUDGET_BLOCKED
    assert [call.kind for call in cluster.log if isinstance(call, EvictPod) and not call.dry_run] == []
