"""Every call of the protocol against a server in memory: what is sent, what is left alone, what each answer means."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from rebalancer.adapters.cluster.connection import Reply
from rebalancer.adapters.cluster.patching import EVICT_AT, EXTRA, LAST_RECALL
from rebalancer.adapters.decode.loan_marks import LOAN
from rebalancer.core.facts import Taint
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    Call,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)
from rebalancer.core.units import CLOSING, ON_LOAN
from tests.decode import samples_here
from tests.hands.fakeapi import Asked, Kube, direct, refusal, served
from tests.hands.things import DATED, FOREIGN, NOW, OWNER, RAW_OWNER, hands, mark, member, raw_node, raw_pod

NODE = "/api/v1/nodes/n1"
POD = "/api/v1/namespaces/team/pods/p1"
JOB = "/apis/batch/v1/namespaces/team/jobs/train"
CLOSED = {"key": CLOSING, "effect": "NoSchedule"}
NOTICE = GiveNotice("gang", (member("p1"), member("p2")), "Job.v1.batch/train", NOW, "the loan is due")


async def patched(kube: Kube, change: Any) -> Answer:
    """Read the node, and patch it as ``change`` says."""
    by = hands(direct(kube)[0])
    node = (await by.perform(ReadNode("n1"))).node
    assert node is not None
    return await by.perform(change(node))


def taints(kube: Kube) -> Any:
    return kube.objects[NODE]["spec"].get("taints", [])


async def test_a_closing_patch_is_one_guarded_request_and_leaves_foreign_taints_byte_for_byte() -> None:
    kube = Kube()
    made = kube.put(NODE, raw_node("n1", DATED, RAW_OWNER, FOREIGN))

    def close(node: Any) -> PatchNode:
        return PatchNode(node.uid, "n1", node.resource_version, (*node.taints, Taint(CLOSING)), None)

    answer = await patched(kube, close)
    assert answer.kind is AnswerKind.OK
    assert answer.node is not None
    assert guard.closed(answer.node)
    assert [one.method for one in kube.asked] == ["GET", "PATCH"]
    sent = kube.asked[-1].body["metadata"]
    assert (sent["uid"], sent["resourceVersion"]) == (made["metadata"]["uid"], made["metadata"]["resourceVersion"])
    assert taints(kube) == [DATED, RAW_OWNER, FOREIGN, CLOSED]


async def test_an_owner_taint_comes_back_with_all_that_it_had() -> None:
    """Lent, recalled and restored: fields that the core does not carry wait in the annotation meanwhile."""
    owner = {**RAW_OWNER, "timeAdded": "2026-03-01T08:00:00Z"}
    kube = Kube()
    kube.put(NODE, raw_node("n1", FOREIGN, owner, DATED, annotations={"theirs": "kept"}))
    lent = mark("uid-n1", index=1)

    def lend(node: Any) -> PatchNode:
        out = (node.taints[0], Taint(ON_LOAN, "training"), node.taints[2])
        return PatchNode(node.uid, "n1", node.resource_version, out, lent)

    assert (await patched(kube, lend)).kind is AnswerKind.OK
    said = orjson.loads(kube.objects[NODE]["metadata"]["annotations"][LOAN])
    assert said[EXTRA] == {"timeAdded": "2026-03-01T08:00:00Z"}

    def recall(node: Any) -> PatchNode:
        later = replace(lent, phase="recalling")
        return PatchNode(node.uid, "n1", node.resource_version, (*node.taints, Taint(CLOSING)), later)

    assert (await patched(kube, recall)).kind is AnswerKind.OK

    def restore(node: Any) -> PatchNode:
        found = guard.restore(node, node.uid, "loan-1", 3)
        assert isinstance(found, PatchNode)
        return found

    assert (await patched(kube, restore)).kind is AnswerKind.OK
    assert taints(kube) == [FOREIGN, owner, DATED]
    assert kube.objects[NODE]["metadata"]["annotations"] == {"theirs": "kept"}


async def test_the_last_taint_and_annotation_leave_nothing_behind() -> None:
    kube = Kube()
    kube.put(NODE, raw_node("n1", CLOSED))
    await patched(kube, lambda node: PatchNode(node.uid, "n1", node.resource_version, (), None))
    assert kube.objects[NODE]["spec"] == {}
    assert kube.objects[NODE]["metadata"]["annotations"] == {}


@pytest.mark.parametrize("read", [True, False], ids=["read by these hands", "read by others"])
async def test_a_node_that_changed_in_between_is_a_conflict_and_stays_as_it_is(read: bool) -> None:
    kube = Kube()
    made = kube.put(NODE, raw_node("n1", RAW_OWNER))
    by = hands(direct(kube)[0])
    if read:
        await by.perform(ReadNode("n1"))
    kube.put(NODE, raw_node("n1", RAW_OWNER, FOREIGN))
    call = PatchNode("uid-n1", "n1", made["metadata"]["resourceVersion"], (OWNER, Taint(CLOSING)), None)
    assert (await by.perform(call)).kind is AnswerKind.CONFLICT
    assert taints(kube) == [RAW_OWNER, FOREIGN]


async def test_a_node_replaced_under_the_same_name_is_a_conflict() -> None:
    kube = Kube()
    by = hands(direct(kube)[0])
    made = kube.put(NODE, raw_node("n1"))
    await by.perform(ReadNode("n1"))
    kube.faults = [lambda asked: refusal(422, "Invalid", "immutable", UID) if asked.method == "PATCH" else None]
    call = PatchNode("uid-n1", "n1", made["metadata"]["resourceVersion"], (Taint(CLOSING),), None)
    assert (await by.perform(call)).kind is AnswerKind.CONFLICT


UID = {"causes": [{"field": "metadata.uid"}]}


async def test_pods_are_those_bound_and_those_promised_the_node() -> None:
    kube = Kube()
    for name, node, nominated in (("a", "n1", ""), ("b", "", "n1"), ("c", "n2", ""), ("d", "", ""), ("e", "", "n2")):
        kube.put(f"/api/v1/namespaces/team/pods/{name}", raw_pod(name, node, nominated))
    answer = await hands(direct(kube)[0]).perform(ListPods("n1"))
    assert sorted(pod.name for pod in answer.pods) == ["a", "b"]


async def test_a_list_is_read_to_its_end() -> None:
    """Page for page; a page that fails fails all of it."""
    kube = Kube()
    pages = {"": ("a", "next"), "next": ("b", "")}

    def paged(asked: Asked) -> Reply | None:
        if "spec.nodeName" not in asked.query.get("fieldSelector", ""):
            return None
        name, go_on = pages[asked.query.get("continue", "")]
        pod = raw_pod(name, "n1")
        pod["metadata"]["uid"] = name
        return Reply(200, {}, {"metadata": {"continue": go_on}, "items": [pod]})

    kube.faults = [paged]
    answer = await hands(direct(kube)[0]).perform(ListPods("n1"))
    assert [pod.name for pod in answer.pods] == ["a", "b"]
    kube.faults = [lambda asked: refusal(410, "Expired", "too old") if "continue" in asked.query else paged(asked)]
    assert (await hands(direct(kube)[0]).perform(ListPods("n1"))).kind is not AnswerKind.OK


async def test_members_are_read_by_name_and_believed_by_uid() -> None:
    kube = Kube()
    kube.put(POD, raw_pod("p1", "n1"))
    kube.put("/api/v1/namespaces/team/pods/p2", raw_pod("p2", "n1"), uid="of another pod")
    answer = await hands(direct(kube)[0]).perform(ReadMembers((member("p1"), member("p2"), member("p3"))))
    assert (answer.kind, [pod.uid for pod in answer.pods]) == (AnswerKind.OK, ["uid-p1"])


async def test_a_member_that_cannot_be_read_is_not_taken_for_gone() -> None:
    kube = Kube(faults=[lambda _: Reply(503, {}, "upstream")])
    assert (await hands(direct(kube)[0]).perform(ReadMembers((member("p1"),)))).kind is AnswerKind.UNREACHABLE


async def test_budgets_are_listed_live_in_their_namespace() -> None:
    kube = Kube()
    for space in ("team", "other"):
        path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/{space}"
        kube.put(path, {"metadata": {"namespace": space}, "spec": {"selector": {}, "minAvailable": 1}})
    answer = await hands(direct(kube)[0]).perform(ReadBudgets("team"))
    assert [(one.name, one.allowed) for one in answer.budgets] == [("team", 0)]


# --- notice


async def test_notice_is_written_on_each_member_and_on_the_top_owner() -> None:
    kube = Kube()
    for path in (POD, "/api/v1/namespaces/team/pods/p2"):
        kube.put(path, raw_pod(path[-2:], "n1"))
    kube.put(JOB, {"kind": "Job"})
    assert (await hands(direct(kube)[0]).perform(NOTICE)).kind is AnswerKind.OK
    assert kube.objects[POD]["metadata"]["annotations"] == {EVICT_AT: "2026-03-02T22:00:00Z"}
    assert kube.objects[JOB]["metadata"]["annotations"] == {LAST_RECALL: "2026-03-02T22:00:00Z the loan is due"}


async def test_a_pod_that_took_over_a_name_gets_no_notice() -> None:
    kube = Kube()
    kube.put(POD, raw_pod("p1", "n1"))
    kube.put("/api/v1/namespaces/team/pods/p2", raw_pod("p2"), uid="another")
    assert (await hands(direct(kube)[0]).perform(NOTICE)).kind is AnswerKind.OK
    assert "annotations" not in kube.objects["/api/v1/namespaces/team/pods/p2"]["metadata"]


async def test_a_notice_to_nobody_is_gone_and_an_owner_that_refuses_is_no_failure() -> None:
    kube = Kube(faults=[lambda asked: refusal(403, "Forbidden", "no") if "/jobs/" in asked.path else None])
    by = hands(direct(kube)[0])
    assert (await by.perform(NOTICE)).kind is AnswerKind.GONE
    kube.put(POD, raw_pod("p1", "n1"))
    assert (await by.perform(NOTICE)).kind is AnswerKind.OK


# --- evictions


SAMPLES = [
    ("201_success", AnswerKind.OK, None),
    ("429_pdb_blocked", AnswerKind.BLOCKED, None),
    ("429_pdb_not_observed_retry10", AnswerKind.BLOCKED, 10.0),
    ("429_api_throttling", AnswerKind.THROTTLED, 1.0),
    ("500_two_pdbs", AnswerKind.TWO_BUDGETS, None),
    ("404_gone", AnswerKind.GONE, None),
    ("409_uid_precondition", AnswerKind.CONFLICT, None),
    ("403_pdb_negative", AnswerKind.FORBIDDEN, None),
    ("504_conflict_timeout", AnswerKind.TIMED_OUT, 10.0),
]


@pytest.mark.parametrize(("sample", "kind", "wait"), SAMPLES, ids=[name for name, _, _ in SAMPLES])
async def test_every_recorded_answer_comes_through_the_wire(
    sample: str, kind: AnswerKind, wait: float | None, tmp_path: Path
) -> None:
    recorded = samples_here.parsed(f"eviction/{sample}.json")
    said = Reply(recorded["http_status"], recorded["headers"], recorded["body"])
    kube = Kube(faults=[lambda _: said])
    async with served(kube, tmp_path) as api:
        answer = await hands(api).perform(EvictPod(member("p1"), "plan"))
    assert (answer.kind, answer.retry_after) == (kind, wait)
    assert len(kube.asked) == 1, "nothing is sent twice, whatever the server says"


async def test_an_eviction_names_its_pod_by_uid_and_says_who_asks(tmp_path: Path) -> None:
    kube = Kube()
    kube.put(POD, raw_pod("p1", "n1"))
    wanted = samples_here.parsed("eviction/request_with_uid_precondition.json")
    async with served(kube, tmp_path) as api:
        by = hands(api)
        assert (await by.perform(EvictPod(member("p1"), "plan", dry_run=True))).kind is AnswerKind.OK
        assert POD in kube.objects, "a dry run takes nothing"
        dry = kube.asked[-1]
        assert (dry.query["dryRun"], dry.body["deleteOptions"]["dryRun"]) == ("All", ["All"])
        assert (await by.perform(EvictPod(member("p1"), "plan"))).kind is AnswerKind.OK
    real = kube.asked[-1]
    assert POD not in kube.objects
    assert (real.path, set(real.query)) == (f"{POD}/eviction", {"fieldManager"})
    assert real.body == {
        **wanted,
        "metadata": {"name": "p1", "namespace": "team"},
        "deleteOptions": {"preconditions": {"uid": "uid-p1"}},
    }


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(ConnectionResetError(), AnswerKind.UNREACHABLE, id="cut after sending"),
        pytest.param(TimeoutError(), AnswerKind.TIMED_OUT, id="a server that hangs"),
    ],
)
async def test_a_connection_that_fails_is_an_answer(fault: Exception, kind: AnswerKind, tmp_path: Path) -> None:
    kube = Kube(faults=[lambda _: fault])
    async with served(kube, tmp_path) as api:
        answer = await hands(api, seconds=0.3).perform(EvictPod(member("p1"), "plan"))
    assert answer.kind is kind
    assert answer.message


# --- the lease


WRITES: list[Call] = [
    PatchNode("uid-n1", "n1", "100", (), None),
    NOTICE,
    EvictPod(member("p1"), "plan"),
    EvictPod(member("p1"), "plan", dry_run=True),
]


@pytest.mark.parametrize("call", WRITES, ids=["patch", "notice", "eviction", "dry run"])
async def test_no_write_is_sent_that_could_outlast_the_lease(call: Call) -> None:
    kube = Kube()
    kube.put(NODE, raw_node("n1"))
    answer = await hands(direct(kube)[0], remaining=1.9, seconds=2.0).perform(call)
    assert answer.kind is AnswerKind.UNREACHABLE
    assert "lease" in answer.message
    assert not [one for one in kube.asked if one.method != "GET"]


async def test_reads_need_no_lease() -> None:
    kube = Kube()
    kube.put(NODE, raw_node("n1"))
    assert (await hands(direct(kube)[0], remaining=0.0).perform(ReadNode("n1"))).kind is AnswerKind.OK


async def test_a_request_outlives_its_cancelled_caller_and_is_waited_for() -> None:
    """Whoever gives the lease back must know that nothing of ours is still to land."""
    kube = Kube()
    kube.put(POD, raw_pod("p1", "n1"))
    by = hands(direct(kube, delay=0.05)[0])
    task = asyncio.create_task(by.perform(EvictPod(member("p1"), "plan")))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert POD in kube.objects
    await by.settled()
    assert POD not in kube.objects


async def test_hands_never_raise() -> None:
    kube = Kube(faults=[lambda _: Reply(200, {}, {"kind": "Node", "metadata": {}})])
    assert (await hands(direct(kube)[0]).perform(ReadNode("n1"))).kind is AnswerKind.FAILED
    kube.faults = [lambda _: Reply(200, {}, b"<html>")]
    assert (await hands(direct(kube)[0]).perform(ReadNode("n1"))).kind is AnswerKind.FAILED
    kube.faults = [lambda _: RuntimeError("a defect")]
    assert (await hands(direct(kube)[0]).perform(ReadNode("n1"))).kind is AnswerKind.FAILED
