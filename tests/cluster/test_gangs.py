"""Gangs go whole or not at all, whatever budgets, finalizers and the API server's answers are."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import LendNode, Result
from rebalancer.core.reasons import Reason
from tests.cluster.stage import Stage, staged
from tests.cluster.terms import DWELL, Pool
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ONE_HELD, SUM_HELD = Pool("infer-a100", "A100", nodes=2), Pool("infer-a40", "A40", nodes=2)
NEVER, NEVER_SHARE = Pool("infer-l20", "L20"), Pool("infer-l40", "L40")
CLOSES = Pool("infer-t4", "T4", nodes=2)
STUCK = Pool("infer-a10", "A10", nodes=2)
ANSWERS = {
    "throttled": Pool("infer-h100", "H100"),
    "two-budgets": Pool("infer-h200", "H200"),
    "not-found": Pool("infer-l4", "L4"),
    "error": Pool("infer-a30", "A30"),
    "hanging": Pool("infer-v100", "V100"),
    "answer-lost": Pool("infer-p100", "P100"),
}
POOLS = (ONE_HELD, SUM_HELD, NEVER, NEVER_SHARE, CLOSES, STUCK, *ANSWERS.values())
EVICTIONS = r"/namespaces/{}/pods/.*/eviction"
Pods = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(control_plane, tmp_path_factory.mktemp("gangs"), POOLS) as running:
        yield running


def lend_to(stage: Stage, pool: Pool, space: str, *gangs: str, pods: int = 4) -> dict[str, str]:
    """Have a node lent to each of these jobs of 8 GPUs, one after the other, and known to be; the node of each."""
    for number, gang in enumerate(gangs, start=1):
        fleet.plain_job(stage.plane, space, gang, pods, stage.work(pool.model, 8 // pods))
        stage.await_lent(pool.name, number)
        stage.await_running(space, gang, pods, pool=pool.name)
        stage.await_("its loan to stand", partial(stands, stage, pool, f"{space}/job/{gang}"), pool=pool.name)
    return {gang: fleet.pods(stage.plane, space, gang)[0]["spec"]["nodeName"] for gang in gangs}


def stands(stage: Stage, pool: Pool, gang: str) -> bool:
    """Whether the ledger has a loan to it on its way: who decides knows nothing of it before."""
    return any(one.gang == gang and one.phase is LoanPhase.ON_LOAN for one in stage.hearing.loans(pool.name))


def label_one(stage: Stage, pods: Pods) -> None:
    """Give the first of them a label that a budget can select."""
    stage.plane.api.patch(fleet.pod_path(pods[0]), {"metadata": {"labels": {"held": "yes"}}})


def chat_runs(stage: Stage, pool: Pool, space: str) -> None:
    """One inference replica arrives, and gets the node that it needs."""
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)


@pytest.mark.parametrize(
    ("pool", "whole"),
    [
        pytest.param(ONE_HELD, False, id="the budget of one member allows none"),
        pytest.param(SUM_HELD, True, id="the budget of all members allows fewer than the gang"),
    ],
)
def test_a_gang_that_budgets_hold_is_not_touched_and_the_next_one_goes_whole(
    stage: Stage, pool: Pool, whole: bool
) -> None:
    space = fleet.namespace(stage.plane, "held")
    lend_to(stage, pool, space, "older", "newer")  # the newer has lost less work, so it would go first
    if not whole:
        label_one(stage, fleet.pods(stage.plane, space, "newer"))
    stage.budget(space, "guard", {"app": "newer"} if whole else {"held": "yes"}, minAvailable=2 if whole else 1)
    stage.await_("the budget to be met", lambda: stage.allowed(space, "guard") == (2 if whole else 0))
    chat_runs(stage, pool, space)
    assert len(stage.watching.evicted(space, "older")) == 4
    assert [life.name for life in stage.watching.lives(space, "newer") if life.left is not None] == []
    assert stage.hearing.evicted(pool.name) == [f"{space}/job/older"]
    assert max(split.seconds for split in stage.watching.splits(space)) < 2.0
    rejected = [one.because.reason for plan in stage.hearing.plans(pool.name) for one in plan.alternatives]
    assert Reason.BUDGET_BLOCKED in rejected


@pytest.mark.parametrize(
    ("pool", "limits"),
    [
        pytest.param(NEVER, {"minAvailable": 2}, id="minAvailable of all"),
        pytest.param(NEVER_SHARE, {"maxUnavailable": 1}, id="maxUnavailable of a Job, which has no scale"),
    ],
)
def test_a_gang_whose_budget_can_never_allow_it_to_go_is_never_lent_to_and_why_says_so(
    stage: Stage, pool: Pool, limits: dict[str, int]
) -> None:
    space = fleet.namespace(stage.plane, "never")
    stage.budget(space, "guard", {"app": "fixed"}, **limits)
    fleet.plain_job(stage.plane, space, "fixed", 2, stage.work(pool.model, 4))
    stage.await_("its pods to wait", lambda: len(fleet.pods(stage.plane, space, "fixed")) == 2)
    fleet.plain_job(stage.plane, space, "free", 2, stage.work(pool.model, 4))  # younger, so it would come second
    (plan,) = stage.await_("a loan", lambda: stage.hearing.plans(pool.name), DWELL + 40.0, pool.name)
    gang = f"{space}/job/fixed"
    assert {step.gang for step in plan.steps if isinstance(step, LendNode)} == {f"{space}/job/free"}
    assert [one.because.reason for one in plan.alternatives if one.target == gang] == [Reason.BORROWER_NOT_EVICTABLE]
    told = lambda: "could not be taken back" in stage.one().page(f"/why/{gang}")  # noqa: E731
    stage.await_("why to say so", told, pool=pool.name)


def test_a_budget_that_closes_in_mid_gang_is_told_as_a_split_and_no_second_gang_is_harmed(stage: Stage) -> None:
    pool, space = CLOSES, fleet.namespace(stage.plane, "closes")
    lend_to(stage, pool, space, "older", "newer")
    holding = stage.proxy.fault("POST", EVICTIONS.format(space), dry=False, skip=1)
    stage.serve(space, pool.model, 1)
    stage.await_("the first member to go", lambda: stage.watching.evicted(space, "newer"), pool=pool.name)
    stage.budget(space, "guard", {"app": "newer"}, minAvailable=3)
    stage.await_("the budget to close", lambda: stage.allowed(space, "guard") == 0)
    stage.proxy.heal(holding)
    stage.await_("the split to be told", lambda: stage.hearing.alerts(Reason.GANG_SPLIT), pool=pool.name)
    assert len(stage.watching.evicted(space, "newer")) < 4
    assert stage.watching.evicted(space, "older") == []
    stage.plane.api.delete(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/guard")
    stage.await_running(space, "chat", 1, pool=pool.name)
    assert len(stage.watching.evicted(space, "newer")) == 4
    assert [life.name for life in stage.watching.lives(space, "older") if life.left is not None] == []
    stage.await_("the alert to clear", lambda: not stage.hearing.standing(pool.name), pool=pool.name)


def test_pods_that_finalizers_hold_are_releasing_once_and_told_as_stuck_and_nobody_goes_in_their_stead(
    stage: Stage,
) -> None:
    pool, space = STUCK, fleet.namespace(stage.plane, "stuck")
    lend_to(stage, pool, space, "older", "newer")
    held = fleet.pods(stage.plane, space, "newer")
    for pod in held:
        fleet.hold(stage.plane, pod)
    stage.serve(space, pool.model, 1)
    stuck = lambda: [one for one in stage.hearing.outcomes(pool.name) if one.because.reason is Reason.STUCK]  # noqa: E731
    stage.await_("the pods to be told as stuck", stuck, pool=pool.name)
    assert stage.watching.evicted(space, "older") == []
    for pod in held:
        fleet.release(stage.plane, pod)
    stage.await_running(space, "chat", 1, pool=pool.name)
    assert accepted(stage, space) == {pod["metadata"]["name"]: 1 for pod in held}
    assert stage.hearing.evicted(pool.name) == [f"{space}/job/newer"]
    assert stage.watching.evicted(space, "older") == []


def accepted(stage: Stage, space: str) -> Counter[str]:
    """How often the eviction of each pod was accepted; dry runs do not count."""
    real = [one for one in stage.proxy.requests("POST", EVICTIONS.format(space)) if "dryRun" not in one.path]
    return Counter(one.path.split("/")[-2] for one in real if one.status == 201)


THROTTLED = {"message": "Too many requests, please try again later.", "reason": "TooManyRequests"}
TWO_BUDGETS = {"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
                          "support.", "reason": "InternalError"}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "how"),
    [
        pytest.param(
            "throttled",
            {"status": 429, "body": THROTTLED, "headers": {"Retry-After": "1"}, "times": 3},
            id="429 without a cause is asked again of the same pods",
        ),
        pytest.param("error", {"status": 503, "body": {"message": "etcdserver: leader changed"}, "times": 3}, id="503"),
        pytest.param("hanging", {"status": 0, "times": 2}, id="a server that hangs"),
        pytest.param("answer-lost", {"status": 504, "times": 2, "after": True}, id="done, and the answer lost"),
    ],
)
def test_an_answer_that_says_nothing_of_the_pod_is_asked_again_and_the_gang_goes_whole(
    stage: Stage, name: str, how: dict[str, Any]
) -> None:
    pool, space = ANSWERS[name], fleet.namespace(stage.plane, name)
    lend_to(stage, pool, space, "train")
    fault = stage.proxy.fault("POST", EVICTIONS.format(space), dry=False, **how)
    chat_runs(stage, pool, space)
    assert fault.met == how["times"]
    assert len(stage.watching.evicted(space, "train")) == 4
    assert stage.hearing.evicted(pool.name) == [f"{space}/job/train"]
    results = [one.result for one in stage.hearing.outcomes(pool.name) if one.kind == "evict"]
    assert results[-1] is Result.DONE
    stage.proxy.heal()


def test_a_pod_that_two_budgets_cover_is_left_alone_for_good_and_its_gang_with_it(stage: Stage) -> None:
    pool, space = ANSWERS["two-budgets"], fleet.namespace(stage.plane, "double")
    lend_to(stage, pool, space, "train")
    fault = stage.proxy.fault("POST", EVICTIONS.format(space), status=500, body=TWO_BUDGETS)
    stage.serve(space, pool.model, 1)
    refused = lambda: [one for one in stage.hearing.outcomes(pool.name) if one.because.reason is Reason.TWO_BUDGETS]  # noqa: E731
    stage.await_("the gang to be refused", refused, pool=pool.name)
    assert stage.watching.evicted(space, "train") == []
    assert fault.met <= 8  # the members of one check, not a storm
    stage.proxy.heal(fault)


def test_a_pod_that_is_gone_already_counts_as_gone(stage: Stage) -> None:
    pool, space = ANSWERS["not-found"], fleet.namespace(stage.plane, "gone")
    lend_to(stage, pool, space, "train")
    path = EVICTIONS.format(space)
    hanging = stage.proxy.fault("POST", path, dry=False, times=1)
    stage.serve(space, pool.model, 1)
    stage.await_("an eviction to hang", lambda: hanging.met, pool=pool.name)
    left = {life.uid for life in stage.watching.evicted(space, "train")}
    for pod in fleet.pods(stage.plane, space, "train"):
        if pod["metadata"]["uid"] not in left:
            stage.plane.api.request("DELETE", fleet.pod_path(pod), gracePeriodSeconds=0)
    stage.proxy.heal(hanging)
    stage.await_running(space, "chat", 1, pool=pool.name)
    assert [one.result for one in stage.hearing.outcomes(pool.name) if one.kind == "evict"][-1] is Result.DONE
