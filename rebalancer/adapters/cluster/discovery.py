"""Which resources are followed: what every cluster has, and of the gang kinds and claims those that this one serves.

A kind whose definition is not installed is simply not there, and is looked for again with every list. Of several
versions the server's preferred one is taken, else the first that serves the kind: native PodGroups are only in alpha
versions of a group whose preferred version is stable. Nothing is listed or watched from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.reflector import Refused, Resource
from rebalancer.adapters.decode.control import CONTROL_NAME

DISCOVERY_TIMEOUT = 10.0
"""Seconds for one page of discovery: they are small and served from memory."""
NODES = Resource("node", "Node", "v1", "/api/v1/nodes")
PODS = Resource("pod", "Pod", "v1", "/api/v1/pods")
NAMESPACES = Resource("namespace", "Namespace", "v1", "/api/v1/namespaces")
BUDGETS = Resource("budget", "PodDisruptionBudget", "policy/v1", "/apis/policy/v1/poddisruptionbudgets")
JOBS = Resource("group", "Job", "batch/v1", "/apis/batch/v1/jobs")
OPTIONAL: Mapping[str, Mapping[str, str]] = {
    "jobset.x-k8s.io": {"jobsets": "JobSet"},
    "scheduling.volcano.sh": {"podgroups": "PodGroup"},
    "scheduling.x-k8s.io": {"podgroups": "PodGroup"},
    "scheduling.run.ai": {"podgroups": "PodGroup"},
    "scheduling.k8s.io": {"podgroups": "PodGroup"},
    "scheduling.sigs.k8s.io": {"podgroups": "PodGroup"},
    "ray.io": {"rayclusters": "RayCluster"},
    "kubeflow.org": {
        "pytorchjobs": "PyTorchJob", "tfjobs": "TFJob", "mpijobs": "MPIJob", "xgboostjobs": "XGBoostJob",
        "paddlejobs": "PaddleJob", "jaxjobs": "JAXJob",
    },
    "resource.k8s.io": {"resourceclaims": "ResourceClaim"},
}  # fmt: skip
"""API groups and their plural names. A LeaderWorkerSet's pods say everything that its object does."""


def control(namespace: str) -> Resource:
    """The one ConfigMap that holds the brakes."""
    named = {"fieldSelector": f"metadata.name={CONTROL_NAME}"}
    return Resource("control", "ConfigMap", "v1", f"/api/v1/namespaces/{namespace}/configmaps", named)


async def optional(api: Api) -> tuple[Resource, ...]:
    """Gang kinds and claims that the server has now.

    Raises:
        Refused: discovery was answered with an error.
        ConnectionError, TimeoutError: it was not answered.
    """
    listed = (await _asked(api, "/apis")).get("groups") or ()
    versions = {str(item.get("name")): _versions(item) for item in listed if isinstance(item, dict)}
    found = await asyncio.gather(*(_group(api, group, versions.get(group, ())) for group in OPTIONAL))
    return tuple(resource for resources in found for resource in resources)


def _versions(group: Mapping[str, Any]) -> tuple[str, ...]:
    """All versions of a group, the preferred one first."""
    served = [group.get("preferredVersion"), *(group.get("versions") or ())]
    named = [str(item.get("groupVersion") or "") for item in served if isinstance(item, dict)]
    return tuple(dict.fromkeys(name for name in named if name))


async def _group(api: Api, group: str, versions: Iterable[str]) -> list[Resource]:
    missing, found = dict(OPTIONAL[group]), list[Resource]()
    for version in versions:
        if not missing:
            break
        served = (await _asked(api, f"/apis/{version}")).get("resources") or ()
        watchable = {str(item.get("name")) for item in served if {"list", "watch"} <= set(item.get("verbs") or ())}
        for plural in watchable & set(missing):
            kind = missing.pop(plural)
            of = "claim" if kind == "ResourceClaim" else "group"
            found.append(Resource(of, kind, version, f"/apis/{version}/{plural}"))
    return sorted(found, key=lambda resource: resource.path)


async def _asked(api: Api, path: str) -> dict[str, Any]:
    reply = await api.request("GET", path, timeout=DISCOVERY_TIMEOUT)
    if not reply.ok or not isinstance(reply.body, dict):
        raise Refused(path, reply.status, reply.message)
    return reply.body
