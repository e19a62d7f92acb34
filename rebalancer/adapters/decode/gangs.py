"""Gang objects into facts: what their pods may not say themselves.

PodGroups of all families, JobSet, Kubeflow jobs, RayCluster and plain Job. Keys are those that pods carry.
LeaderWorkerSets have one gang a group, whose pods say everything, so their object says nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.gang_keys import SIZE_LIMIT, gang_id
from rebalancer.adapters.decode.nodes import opted_out
from rebalancer.adapters.decode.objects import (
    annotations_of,
    first,
    items,
    labels_of,
    mapping,
    metadata,
    required,
    text,
    whole,
)
from rebalancer.adapters.decode.owners import QUEUE_KEYS, Owner
from rebalancer.core.facts import GangSpec

STAGE = "gang"
REPLICA_SPECS = "ReplicaSpecs"
GANG_KINDS = frozenset({
    "PodGroup", "JobSet", "RayCluster", "Job", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob",
})  # fmt: skip


def decode_gang(raw: Mapping[str, Any]) -> GangSpec:
    """A gang fact.

    Raises:
        DecodeError: it has no name, namespace or uid.
    """
    meta, spec, kind = metadata(raw), mapping(raw.get("spec")), text(raw.get("kind"))
    namespace, name = required(meta.get("namespace"), STAGE, "namespace"), required(meta.get("name"), STAGE, "name")
    size, least = _sizes(kind, spec)
    marks = {**annotations_of(raw), **labels_of(raw)}
    return GangSpec(
        uid=required(meta.get("uid"), STAGE, "uid"),
        gang=gang_id(namespace, kind, name),
        namespace=namespace,
        size=size,
        min_member=min(least, size),
        queue=text(spec.get("queue")) or first(marks, QUEUE_KEYS),
        top_owner=_top(raw, kind, name),
        opted_out=opted_out(annotations_of(raw)),
    )


def _top(raw: Mapping[str, Any], kind: str, name: str) -> str:
    """A PodGroup is made for something; everything else is what a person submitted, or its controller is."""
    held = next((item for item in items(metadata(raw).get("ownerReferences")) if item.get("controller") is True), None)
    if held is not None:
        return Owner(*(text(held.get(key)) for key in ("apiVersion", "kind", "name"))).reference
    return Owner(text(raw.get("apiVersion")), kind, name).reference


def _sizes(kind: str, spec: Mapping[str, Any]) -> tuple[int, int]:
    """(size, least) of a gang; 1 where the object does not say."""
    if kind == "PodGroup":
        return _pod_group(spec)
    if kind == "JobSet":
        parts = [_jobs(item) for item in items(spec.get("replicatedJobs"))]
        return _both(sum(parts), sum(parts))
    if kind == "RayCluster":
        return _ray(spec)
    if kind == "Job":
        return _both(_number(spec.get("parallelism")), _number(spec.get("parallelism")))
    return _kubeflow(spec)


def _pod_group(spec: Mapping[str, Any]) -> tuple[int, int]:
    """The family's ``minMember``, or the scheduler's own ``schedulingPolicy.gang.minCount``."""
    policy = mapping(spec.get("schedulingPolicy"))
    native = mapping(policy.get("gang")).get("minCount", mapping(spec.get("gang")).get("minCount"))
    least = _number(spec.get("minMember", native))
    return _both(least, least)


def _jobs(item: Mapping[str, Any]) -> int:
    template = mapping(mapping(mapping(item.get("template")).get("spec")))
    return _number(item.get("replicas")) * _number(template.get("parallelism"))


def _ray(spec: Mapping[str, Any]) -> tuple[int, int]:
    groups = items(spec.get("workerGroupSpecs"))
    hosts = [_number(group.get("numOfHosts")) for group in groups]
    wanted = [_number(group.get("replicas")) for group in groups]
    least = [_number(group.get("minReplicas"), _number(group.get("replicas"))) for group in groups]
    total = sum(host * number for host, number in zip(hosts, wanted, strict=True))
    return _both(1 + total, 1 + sum(host * number for host, number in zip(hosts, least, strict=True)))


def _kubeflow(spec: Mapping[str, Any]) -> tuple[int, int]:
    roles = next((mapping(value) for key, value in spec.items() if key.endswith(REPLICA_SPECS)), {})
    size = sum(_number(mapping(role).get("replicas")) for role in roles.values())
    scheduling = mapping(mapping(spec.get("runPolicy")).get("schedulingPolicy"))
    elastic = mapping(spec.get("elasticPolicy"))
    return _both(size, _number(scheduling.get("minAvailable"), _number(elastic.get("minReplicas"), size)))


def _number(value: object, default: int = 1) -> int:
    number = whole(value)
    return min(number, SIZE_LIMIT) if number is not None and number >= 0 else default


def _both(size: int, least: int) -> tuple[int, int]:
    bounded = min(max(size, 1), SIZE_LIMIT)
    return bounded, min(max(least, 1), bounded)
