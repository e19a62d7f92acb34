"""A gang is read once while its nodes are being closed; what was asked too long before they are counts for nothing."""

from __future__ import annotations

from datetime import timedelta

from rebalancer.core.protocol.calls import Answer, AnswerKind, Call, EvictPod, ReadMembers, writes
from tests.core.protocol.fake import POLICY, T0, Cluster, Driver, Fault, lent_cluster, pod, take_back

POLL = POLICY.acting.poll


def small() -> Cluster:
    return lent_cluster("n1", pods=[pod("p0", gpus=4), pod("p1", gpus=4)])


def kinds(calls: list[tuple[int, Call]]) -> list[str]:
    return [call.kind for _, call in calls]


def test_it_is_read_in_the_first_round_and_checked_only_once_its_node_is_closed() -> None:
    driver = Driver(small()).feed(take_back(small()))
    first = driver.actor.advance(T0)
    assert kinds(first) == ["read-node", "read-members"]
    for call_id, call in first:
        driver.actor.answered(call_id, driver.cluster.answer(call), T0)
    patch = driver.actor.advance(T0)
    assert kinds(patch) == ["patch-node"]
    driver.actor.answered(patch[0][0], driver.cluster.answer(patch[0][1]), T0)
    assert kinds(driver.actor.advance(T0)) == ["read-budgets", "evict-pod", "evict-pod"]


def test_while_closing_is_held_up_it_is_read_once_and_once_more_when_that_is_over() -> None:
    cluster = small()
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.UNREACHABLE))] * 3
    driver = Driver(cluster).feed(take_back(cluster)).run()
    closed = max(at for at, call in enumerate(cluster.log) if call.kind == "patch-node" and at < _dry(cluster))
    reads = [at for at, call in enumerate(cluster.log) if isinstance(call, ReadMembers)]
    assert [at < closed for at in reads[:2]] == [True, False]
    assert all(item.result.value == "done" for item in driver.finals())


def test_what_was_asked_long_before_its_node_was_closed_counts_for_nothing_also_if_it_is_answered_after() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster))
    read, members = driver.actor.advance(T0)
    old, later = cluster.answer(members[1]), T0 + 3 * POLL
    driver.actor.answered(read[0], cluster.answer(read[1]), later)
    ((patch_id, patch),) = driver.actor.advance(later)
    driver.actor.answered(patch_id, cluster.answer(patch), later)
    driver.actor.answered(members[0], old, later)
    assert kinds(driver.actor.advance(later)) == ["read-members"]


def test_nothing_is_written_of_a_gang_whose_node_cannot_be_closed() -> None:
    cluster = small()
    cluster.always = lambda call: Fault(Answer(AnswerKind.FORBIDDEN)) if call.kind == "patch-node" else None
    Driver(cluster).feed(take_back(cluster)).run(limit=timedelta(hours=1))
    written = [call for call in cluster.log if writes(call) or isinstance(call, EvictPod)]
    assert {call.kind for call in written} == {"patch-node"}


def _dry(cluster: Cluster) -> int:
    return next(at for at, call in enumerate(cluster.log) if isinstance(call, EvictPod))
