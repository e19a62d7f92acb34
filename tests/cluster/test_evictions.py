"""Evictions, notices and events on a real API server, with act's own rights: what it really answers."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rebalancer.adapters.cluster.connection import Api, connected
from rebalancer.adapters.cluster.events import Events
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.patching import EVICT_AT, LAST_RECALL
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.plan import CloseNode, EvictGang, Member, Method, Outcome, Plan, Result
from rebalancer.core.protocol.calls import (
    AnswerKind,
    EvictPod,
    GiveNotice,
    ListPods,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode
from rebalancer.settings import KubernetesSettings
from tests.hands.things import NOW
from tests.hands.things import hands as handed
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = pytest.mark.timeout(180)
WORK = Work(model="A100", gpus=1, grace=30)
WITHIN = 30.0


def raw(plane: ControlPlane, node: str) -> Any:
    return plane.api.get(f"/api/v1/nodes/{node}")


def trainers(plane: ControlPlane, space: str, name: str, pods: int) -> list[Any]:
    """A running job on nodes that training may use."""
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training", name_prefix=f"home-{name}")
    fleet.plain_job(plane, space, name, pods, WORK)
    return fleet.await_pods(plane, space, name, pods)


def member(pod: Any, uid: str = "") -> Member:
    meta = pod["metadata"]
    return Member(uid or meta["uid"], meta["namespace"], meta["name"], pod["spec"].get("nodeName", ""), 1)


async def test_an_eviction_is_releasing_and_a_dry_run_takes_nothing(
    plane: ControlPlane, by: ClusterHands, space: str
) -> None:
    pod, other = trainers(plane, space, "plain", 2)
    fleet.hold(plane, pod)
    assert (await by.perform(EvictPod(member(pod), "plan", dry_run=True))).kind is AnswerKind.OK
    assert "deletionTimestamp" not in plane.api.get(fleet.pod_path(pod))["metadata"]
    assert (await by.perform(EvictPod(member(pod), "plan"))).kind is AnswerKind.OK
    going = plane.api.get(fleet.pod_path(pod))
    assert "deletionTimestamp" in going["metadata"]
    assert "DisruptionTarget" in {one["type"] for one in going["status"]["conditions"]}
    assert (await by.perform(EvictPod(member(pod), "plan"))).kind is AnswerKind.OK, "a repeat is harmless"
    seen = (await by.perform(ReadMembers((member(pod), member(other))))).pods
    assert [one.deleting_at is not None for one in seen] == [True, False]
    fleet.release(plane, pod)
    plane.api.wait(lambda: not plane.api.exists(fleet.pod_path(pod)), WITHIN, "the pod to be gone")
    assert (await by.perform(EvictPod(member(pod), "plan"))).kind is AnswerKind.GONE
    assert [one.uid for one in (await by.perform(ReadMembers((member(pod),)))).pods] == []


async def test_a_budget_blocks_and_two_budgets_are_for_ever(plane: ControlPlane, by: ClusterHands, space: str) -> None:
    pods = trainers(plane, space, "held", 2)
    fleet.pdb(plane, space, "held", minimum=2)
    plane.api.wait(lambda: _budget(plane, space, "held").get("expectedPods") == 2, WITHIN, "the budget to count")
    listed = await by.perform(ReadBudgets(space))
    assert [(one.name, one.allowed, one.expected, one.current) for one in listed.budgets] == [("held", 0, 2, True)]
    for dry in (True, False):
        answer = await by.perform(EvictPod(member(pods[0]), "plan", dry_run=dry))
        assert answer.kind is AnswerKind.BLOCKED, answer
    fleet.pdb(plane, space, "held", minimum=0, name="second")
    answer = await by.perform(EvictPod(member(pods[0]), "plan", dry_run=True))
    assert answer.kind is AnswerKind.TWO_BUDGETS, answer
    assert len(fleet.await_pods(plane, space, "held", 2)) == 2, "nobody went"


def _budget(plane: ControlPlane, space: str, name: str) -> Any:
    return plane.api.get(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/{name}").get("status", {})


async def test_the_pod_that_a_statefulset_made_again_under_the_same_name_survives(
    plane: ControlPlane, by: ClusterHands, space: str
) -> None:
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training", name_prefix="home-sts")
    fleet.statefulset(plane, space, "sts", 1, WORK)
    (old,) = fleet.await_pods(plane, space, "sts", 1)
    assert (await by.perform(EvictPod(member(old), "plan"))).kind is AnswerKind.OK

    def again() -> Any:
        found = [pod for pod in fleet.pods(plane, space, "sts") if pod["metadata"]["uid"] != old["metadata"]["uid"]]
        return found[0] if found and found[0]["status"].get("phase") == "Running" else None

    new = plane.api.wait(again, WITHIN, "the pod to come again")
    assert new["metadata"]["name"] == old["metadata"]["name"]
    assert (await by.perform(EvictPod(member(old), "plan"))).kind is AnswerKind.CONFLICT
    assert (await by.perform(EvictPod(member(old), "plan", dry_run=True))).kind is AnswerKind.CONFLICT
    assert (await by.perform(ReadMembers((member(old),)))).pods == ()
    notice = GiveNotice("g", (member(old),), "", NOW, "why")
    assert (await by.perform(notice)).kind is AnswerKind.GONE
    left = plane.api.get(fleet.pod_path(new))["metadata"]
    assert "deletionTimestamp" not in left
    assert EVICT_AT not in left.get("annotations", {})


async def test_notice_is_on_every_member_and_on_the_job(plane: ControlPlane, by: ClusterHands, space: str) -> None:
    pods = trainers(plane, space, "told", 3)
    call = GiveNotice("g", tuple(map(member, pods)), "Job.v1.batch/told", NOW, "the loan is due")
    assert (await by.perform(call)).kind is AnswerKind.OK
    for pod in pods:
        assert plane.api.get(fleet.pod_path(pod))["metadata"]["annotations"][EVICT_AT] == "2026-03-02T22:00:00Z"
    job = plane.api.get(f"/apis/batch/v1/namespaces/{space}/jobs/told")
    assert job["metadata"]["annotations"][LAST_RECALL] == "2026-03-02T22:00:00Z the loan is due"


async def test_who_may_not_is_told_so(plane: ControlPlane, node: str, space: str) -> None:
    (pod,) = trainers(plane, space, "safe", 1)
    async with connected(KubernetesSettings(kubeconfig=plane.kubeconfig("outsider"))) as api:
        by = handed(api, seconds=10.0)
        assert (await by.perform(ReadNode(node))).kind is AnswerKind.FORBIDDEN
        assert (await by.perform(ListPods(node))).kind is AnswerKind.FORBIDDEN
        assert (await by.perform(EvictPod(member(pod), "plan"))).kind is AnswerKind.FORBIDDEN


async def test_a_server_that_hangs_delays_nobody_beyond_the_calls_time(
    plane: ControlPlane, api: Api, node: str
) -> None:
    by = handed(api, seconds=1.0)
    assert (await by.perform(ReadNode(node))).kind is AnswerKind.OK
    plane.pause("apiserver")
    try:
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(by.perform(ReadNode(node)) for _ in range(20)))
        took = asyncio.get_running_loop().time() - began
    finally:
        plane.resume("apiserver")
    assert {one.kind for one in answers} == {AnswerKind.TIMED_OUT}
    assert took < 3.0
    async with asyncio.timeout(WITHIN):  # connections that were given up close once the server answers again
        while _closing():  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.05)


def _closing() -> bool:
    kept = [one for one in gc.get_objects() if isinstance(one, asyncio.Transport) and one.is_closing()]
    return any(getattr(one, "_sock", None) is not None for one in kept)


# --- events


async def test_events_are_taken_by_the_server_and_found_where_people_look(
    plane: ControlPlane, api: Api, by: ClusterHands, node: str, space: str
) -> None:
    """On the node by its uid, on the job by its uid; the times have six digits also at a full second."""
    (pod,) = trainers(plane, space, "heard", 1)
    uid = raw(plane, node)["metadata"]["uid"]
    metrics = Metrics()
    events = Events(api, "pod-0_1", timedelta(minutes=15), metrics)
    because = Because(Reason.LOAN_DUE, {"node": node, "due": "06:00", "return_seconds": 120})
    evict = EvictGang(
        "g", f"{space}//heard", space, "Job.v1.batch/heard", (member(pod),), True, NOW, NOW, 0, 30, 0.0, because
    )  # fmt: skip
    plan = Plan(
        "plan", "infer-a100", Method.RETURN, Mode.ACT, because, (CloseNode("loan", uid, node), evict), NOW, NOW
    )  # fmt: skip
    sending = asyncio.create_task(events.run())
    events.heard(plan)
    full = datetime.now(UTC).replace(microsecond=0)
    done = Outcome("plan", plan.pool, 0, "close", uid, Result.DONE, Because(Reason.CONFIRMED), full)
    events.told(done)
    events.told(replace(done, step=1, kind="evict", target="g", numbers={"members": 1}))
    by._events = events
    await by.perform(GiveNotice("g", (member(pod),), evict.top_owner, full, "the loan is due"))

    def told() -> Any:
        listed = plane.api.items("/apis/events.k8s.io/v1/events")
        ours = [one for one in listed if one.get("reportingInstance") == "pod-0_1"]  # others' stories left some too
        return ours if len(ours) == 4 else []

    try:
        async with asyncio.timeout(WITHIN):
            while not (found := told()):  # noqa: ASYNC110 - the server is asked, it does not call
                await asyncio.sleep(0.1)
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    reasons = {one["reason"]: one for one in found}
    assert set(reasons) == {"Recalled", "GangEvicted", "Cooldown", "RecallNotice"}
    assert reasons["Recalled"]["regarding"]["uid"] == uid
    assert reasons["Recalled"]["metadata"]["namespace"] == "default"
    job = plane.api.get(f"/apis/batch/v1/namespaces/{space}/jobs/heard")["metadata"]["uid"]
    assert {one["regarding"]["uid"] for name, one in reasons.items() if name != "Recalled"} == {job}
    assert metrics.registry.get_sample_value("gpu_rebalancer_events_total", {"result": "failed"}) == 0.0
    for one in found:
        plane.api.delete(f"/api/v1/namespaces/{one['metadata']['namespace']}/events/{one['metadata']['name']}")
