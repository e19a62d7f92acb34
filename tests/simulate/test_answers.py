"""Every kind of answer that the API server gives, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Requirement, Selector, Taint
from rebalancer.core.plan import Member
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)
from rebalancer.core.units import CLOSING
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.scenario import BudgetSpec, FaultSpec
from tests.simulate.worlds import CHAT, evict, job, member, patch, pods_of, steps, world

NOBODY = Member("no-such-uid", "research", "no-such-pod", "", 8)


def budgeted(**budget: int) -> SimulatedCluster:
    """A gang of two under a budget of its own."""
    cluster = world(jobs=[job(pods=2, gpus=4, budget=budget)])
    steps(cluster, 5)
    return cluster


def evict_first(cluster: SimulatedCluster) -> Answer:
    return evict(cluster, pods_of(cluster, "tune")[0])


def troubled(kind: str, **more: Any) -> SimulatedCluster:
    cluster = budgeted(min_available=0)
    cluster.inject(FaultSpec("api", 0, target=kind, calls=("evict-pod",), count=1, **more))
    return cluster


def two_budgets() -> SimulatedCluster:
    cluster = budgeted(min_available=0)
    everyone: Selector = (Requirement("workload-type", "In", ("training",)),)
    cluster._api._budgets.add("research", "second", everyone, BudgetSpec(min_available=0), scalable=False, t=0.0)
    return cluster


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(lambda: budgeted(min_available=0), AnswerKind.OK, id="a budget that allows lets the pod go"),
        pytest.param(lambda: budgeted(min_available=2), AnswerKind.BLOCKED, id="minAvailable of all allows nobody"),
        pytest.param(lambda: budgeted(max_unavailable=2), AnswerKind.BLOCKED, id="maxUnavailable on a Job allows none"),
        pytest.param(two_budgets, AnswerKind.TWO_BUDGETS, id="two budgets over one pod are never evictable"),
        pytest.param(lambda: troubled("throttled"), AnswerKind.THROTTLED, id="throttling when asked for"),
        pytest.param(lambda: troubled("forbidden"), AnswerKind.FORBIDDEN, id="forbidden when asked for"),
        pytest.param(lambda: troubled("timed-out"), AnswerKind.TIMED_OUT, id="a time-out when asked for"),
        pytest.param(lambda: troubled("unreachable"), AnswerKind.UNREACHABLE, id="unreachable when asked for"),
        pytest.param(lambda: troubled("failed"), AnswerKind.FAILED, id="a failure when asked for"),
    ],
)
def test_an_eviction_is_answered_with(make: Callable[[], SimulatedCluster], kind: AnswerKind) -> None:
    assert evict_first(make()).kind is kind


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param({"name": "another"}, AnswerKind.GONE, id="a pod that is not there is gone"),
        pytest.param({"uid": "another"}, AnswerKind.CONFLICT, id="a name that belongs to another uid is a conflict"),
    ],
)
def test_an_eviction_names_one_very_pod(change: dict[str, str], kind: AnswerKind) -> None:
    cluster = budgeted(min_available=0)
    wanted = replace(member(pods_of(cluster, "tune")[0]), **change)  # type: ignore[arg-type]  # text fields only
    assert cluster.answer(EvictPod(wanted, "plan")).kind is kind


def test_a_time_out_may_have_landed_all_the_same() -> None:
    cluster = troubled("timed-out", lands=True)
    pod = pods_of(cluster, "tune")[0]
    evict(cluster, pod)
    assert cluster.store.pods[pod.uid].deleting_at is not None


def test_throttling_says_when_to_come_back_and_ends_after_its_count() -> None:
    cluster = troubled("throttled", delay_seconds=10.0)
    first, second = evict_first(cluster), evict_first(cluster)
    assert (first.retry_after, second.kind) == (10.0, AnswerKind.OK)


def test_dry_runs_take_nothing_from_a_budget_and_real_evictions_do() -> None:
    cluster = budgeted(min_available=1)
    one, two = pods_of(cluster, "tune")
    dry = [evict(cluster, pod, dry_run=True).kind for pod in (one, two)]
    real = [evict(cluster, pod).kind for pod in (one, two)]
    assert dry == [AnswerKind.OK, AnswerKind.OK]
    assert real == [AnswerKind.OK, AnswerKind.BLOCKED]
    assert cluster.books.evictions == 1


def test_evicting_a_leaving_pod_succeeds_and_counts_once() -> None:
    cluster = world(jobs=[job(grace_seconds=300, checkpoint_seconds=200.0)])
    steps(cluster, 5)
    answers = [evict_first(cluster).kind, evict_first(cluster).kind]
    assert answers == [AnswerKind.OK, AnswerKind.OK]
    assert cluster.books.evictions == 1


def test_a_pending_pod_bypasses_its_budget() -> None:
    cluster = world(jobs=[job(pods=9, gpus=8, budget={"min_available": 9})])
    steps(cluster, 2)
    assert evict_first(cluster).kind is AnswerKind.OK


def test_a_budget_allows_again_when_its_pods_are_healthy_again() -> None:
    cluster = world(services=[{**CHAT, "minimum": 2, "start_seconds": 30.0, "budget": {"max_unavailable": 1}}])
    first, second = pods_of(cluster, "chat")
    assert evict(cluster, first).kind is AnswerKind.OK
    assert evict(cluster, second).kind is AnswerKind.BLOCKED
    steps(cluster, 3)
    assert evict(cluster, second).kind is AnswerKind.OK


def test_a_patch_needs_the_version_that_was_read() -> None:
    cluster = world()
    node = cluster.store.nodes["infer-a100-00"]
    closing = (*node.taints, Taint(CLOSING))
    first, stale = patch(cluster, node, closing, None), patch(cluster, node, (), None)
    assert (first.kind, stale.kind) == (AnswerKind.OK, AnswerKind.CONFLICT)
    assert first.node == cluster.store.nodes["infer-a100-00"]
    assert cluster.store.nodes["infer-a100-00"].taints == closing


def test_a_patch_that_changes_nothing_keeps_the_version() -> None:
    cluster = world()
    node = cluster.store.nodes["infer-a100-00"]
    answer = patch(cluster, node, node.taints, None)
    assert answer.node is not None
    assert answer.node.resource_version == node.resource_version


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        pytest.param(ReadNode("infer-a100-00"), AnswerKind.OK, id="a node that is there is read"),
        pytest.param(ReadNode("nowhere"), AnswerKind.GONE, id="a node that is not there is gone"),
        pytest.param(PatchNode("u", "nowhere", "1", (), None), AnswerKind.GONE, id="a patch of no node is gone"),
        pytest.param(
            PatchNode("other", "infer-a100-00", "1", (), None), AnswerKind.CONFLICT, id="another node of that name"
        ),
        pytest.param(ReadBudgets("serving"), AnswerKind.OK, id="budgets of a namespace are listed"),
        pytest.param(ReadMembers((NOBODY,)), AnswerKind.OK, id="reading nobody finds nobody"),
    ],
)
def test_other_calls_are_answered_with(call: Any, kind: AnswerKind) -> None:
    assert world().answer(call).kind is kind


def test_a_list_of_a_node_names_its_pods_and_reads_are_live() -> None:
    cluster = world(jobs=[job()])
    steps(cluster, 3)
    pod = pods_of(cluster, "tune")[0]
    assert cluster.answer(ListPods("train-a100-00")).pods == (pod,)
    assert cluster.answer(ReadMembers((member(pod), NOBODY))).pods == (pod,)
    assert cluster.answer(ListPods("infer-a100-02")).pods == ()


def test_notice_to_a_gang_that_is_gone_says_so() -> None:
    cluster = world()
    call = GiveNotice("research/none-0", (NOBODY,), "Job/none", cluster.moment + timedelta(minutes=1), "due")
    assert cluster.answer(call).kind is AnswerKind.GONE
