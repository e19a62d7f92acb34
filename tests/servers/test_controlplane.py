"""The test control plane keeps what its users rely on."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import fleet, manifests
from tests.servers.adminclient import JSON_PATCH, AdminClient, ApiError
from tests.servers.audit import Call
from tests.servers.boundloads import BoundLoads
from tests.servers.controlplane import ControlPlane
from tests.servers.goparts import KUBERNETES, recipes
from tests.servers.manifests import Work
from tests.servers.processes import Keeper, Part, PartError

IN_TIME = 30.0  # seconds for what takes tenths on idle cores


@pytest.fixture
def space(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace on the shared control plane; everything of the fleet is gone afterwards."""
    yield fleet.namespace(control_plane)
    fleet.clean(control_plane)


def test_it_is_the_pinned_version_and_clients_verify_who_it_is(control_plane: ControlPlane, tmp_path: Path) -> None:
    assert control_plane.api.get("/version")["gitVersion"] == KUBERNETES
    config = json.loads(control_plane.kubeconfig().read_text())["clusters"][0]["cluster"]
    assert set(config) == {"server", "certificate-authority"}


def test_a_hundred_pods_are_bound_where_there_is_room_and_run(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 13, owner="training")
    fleet.plain_job(control_plane, space, "many", 100, Work(gpus=1))
    fleet.await_pods(control_plane, space, "many", 100)
    nodes = {pod["spec"]["nodeName"] for pod in fleet.pods(control_plane, space, "many")}
    assert len(nodes) == 13  # 8 GPUs each: fewer would have overfilled one


def test_an_owner_taint_keeps_others_off_and_a_loan_lets_those_in_who_opted_in(
    control_plane: ControlPlane, space: str
) -> None:
    (name,) = fleet.gpu_nodes(control_plane, "infer-a100", "A100", 1)
    fleet.plain_job(control_plane, space, "opted-in", 1)
    fleet.plain_job(control_plane, space, "stranger", 1, Work(lendable=False))
    fleet.await_pods(control_plane, space, "opted-in", 1, phase="Pending")
    lent = [{"key": "gpu-rebalancer.io/on-loan", "value": "training", "effect": "NoSchedule"}]
    control_plane.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": lent}})
    (guest,) = fleet.await_pods(control_plane, space, "opted-in", 1)
    (stranger,) = fleet.await_pods(control_plane, space, "stranger", 1, phase="Pending")
    assert (guest["spec"]["nodeName"], stranger["spec"].get("nodeName")) == (name, None)


def test_spread_replicas_take_a_host_each(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "infer-a100", "A100", 2)
    fleet.inference(control_plane, space, "chat", 3, Work(gpus=1))
    running = fleet.await_pods(control_plane, space, "chat", 2)
    assert len({pod["spec"]["nodeName"] for pod in running}) == 2
    fleet.scale(control_plane, space, "chat", 1)
    fleet.await_pods(control_plane, space, "chat", 1)


