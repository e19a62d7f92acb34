"""The hands on a real API server: what a guarded patch leaves alone and what is seen, with act's own rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.live import LiveEyes, least_epoch
from rebalancer.adapters.cluster.sight import Sight
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.control import CONTROL_NAME
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_to_json
from rebalancer.core.facts import Budget, Control, Node, Pod, Taint
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    ListPods,
    PatchNode,
    ReadNode,
)
from rebalancer.core.units import CLOSING, ON_LOAN
from tests.hands.things import DATED, FOREIGN, OWNER, RAW_OWNER, mark
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = pytest.mark.timeout(180)
WORK = Work(model="A100", gpus=1, grace=30)
WITHIN = 30.0


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


async def test_without_kafka_act_sees_what_a_return_needs_and_which_epoch_is_new(
    plane: ControlPlane, api: Api, ours: str, node: str, space: str
) -> None:
    """Live lists with act's own rights, opt-outs included; the brakes by the one name that it may list."""
    eyes = LiveEyes(api, ours, Sight(Reading(), Watching(CollectorRegistry())))
    fleet.bound_pod(plane, space, "bound", node)
    fleet.pdb(plane, space, "bound", minimum=1)
    assert node in {one.name for one in await eyes.snapshot("node") if isinstance(one, Node)}
    assert [one.node for one in await eyes.snapshot("pod") if isinstance(one, Pod) and one.name == "bound"] == [node]
    assert "bound" in {one.name for one in await eyes.snapshot("budget") if isinstance(one, Budget)}
    quiet = {"metadata": {"annotations": {"gpu-rebalancer.io/opt-out": "true"}}}
    plane.api.patch(f"/api/v1/namespaces/{space}", quiet)
    plane.api.patch(plane.api.path_of(fleet.plain_job(plane, space, "train", 1), space), quiet)
    out = [one for of in ("namespace", "group") for one in await eyes.snapshot(of) if getattr(one, "opted_out", False)]
    assert [getattr(one, "name", "") or getattr(one, "gang", "") for one in out] == [space, f"{space}/job/train"]
    assert await eyes.snapshot("control") == []
    braked = {"metadata": {"name": CONTROL_NAME}, "data": {"paused": "true", "by": "ada"}}
    plane.api.post(f"/api/v1/namespaces/{ours}/configmaps", braked)
    (control,) = await eyes.snapshot("control")
    assert isinstance(control, Control)
    assert (control.paused, control.by) == (True, "ada")
    assert await least_epoch(api) == 1
    uid = raw(plane, node)["metadata"]["uid"]
    said = loan_mark_to_json(replace(mark(uid), epoch=41))
    plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {LOAN: said}}})
    assert await least_epoch(api) == 42
