"""Objects that admission is asked about, and what it says; shared by the tests of the policies."""

from typing import Any

from tests.servers.adminclient import AdminClient

RELEASE = "gpu-rebalancer"
EFFECTIVE_WITHIN = 30.0
"""Seconds; 0.2 to 0.8 after a binding on quiet cores."""
Object = dict[str, Any]
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "5f0c", "controller": True}
ON_LOAN = {"key": "gpu-rebalancer.io/on-loan", "operator": "Exists", "effect": "NoSchedule"}


def labelled(**labels: str) -> Object:
    """A node with these labels; `__` in a keyword stands for what Python does not let in."""
    spelled = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "asked", "labels": spelled}}


def refused(api: AdminClient, node: Object) -> str:
    """Why the API server would not make the node; "" when it would."""
    status, told = api.request("POST", "/api/v1/nodes", node, dryRun="All")
    assert status in {201, 422, 403}, told
    return "" if status == 201 else str(told["message"])


def pod(*, reclaimable: str = "", owner: Object | None = None, grace: int = 30, gpus: int = 8, kind: str = "Job",
        tolerations: list[Object]) -> Object:  # fmt: skip
    """A pod of a job that asks for GPUs."""
    labels = {"gpu-rebalancer.io/reclaimable": reclaimable} if reclaimable else {}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    owners = [{**owner, "kind": kind}] if owner else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked", "labels": labels, "ownerReferences": owners},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
            "terminationGracePeriodSeconds": grace,
            "tolerations": tolerations,
        },
    }


def refused_pod(api: AdminClient, asked: Object) -> str:
    """Why the API server would not make the pod; "" when it would."""
    status, told = api.request("POST", "/api/v1/namespaces/default/pods", asked, dryRun="All")
    assert status in {201, 422, 403}, told
    return "" if status == 201 else str(told["message"])
