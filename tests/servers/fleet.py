"""A GPU fleet on the test control plane: kwok nodes, inference services, training gangs, budgets.

Each function creates and returns at once, except where its docstring says that it waits. `clean` takes away what
was made here, finalizers and all. It must never touch what a test made by itself outside these namespaces.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tests.servers import manifests
from tests.servers.adminclient import ApiError
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Json, Work
from tests.servers.parts import FAKE_NODE

READY_WITHIN = 60.0  # seconds for nodes and pods that have room; tenths on idle cores
GONE_WITHIN = 60.0  # seconds for pods and nodes that were deleted without grace; tenths on idle cores
MARK = {"rebalancer.test/fleet": "true"}
MARKED = "rebalancer.test/fleet=true"
FAKE = ",".join(f"{key}={value}" for key, value in FAKE_NODE.items())
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NOT_READY = "node.kubernetes.io/not-ready"
MAKERS = (
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/statefulsets",
)


# --- nodes -----------------------------------------------------------------------------------------------------------


def gpu_nodes(
    control_plane: ControlPlane,
    pool: str,
    model: str,
    count: int,
    *,
    gpus: int = 8,
    owner: str = "inference",
    name_prefix: str = "",
    labels: Mapping[str, str] | None = None,
    wait: bool = True,
) -> list[str]:
    """Make `count` nodes of a pool, `<prefix>-01` and so on; waits until pods could be placed. Their names."""
    prefix = name_prefix or pool
    names = [f"{prefix}-{number:02}" for number in range(1, count + 1)]
    for name in names:
        marks = {**FAKE_NODE, **(labels or {})}
        control_plane.api.post("/api/v1/nodes", manifests.node(name, pool, model, gpus, owner=owner, marks=marks))
    if wait:
        await_nodes(control_plane, names)
    return names


def await_nodes(control_plane: ControlPlane, names: list[str]) -> None:
    """Wait until these nodes are Ready, without the not-ready taint (it outlives the condition), and leased.

    Before kwok holds a node's lease it plays none of its pods.
    """

    def ready() -> bool:
        found = {node["metadata"]["name"]: node for node in control_plane.api.items("/api/v1/nodes")}
        held = {lease["metadata"]["name"] for lease in control_plane.api.items(LEASES)}
        return all(name in found and name in held and _usable(found[name]) for name in names)

    control_plane.api.wait(ready, READY_WITHIN, f"{len(names)} nodes to be ready")


def _usable(node: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in node.get("status", {}).get("conditions", [])}
    tainted = any(taint["key"] == NOT_READY for taint in node["spec"].get("taints", []))
    return conditions.get("Ready") == "True" and not tainted


# --- namespaces and workloads ----------------------------------------------------------------------------------------


def namespace(control_plane: ControlPlane, stem: str = "team", *, name: str = "", **labels: str) -> str:
    """Make a namespace with a fresh name, or with just this one, and with these labels."""
    name = name or f"{stem}-{uuid.uuid4().hex[:8]}"
    control_plane.api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {**MARK, **labels}}})
    return name


def inference(
    control_plane: ControlPlane, space: str, name: str, replicas: int, work: Work | None = None, *, spread: bool = True
) -> Json:
    """A Deployment of an inference service; `spread`: never two replicas on a host."""
    template = manifests.inference_template(name, work or Work(lendable=False), spread)
    return _create(control_plane, space, manifests.deployment(name, replicas, template))


def scale(control_plane: ControlPlane, space: str, name: str, replicas: int, kind: str = "deployments") -> None:
    """Set the replicas of a Deployment or a StatefulSet, as an autoscaler does."""
    path = f"/apis/apps/v1/namespaces/{space}/{kind}/{name}/scale"
    control_plane.api.patch(path, {"spec": {"replicas": replicas}})


def jobset(
    control_plane: ControlPlane, space: str, name: str, pods: int, work: Work | None = None, *, replicas: int = 1
) -> Json:
    """A JobSet under the real controller, which is started if it does not run: a gang of replicas × pods."""
    control_plane.ensure_jobset()
    template = manifests.training_template(name, work or Work())
    return _create(control_plane, space, manifests.jobset(name, pods, template, replicas))


def plain_job(control_plane: ControlPlane, space: str, name: str, pods: int, work: Work | None = None) -> Json:
    """A batch Job of `pods` pods at a time; its pods are replaced when they are evicted."""
    return _create(control_plane, space, manifests.job(name, pods, manifests.training_template(name, work or Work())))


def volcano_gang(control_plane: ControlPlane, space: str, name: str, pods: int, work: Work | None = None) -> Json:
    """A Job whose pods name a Volcano PodGroup of `pods` members; the CRD is made if it is not there."""
    control_plane.api.apply([manifests.volcano_crd()])
    group = manifests.pod_group(name, pods)
    control_plane.api.apply([group], namespace=space)
    template = manifests.training_template(name, work or Work())
    template["metadata"]["annotations"][manifests.GROUP_NAME] = name
    return _create(control_plane, space, manifests.job(name, pods, template))


def statefulset(control_plane: ControlPlane, space: str, name: str, replicas: int, work: Work | None = None) -> Json:
    """A StatefulSet of training pods: what is evicted comes back under the same name."""
    template = manifests.training_template(name, work or Work())
    template["spec"].pop("restartPolicy")  # only Always is allowed
    return _create(control_plane, space, manifests.statefulset(name, replicas, template))


def pdb(
    control_plane: ControlPlane,
    space: str,
    app: str,
    *,
    minimum: int | str | None = None,
    unavailable: int | str | None = None,
    name: str = "",
) -> Json:
    """A budget over the pods of one workload (label app); waits until its controller has counted them once."""
    made = _create(control_plane, space, manifests.budget(name or app, app, minimum, unavailable))
    path = control_plane.api.path_of(made, space)

    def counted() -> bool:
        return bool(control_plane.api.get(path).get("status", {}).get("observedGeneration"))

    control_plane.api.wait(counted, READY_WITHIN, f"the budget {app} to be counted")
    return made


def bound_pod(control_plane: ControlPlane, space: str, name: str, node: str, work: Work | None = None) -> Json:
    """A pod without an owner, bound to `node` past the scheduler and its taints."""
    template = manifests.training_template(name, work or Work(lendable=False))
    return _create(control_plane, space, manifests.bare_pod(name, template, node))


def _create(control_plane: ControlPlane, space: str, item: Json) -> Json:
    path = control_plane.api.path_of(item, space).rpartition("/")[0]
    return control_plane.api.post(path, item)


# --- pods ------------------------------------------------------------------------------------------------------------


def pods(control_plane: ControlPlane, space: str, app: str = "", **query: str) -> list[Json]:
    """Pods of a namespace, of one workload when `app` is given."""
    chosen = {"labelSelector": f"app={app}"} if app else {}
    return control_plane.api.items(f"/api/v1/namespaces/{space}/pods", **chosen, **query)


def await_pods(
    control_plane: ControlPlane,
    space: str,
    app: str,
    count: int,
    *,
    phase: str = "Running",
    within: float = READY_WITHIN,
) -> list[Json]:
    """Wait until exactly `count` pods of a workload are in `phase` and not being deleted; return them."""

    def arrived() -> list[Json]:
        found = [pod for pod in pods(control_plane, space, app) if _is(pod, phase)]
        return found if len(found) == count else []

    return control_plane.api.wait(arrived, within, f"{count} pods of {app} to be {phase}")


def _is(pod: Json, phase: str) -> bool:
    return pod["status"].get("phase") == phase and "deletionTimestamp" not in pod["metadata"]


def evict(control_plane: ControlPlane, pod: Json, **options: Any) -> tuple[int, Json]:
    """Ask for an eviction as admin; status and body. `options`: fields of deleteOptions."""
    meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    return control_plane.api.request("POST", f"{pod_path(pod)}/eviction", body)


def hold(control_plane: ControlPlane, pod: Json, finalizer: str = "rebalancer.test/hold") -> None:
    """Put a finalizer on a pod: a deletion starts but does not end until `release`, nor do its containers."""
    kept = control_plane.api.get(pod_path(pod))["metadata"].get("finalizers", [])
    held = {"finalizers": [*kept, finalizer], "annotations": {"sim/held": "true"}}
    control_plane.api.patch(pod_path(pod), {"metadata": held})


def release(control_plane: ControlPlane, pod: Json) -> None:
    """Take all finalizers off a pod."""
    control_plane.api.patch(pod_path(pod), {"metadata": {"finalizers": None}})


def pod_path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


# --- cleaning --------------------------------------------------------------------------------------------------------


def clean(control_plane: ControlPlane) -> None:
    """Remove every namespace and node that was made here; wait until their pods and the nodes are gone.

    The namespaces themselves take 5 s more (their controller's own delay); nothing can be made in them meanwhile.
    """
    api = control_plane.api
    spaces = [one["metadata"]["name"] for one in api.items("/api/v1/namespaces", labelSelector=MARKED)]
    for space in spaces:
        _close(control_plane, space)
    api.wait(lambda: all(_emptied(control_plane, space) for space in spaces), GONE_WITHIN, "all pods to be gone")
    api.delete("/api/v1/nodes", labelSelector=FAKE)
    api.wait(lambda: not api.items("/api/v1/nodes", labelSelector=FAKE), GONE_WITHIN, "the nodes to be gone")
    api.delete(LEASES)  # one that outlives its node keeps kwok from the next node of that name for 10 s


def _close(control_plane: ControlPlane, space: str) -> None:
    """First the namespace, so that nothing new comes into it, then those who make pods."""
    for path in (f"/api/v1/namespaces/{space}", *(maker.format(space) for maker in MAKERS)):
        with suppress(ApiError):  # 404: gone, or no JobSets are served; 409: it goes already
            control_plane.api.delete(path, propagationPolicy="Background")


def _emptied(control_plane: ControlPlane, space: str) -> bool:
    """Delete its pods at once, whatever holds them; whether there were none left."""
    control_plane.api.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
    held = pods(control_plane, space)
    for pod in held:
        with suppress(ApiError):  # 404: gone meanwhile
            release(control_plane, pod)
    return not held