def test_a_budget_that_allows_nothing_answers_429_with_its_cause(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    fleet.plain_job(control_plane, space, "kept", 1)
    (pod,) = fleet.await_pods(control_plane, space, "kept", 1)
    fleet.pdb(control_plane, space, "kept", minimum=1)
    status, body = fleet.evict(control_plane, pod)
    assert (status, body["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")


def test_an_eviction_with_another_uid_is_a_conflict_and_with_its_own_is_accepted(
    control_plane: ControlPlane, space: str
) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    fleet.plain_job(control_plane, space, "gone", 1)
    (pod,) = fleet.await_pods(control_plane, space, "gone", 1)
    assert fleet.evict(control_plane, pod, preconditions={"uid": "another"})[0] == 409
    assert fleet.evict(control_plane, pod, preconditions={"uid": pod["metadata"]["uid"]})[0] == 201
    control_plane.api.wait(lambda: not control_plane.api.exists(fleet.pod_path(pod)), IN_TIME, "the pod to be gone")


@pytest.mark.parametrize(
    ("checkpoint", "grace", "least"),
    [
        pytest.param(0, 90, 0, id="a pod without a checkpoint goes at once"),
        pytest.param(3, 90, 2, id="a pod that writes one stays so long"),
        pytest.param(90, 3, 2, id="but not beyond its grace period"),
    ],
)
def test_a_deleted_pod_takes_its_checkpoint_time(
    control_plane: ControlPlane, space: str, checkpoint: int, grace: int, least: int
) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    fleet.plain_job(control_plane, space, "saves", 1, Work(checkpoint=checkpoint, grace=grace))
    (pod,) = fleet.await_pods(control_plane, space, "saves", 1)
    began = time.monotonic()
    assert fleet.evict(control_plane, pod)[0] == 201
    control_plane.api.wait(lambda: not control_plane.api.exists(fleet.pod_path(pod)), IN_TIME, "the pod to be gone")
    assert time.monotonic() - began >= least


def test_an_evicted_pod_of_a_job_that_ignores_disruptions_goes_too(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    job = manifests.job("ignores", 1, manifests.training_template("ignores", Work()))
    ignored = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    job["spec"]["podFailurePolicy"] = {"rules": ignored}
    control_plane.api.apply([job], namespace=space)
    (pod,) = fleet.await_pods(control_plane, space, "ignores", 1)
    assert fleet.evict(control_plane, pod)[0] == 201
    control_plane.api.wait(lambda: not control_plane.api.exists(fleet.pod_path(pod)), IN_TIME, "the pod to be gone")


def test_a_finalizer_holds_a_deleted_pod_until_it_is_released(control_plane: ControlPlane, space: str) -> None:
    (node,) = fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    pod = fleet.bound_pod(control_plane, space, "held", node)
    fleet.hold(control_plane, pod)
    assert fleet.evict(control_plane, pod)[0] == 201
    assert "deletionTimestamp" in control_plane.api.get(fleet.pod_path(pod))["metadata"]
    fleet.release(control_plane, pod)
    control_plane.api.wait(lambda: not control_plane.api.exists(fleet.pod_path(pod)), IN_TIME, "the pod to be gone")


def test_a_pod_with_a_run_time_succeeds_and_its_job_is_complete(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    job = fleet.plain_job(control_plane, space, "short", 2, Work(gpus=4, run=1))
    path = control_plane.api.path_of(job, space)
    control_plane.api.wait(
        lambda: control_plane.api.get(path)["status"].get("succeeded") == 2, IN_TIME, "both to succeed"
    )
    assert {one["status"]["phase"] for one in fleet.pods(control_plane, space, "short")} == {"Succeeded"}


def test_a_jobset_makes_its_gang_under_the_real_controller(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 4, owner="training")
    fleet.jobset(control_plane, space, "llm", 2, replicas=2)
    pods = fleet.await_pods(control_plane, space, "llm", 4)
    assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] for pod in pods} == {"llm"}


def test_a_volcano_gang_names_its_pod_group(control_plane: ControlPlane, space: str) -> None:
    fleet.gpu_nodes(control_plane, "train-a100", "A100", 2, owner="training")
    fleet.volcano_gang(control_plane, space, "mpi", 2)
    pods = fleet.await_pods(control_plane, space, "mpi", 2)
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods} == {"mpi"}
    group = control_plane.api.get(f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{space}/podgroups/mpi")
    assert group["spec"]["minMember"] == 2


def test_a_service_account_may_only_what_a_role_grants_and_the_audit_log_has_it(
    control_plane: ControlPlane, space: str
) -> None:
    limited = control_plane.client(control_plane.identity(space, "limited"))
    role = {"metadata": {"name": "reads"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    who = {"kind": "ServiceAccount", "name": "limited", "namespace": space}
    binding = {"metadata": {"name": "reads"}, "roleRef": {"kind": "Role", "name": "reads"}, "subjects": [who]}
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    control_plane.api.post(f"{rbac}/roles", role)
    control_plane.api.post(f"{rbac}/rolebindings", binding)
    control_plane.api.wait(lambda: limited.items(f"/api/v1/namespaces/{space}/pods") == [], IN_TIME, "the role to hold")
    with pytest.raises(ApiError, match="403"):
        limited.delete(f"/api/v1/namespaces/{space}/pods/any")
    calls = control_plane.audit(f"{space}:limited")
    assert Call("list", "", "pods", "", space, 200) in calls
    assert calls[-1] == Call("delete", "", "pods", "", space, 403)


def test_the_outsider_may_nothing(control_plane: ControlPlane) -> None:
    outsider = control_plane.client(control_plane.kubeconfig("outsider"))
    with pytest.raises(ApiError, match="403"):
        outsider.items("/api/v1/nodes")


def test_a_stale_patch_conflicts_and_a_failed_test_is_unprocessable(control_plane: ControlPlane, space: str) -> None:
    (name,) = fleet.gpu_nodes(control_plane, "infer-a100", "A100", 1)
    path = f"/api/v1/nodes/{name}"
    stale = {"metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}}
    assert control_plane.api.request("PATCH", path, stale, "application/merge-patch+json")[0] == 409
    failed = [{"op": "test", "path": "/metadata/uid", "value": "another"}]
    assert control_plane.api.request("PATCH", path, failed, JSON_PATCH)[0] == 422


def test_kubectl_comes_with_it(control_plane: ControlPlane, kubectl_command: list[str]) -> None:
    words = [*kubectl_command, f"--kubeconfig={control_plane.kubeconfig()}", "get", "namespaces", "-o", "name"]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "namespace/kube-system" in told.split()


def first_line_of_watch(plane: ControlPlane, version: str) -> dict[str, object]:
    status, told = plane.api.request(
        "GET", "/api/v1/namespaces", watch="1", resourceVersion=version, timeoutSeconds="1"
    )
    assert status == 200
    return told


def test_after_a_compaction_a_watch_from_before_is_told_410(own_control_plane: ControlPlane) -> None:
    version = own_control_plane.api.get("/api/v1/namespaces")["metadata"]["resourceVersion"]
    fleet.namespace(own_control_plane)
    own_control_plane.compact()
    told = first_line_of_watch(own_control_plane, version)
    assert (told["type"], told["object"]["code"]) == ("ERROR", 410)  # type: ignore[index]  # JSON


def test_a_part_is_paused_resumed_and_restarted_while_the_others_run(own_control_plane: ControlPlane) -> None:
    plane = own_control_plane
    fleet.gpu_nodes(plane, "train-a100", "A100", 1, owner="training")
    space = fleet.namespace(plane)
    plane.pause("scheduler")
    fleet.plain_job(plane, space, "waits", 1)
    fleet.await_pods(plane, space, "waits", 1, phase="Pending")
    plane.resume("scheduler")
    fleet.await_pods(plane, space, "waits", 1)
    plane.stop("apiserver")
    with pytest.raises((OSError, http.client.HTTPException)):
        plane.api.get("/version")
    plane.start("apiserver")
    plane.restart("kwok")
    assert len(fleet.pods(plane, space, "waits")) == 1
    with pytest.raises(PartError, match="runs already"):
        plane.start("scheduler")


def test_native_gangs_are_served_when_asked_for(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, gangs=True) as plane:
        served = plane.api.get("/apis/scheduling.k8s.io/v1beta1")["resources"]
    assert "podgroups" in {one["name"] for one in served}


def test_what_a_dead_test_process_left_is_killed(tmp_path: Path) -> None:
    keeper = Keeper()
    part = Part("sleeper", ["sleep", "60"], tmp_path, keeper, {})
    part.start()
    keeper.close()  # as the kernel does when the process that holds the pipe ends
    deadline = time.monotonic() + IN_TIME
    while part.runs:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    part.kill()


def test_every_recipe_has_its_module_with_a_lock() -> None:
    for recipe in recipes().values():
        assert {"go.mod", "go.sum"} <= {file.name for file in recipe.folder.iterdir()}, recipe.name


def test_a_client_with_a_wrong_authority_is_not_fooled(control_plane: ControlPlane, tmp_path: Path) -> None:
    import trustme

    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    stranger = AdminClient(control_plane.url, tmp_path / "other.pem", control_plane.token())
    with pytest.raises(OSError, match="certificate"):
        stranger.get("/version")


def test_the_played_exporters_show_which_pods_hold_which_gpus(control_plane: ControlPlane, space: str) -> None:
    (node,) = fleet.gpu_nodes(control_plane, "train-a100", "A100", 1, owner="training")
    fleet.plain_job(control_plane, space, "half", 1, Work(gpus=4))
    (pod,) = fleet.await_pods(control_plane, space, "half", 1)
    with BoundLoads(control_plane.api, {"half": 77.0}) as loads:
        assert loads(node) == [77.0] * 4 + [0.0] * 4
        assert loads.holders(node)[:5] == [(space, pod["metadata"]["name"])] * 4 + [None]
        assert loads("no-such-node") is None
