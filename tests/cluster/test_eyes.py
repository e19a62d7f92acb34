"""Eyes on a real API server: what they know is what there is, however the wire, the server and the watches break."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.core.facts import Control, GangSpec, Pod
from tests.cluster.onlooker import Onlooker
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(180)
SOON = 20.0
"""Seconds for what a watch tells: milliseconds on idle cores."""
CAUGHT_UP = 60.0
"""The bound within which the truth is known again after a break: the time a broken watch is tried, and a list."""
DOWN = 20.0
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
CONTROL = "/api/v1/namespaces/gpu-rebalancer/configmaps"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane
    fleet.clean(control_plane)


@pytest.fixture
def onlooker(plane: ControlPlane, tmp_path: Path) -> Iterator[Onlooker]:
    with Onlooker(plane, tmp_path) as looking:
        yield looking


def truth(plane: ControlPlane, path: str) -> set[str]:
    return {item["metadata"]["uid"] for item in plane.api.items(path)}


def agree(plane: ControlPlane, onlooker: Onlooker, within: float = SOON) -> None:
    """Pods and nodes are known as they are, no more and no less."""
    plane.api.wait(lambda: set(onlooker.known("pod")) == truth(plane, PODS), within, "pods to be known")
    plane.api.wait(lambda: set(onlooker.known("node")) == truth(plane, NODES), within, "nodes to be known")


def names(onlooker: Onlooker, space: str) -> dict[str, Pod]:
    found = onlooker.known("pod").values()
    return {fact.name: fact for fact in found if isinstance(fact, Pod) and fact.namespace == space}


def test_bound_pods_are_seen_with_their_node_and_gpus(plane: ControlPlane, onlooker: Onlooker) -> None:
    (node,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    fleet.bound_pod(plane, space, "worker", node)
    plane.api.wait(lambda: "worker" in names(onlooker, space), SOON, "the pod to be seen")
    seen = names(onlooker, space)["worker"]
    assert seen.node == node
    assert seen.gpus is not None
    assert seen.gpus > 0
    agree(plane, onlooker)


def test_gangs_budgets_and_namespaces_are_seen_as_their_kinds_appear(plane: ControlPlane, onlooker: Onlooker) -> None:
    space = fleet.namespace(plane)
    fleet.plain_job(plane, space, "bert", 2)
    fleet.pdb(plane, space, "bert", minimum=1)
    plane.api.wait(lambda: _gang(onlooker, f"{space}/job/bert"), SOON, "the Job to be seen as a gang")
    plane.api.wait(lambda: onlooker.known("budget"), SOON, "the budget to be seen")
    plane.api.wait(lambda: any(one.name == space for one in onlooker.known("namespace").values()), SOON, "namespace")  # type: ignore[union-attr]  # namespaces have names
    gang = _gang(onlooker, f"{space}/job/bert")
    assert gang is not None
    assert gang.size == 2


def _gang(onlooker: Onlooker, key: str) -> GangSpec | None:
    found = (one for one in onlooker.known("group").values() if isinstance(one, GangSpec) and one.gang == key)
    return next(found, None)


def test_a_wire_that_snaps_costs_no_list_and_misses_nothing(plane: ControlPlane, onlooker: Onlooker) -> None:
    (node,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    pod = fleet.bound_pod(plane, space, "gone", node)
    plane.api.wait(lambda: "gone" in names(onlooker, space), SOON, "the pod to be seen")

    async def snap() -> None:
        onlooker.wire.snap()

    onlooker.do(snap)
    plane.api.delete(fleet.pod_path(pod))
    fleet.bound_pod(plane, space, "came", node)
    plane.api.wait(lambda: set(names(onlooker, space)) == {"came"}, SOON, "the truth to be known")
    assert "pod" not in onlooker.lost


def test_a_deletion_while_nothing_gets_through_is_known_once_it_does(plane: ControlPlane, onlooker: Onlooker) -> None:
    (node,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    pod = fleet.bound_pod(plane, space, "gone", node)
    plane.api.wait(lambda: "gone" in names(onlooker, space), SOON, "the pod to be seen")
    onlooker.do(onlooker.wire.cut)
    plane.api.delete(fleet.pod_path(pod))
    plane.api.wait(lambda: pod["metadata"]["uid"] not in truth(plane, PODS), SOON, "the pod to be gone")
    fleet.bound_pod(plane, space, "came", node)
    assert set(names(onlooker, space)) == {"gone"}
    onlooker.mend()
    plane.api.wait(lambda: set(names(onlooker, space)) == {"came"}, CAUGHT_UP, "the truth to be known")
    agree(plane, onlooker)


def test_a_compacted_history_is_made_good_by_lists_within_the_bound(plane: ControlPlane, onlooker: Onlooker) -> None:
    (node,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    pod = fleet.bound_pod(plane, space, "gone", node)
    plane.api.wait(lambda: "gone" in names(onlooker, space), SOON, "the pod to be seen")
    onlooker.do(onlooker.wire.cut)
    plane.api.delete(fleet.pod_path(pod))
    plane.api.wait(lambda: pod["metadata"]["uid"] not in truth(plane, PODS), SOON, "the pod to be gone")
    fleet.bound_pod(plane, space, "came", node)
    plane.compact()
    onlooker.mend()
    plane.api.wait(lambda: set(names(onlooker, space)) == {"came"}, CAUGHT_UP, "the truth to be known")
    agree(plane, onlooker, CAUGHT_UP)
    assert "pod" in onlooker.lost
    fleet.bound_pod(plane, space, "after", node)
    plane.api.wait(lambda: "after" in names(onlooker, space), SOON, "the watch to go on")


def test_a_server_that_is_down_for_a_while_ends_nothing_and_is_caught_up_with(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """On a control plane of its own: the controllers take a minute to recover, which is not the eyes' matter."""
    plane = own_control_plane
    (node,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    with Onlooker(plane, tmp_path) as onlooker:
        fleet.bound_pod(plane, space, "before", node)
        plane.api.wait(lambda: "before" in names(onlooker, space), SOON, "the pod to be seen")
        plane.stop("apiserver")
        with pytest.raises(TimeoutError):
            plane.api.wait(lambda: not names(onlooker, space), DOWN, "the pod to be forgotten")
        plane.start("apiserver")
        fleet.bound_pod(plane, space, "after", node)
        plane.api.wait(lambda: set(names(onlooker, space)) == {"before", "after"}, CAUGHT_UP, "the truth to be known")
        agree(plane, onlooker, CAUGHT_UP)


def test_a_node_replaced_under_the_same_name_is_another_node(plane: ControlPlane, onlooker: Onlooker) -> None:
    (name,) = fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    old = plane.api.get(f"{NODES}/{name}")["metadata"]["uid"]
    plane.api.wait(lambda: old in onlooker.known("node"), SOON, "the node to be seen")
    plane.api.delete(f"{NODES}/{name}")
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    new = plane.api.get(f"{NODES}/{name}")["metadata"]["uid"]
    assert new != old
    plane.api.wait(lambda: set(onlooker.known("node")) == {new}, SOON, "only the new node to be known")


def test_a_pod_recreated_under_the_same_name_is_another_pod(plane: ControlPlane, onlooker: Onlooker) -> None:
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    fleet.statefulset(plane, space, "chat", 1)
    plane.api.wait(lambda: "chat-0" in names(onlooker, space), SOON, "the pod to be seen")
    old = names(onlooker, space)["chat-0"].uid
    plane.api.delete(f"/api/v1/namespaces/{space}/pods/chat-0")
    plane.api.wait(lambda: _uid(onlooker, space) not in ("", old), SOON, "the new pod to be seen")
    agree(plane, onlooker)
    assert old not in onlooker.known("pod")


def _uid(onlooker: Onlooker, space: str) -> str:
    found = names(onlooker, space).get("chat-0")
    return found.uid if found is not None else ""


def test_brakes_are_seen_changed_and_released_when_their_object_goes(plane: ControlPlane, onlooker: Onlooker) -> None:
    if not plane.api.exists("/api/v1/namespaces/gpu-rebalancer"):
        plane.api.post("/api/v1/namespaces", {"metadata": {"name": "gpu-rebalancer"}})
    named = {"metadata": {"name": "gpu-rebalancer-control"}, "data": {"paused": "true"}}
    plane.api.post(CONTROL, named)
    plane.api.wait(lambda: _braked(onlooker) is True, SOON, "the brake to be seen")
    plane.api.patch(f"{CONTROL}/gpu-rebalancer-control", {"data": {"paused": "maybe", "recall-all": "true"}})
    plane.api.wait(lambda: _recalling(onlooker), SOON, "the readable part to be seen")
    assert _braked(onlooker)
    plane.api.delete(f"{CONTROL}/gpu-rebalancer-control")
    plane.api.wait(lambda: "control" in onlooker.lost, SOON, "the deletion to be told as a reason to list")


def _braked(onlooker: Onlooker) -> bool | None:
    found = onlooker.known("control").get("control")
    return found.paused if isinstance(found, Control) else None


def _recalling(onlooker: Onlooker) -> bool:
    found = onlooker.known("control").get("control")
    return isinstance(found, Control) and found.recall_all
