"""Service accounts with exactly the rights of a profile, as roles made from the product's own list."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rebalancer.adapters.cluster.permissions import Profile, Right, needed
from tests.servers.adminclient import ApiError
from tests.servers.controlplane import ControlPlane

KNOWN_WITHIN = 30.0  # seconds; tenths on idle cores
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def granted(control_plane: ControlPlane, namespace: str, account: str, profile: Profile) -> Path:
    """A kubeconfig of a service account that may do what the profile names, and nothing else."""
    rights = needed(profile)
    at = control_plane.identity(namespace, account)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    unique = f"{namespace}-{account}"
    for kind, scope, place in (
        ("ClusterRole", "cluster", ""),
        ("Role", "namespace", f"/namespaces/{namespace}"),
    ):
        rules = [rule(right) for right in rights if right.scope == scope]
        meta = {"name": unique}
        _made(control_plane, f"{RBAC}{place}/{kind.lower()}s", {"metadata": meta, "rules": rules})
        bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": unique}}
        body: dict[str, Any] = {"metadata": meta, "subjects": [subject], **bound}
        _made(control_plane, f"{RBAC}{place}/{kind.lower()}bindings", body)
    return at


def in_force(control_plane: ControlPlane, kubeconfig: Path) -> None:
    """Wait until the server knows the rights of this identity: its roles reach it a moment later."""
    client = control_plane.client(kubeconfig)
    try:
        client.wait(lambda: client.get("/api/v1/nodes"), KNOWN_WITHIN, "the rights to be known")
    finally:
        client.disconnect()


def rule(right: Right) -> dict[str, Any]:
    """An RBAC rule for one right."""
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    names: dict[str, Iterable[str]] = {"resourceNames": list(right.names)} if right.names else {}
    return {"apiGroups": [right.group], "resources": [resource], "verbs": [right.verb], **names}


def _made(control_plane: ControlPlane, path: str, body: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):  # 409: it is there from a test before
        control_plane.api.post(path, body)
