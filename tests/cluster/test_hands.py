"""The hands on a real API server: what a guarded patch leaves alone, and what an eviction is really answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rebalancer.adapters.cluster.connection import Api, connected
from rebalancer.adapters.cluster.events import Events
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.patching import EVICT_AT, LAST_RECALL
from rebalancer.adapters.decode.loan_marks import LOAN
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.facts import Node, Taint
from rebalancer.core.plan import CloseNode, EvictGang, Member, Method, Outcome, Plan, Result
from rebalancer.core.protocol import guard
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
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import CLOSING, ON_LOAN, Mode
from rebalancer.settings import KubernetesSettings
from tests.hands.things import DATED, FOREIGN, NOW, OWNER, RAW_OWNER, mark
from tests.hands.things import hands as handed
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = pytest.mark.timeout(180)
WORK = Work(model="A100", gpus=1, grace=30)
WITHIN = 30.0


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane
    fleet.clean(control_plane)


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    async with connected(KubernetesSettings(kubeconfig=plane.kubeconfig())) as found:
        yield found


@pytest.fixture
def by(api: Api) -> ClusterHands:
    return handed(api, seconds=10.0)


@pytest.fixture
def node(plane: ControlPlane) -> str:
    return fleet.gpu_nodes(plane, "infer-a100", "A100", 1, name_prefix="hand")[0]


@pytest.fixture
def space(plane: ControlPlane) -> str:
    return fleet.namespace(plane)


def raw(plane: ControlPlane, node: str) -> Any:
    return plane.api.get(f"/api/v1/nodes/{node}")


def taints(plane: ControlPlane, node: str) -> Any:
    return raw(plane, node)["spec"].get("taints", [])


def taint(plane: ControlPlane, node: str, *wanted: dict[str, Any]) -> None:
    plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": list(wanted) or None}})


async def edit(by: ClusterHands, name: str, change: Callable[[Node], guard.Edit]) -> Answer:
    """One guarded edit, tried again when somebody else (kwok's heartbeats) wrote the node in between."""
    for _ in range(10):
        read = (await by.perform(ReadNode(name))).node
        assert read is not None
        wanted = change(read)
        assert isinstance(wanted, PatchNode), wanted
        answer = await by.perform(wanted)
        if answer.kind is not AnswerKind.CONFLICT:
            return answer
    raise AssertionError(f"{name} never stands still")


def trainers(plane: ControlPlane, space: str, name: str, pods: int) -> list[Any]:
    """A running job on nodes that training may use."""
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training", name_prefix=f"home-{name}")
    fleet.plain_job(plane, space, name, pods, WORK)
    return fleet.await_pods(plane, space, name, pods)


def member(pod: Any, uid: str = "") -> Member:
    meta = pod["metadata"]
    return Member(uid or meta["uid"], meta["namespace"], meta["name"], pod["spec"].get("nodeName", ""), 1)


# --- nodes


async def test_a_whole_loan_leaves_foreign_taints_and_their_times_byte_for_byte(
    plane: ControlPlane, by: ClusterHands, node: str
) -> None:
    """Closed, lent, recalled, restored; another taint comes and one goes meanwhile; the owner's has a time too."""
    owner = {**RAW_OWNER, "timeAdded": "2026-03-01T08:00:00Z"}
    taint(plane, node, FOREIGN, owner, DATED)
    before = taints(plane, node)
    assert before == [FOREIGN, owner, DATED], "the server keeps times on any taint"
    uid = raw(plane, node)["metadata"]["uid"]
    loan = mark(uid, index=1)

    await edit(by, node, lambda n: PatchNode(n.uid, n.name, n.resource_version, (*n.taints, Taint(CLOSING)), None))
    late = {"key": "example.com/late", "effect": "PreferNoSchedule"}
    taint(plane, node, *taints(plane, node), late)

    def lend(n: Node) -> PatchNode:
        kept = tuple(Taint(ON_LOAN, "training") if one == OWNER else one for one in n.taints if one.key != CLOSING)
        return PatchNode(n.uid, n.name, n.resource_version, kept, loan)

    lent = await edit(by, node, lend)
    assert lent.node is not None
    assert lent.node.mark == loan
    assert [one["key"] for one in taints(plane, node)] == [FOREIGN["key"], ON_LOAN, DATED["key"], late["key"]]
    taint(plane, node, *[one for one in taints(plane, node) if one["key"] != FOREIGN["key"]])
    recalled = await edit(by, node, lambda n: guard.close_lent(n, n.uid, loan.loan, "plan", 3))
    assert recalled.kind is AnswerKind.OK
    restored = await edit(by, node, lambda n: guard.restore(n, n.uid, loan.loan, 3))
    assert restored.kind is AnswerKind.OK
    assert taints(plane, node) == [owner, DATED, late]
    assert LOAN not in raw(plane, node)["metadata"].get("annotations", {})


async def test_a_node_written_by_others_since_the_read_is_a_conflict(
    plane: ControlPlane, by: ClusterHands, node: str
) -> None:
    read = (await by.perform(ReadNode(node))).node
    assert read is not None
    taint(plane, node, FOREIGN, RAW_OWNER)
    call = PatchNode(read.uid, node, read.resource_version, (*read.taints, Taint(CLOSING)), None)
    assert (await by.perform(call)).kind is AnswerKind.CONFLICT
    assert taints(plane, node) == [FOREIGN, RAW_OWNER]


async def test_a_node_that_came_again_under_its_name_is_another_one(
    plane: ControlPlane, by: ClusterHands, node: str
) -> None:
    """Also where the version would fit: the server itself refuses another uid."""
    old = (await by.perform(ReadNode(node))).node
    assert old is not None
    plane.api.delete(f"/api/v1/nodes/{node}")
    plane.api.wait(lambda: not plane.api.exists(f"/api/v1/nodes/{node}"), WITHIN, "the node to be gone")
    fleet.gpu_nodes(plane, "infer-a100", "A100", 1, name_prefix="hand")
    for _ in range(10):
        new = raw(plane, node)
        by._nodes[old.uid, new["metadata"]["resourceVersion"]] = {
            **new,
            "metadata": {**new["metadata"], "uid": old.uid},
        }
        call = PatchNode(old.uid, node, new["metadata"]["resourceVersion"], (Taint(CLOSING),), None)
        assert (await by.perform(call)).kind is AnswerKind.CONFLICT
    assert taints(plane, node) == [RAW_OWNER]


async def test_pods_bound_and_promised_are_seen_and_no_others(
    plane: ControlPlane, by: ClusterHands, node: str, space: str
) -> None:
    fleet.bound_pod(plane, space, "bound", node)
    template = manifests.training_template("promised", WORK)
    for name in ("promised", "elsewhere"):
        body = manifests.bare_pod(name, template)
        body["spec"]["schedulerName"] = "nobody"
        plane.api.post(f"/api/v1/namespaces/{space}/pods", body)
    path = f"/api/v1/namespaces/{space}/pods/promised/status"
    plane.api.patch(path, {"status": {"nominatedNodeName": node}})
    answer = await by.perform(ListPods(node))
    assert sorted(pod.name for pod in answer.pods) == ["bound", "promised"]


async def test_a_node_that_is_not_there_is_gone(by: ClusterHands, plane: ControlPlane) -> None:
    del plane
    assert (await by.perform(ReadNode("nowhere"))).kind is AnswerKind.GONE


# --- evictions


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
        ours = [one for one in listed if one.get("reportingController", "").startswith("gpu-rebalancer.io/")]
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
