"""Which gang a pod belongs to, by every framework's own mark.

Order of belief: a PodGroup that the pod names (whoever wrote it schedules by it), then the framework's
labels, then the top owner as one gang (fail safe), then the pod alone. Gang objects use the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rebalancer.adapters.decode.objects import (
    annotations_of,
    first,
    labels_of,
    mapping,
    metadata,
    text,
    whole,
)
from rebalancer.adapters.decode.owners import top_owner
from rebalancer.core.units import GangId

POD_GROUP_KEYS = (
    "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "pod-group-name", "kai.scheduler/pod-group",
    "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name",
    "gang.scheduling.koordinator.sh/name",
)  # fmt: skip
"""Volcano, KAI, coscheduling and Koordinator, as annotation or label."""
YUNIKORN_APP = "yunikorn.apache.org/app-id"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
KUBEFLOW = ("training.kubeflow.org/job-name", "job-name")
KUBEFLOW_MARK = "training.kubeflow.org/"
RAY = "ray.io/cluster"
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-key"
SIZE_KEYS = (
    "kueue.x-k8s.io/pod-group-total-count", "leaderworkerset.sigs.k8s.io/size",
    "pod-group.scheduling.sigs.k8s.io/total", "gang.scheduling.koordinator.sh/total-number",
)  # fmt: skip
MIN_KEYS = ("pod-group.scheduling.sigs.k8s.io/min-available", "scheduling.volcano.sh/min-available",
            "gang.scheduling.koordinator.sh/min-available")  # fmt: skip
SIZE_LIMIT = 100_000


_NO_GANGS = ("", "DaemonSet", "Node")
"""Owners whose pods live and die one by one."""


class Gang(NamedTuple):
    """A gang as a pod declares it. ``size`` and ``least`` are 1 when the pod does not say."""

    key: GangId
    size: int = 1
    least: int = 1


def gang_id(namespace: str, kind: str, name: str) -> GangId:
    """``namespace/kind/name``: the spelling that pods and gang objects share."""
    return f"{namespace}/{kind.lower()}/{name}"


def gang_of(raw: Mapping[str, Any], uid: str) -> Gang:
    """The pod's gang."""
    marks = {**labels_of(raw), **annotations_of(raw)}
    namespace = text(metadata(raw).get("namespace"))
    size = _bounded(first(marks, SIZE_KEYS))
    least = min(_bounded(first(marks, MIN_KEYS), default=size), size) if size > 1 else 1
    return Gang(_key(raw, marks, namespace) or uid, size, least)


def _bounded(value: str, default: int = 1) -> int:
    number = whole(value)
    return number if number is not None and 1 <= number <= SIZE_LIMIT else default


def _key(raw: Mapping[str, Any], marks: Mapping[str, str], namespace: str) -> GangId:
    group = first(marks, POD_GROUP_KEYS) or _native_group(mapping(raw.get("spec")))
    declared = (
        (group, "podgroup"),
        (marks.get(KUEUE_GROUP, ""), "kueue"),
        (marks.get(JOBSET, ""), "jobset"),
        (marks.get(LWS_GROUP, ""), "leaderworkerset"),
        (marks.get(YUNIKORN_APP, ""), "yunikorn"),
        (marks.get(RAY, ""), "raycluster"),
    )
    found = next(((name, kind) for name, kind in declared if name), None)
    if found is not None:
        return gang_id(namespace, found[1], found[0])
    owner = top_owner(raw)
    if any(key.startswith(KUBEFLOW_MARK) for key in marks) and first(marks, KUBEFLOW):
        return gang_id(namespace, owner.kind or "kubeflow", first(marks, KUBEFLOW))
    return gang_id(namespace, owner.kind, owner.name) if owner.kind not in _NO_GANGS else ""


def _native_group(spec: Mapping[str, Any]) -> str:
    """The scheduler's own groups: ``schedulingGroup`` (1.36 on), ``workloadRef`` (1.35)."""
    named = text(mapping(spec.get("schedulingGroup")).get("podGroupName"))
    reference = mapping(spec.get("workloadRef"))
    parts = [text(reference.get(key)) for key in ("name", "podGroup", "podGroupReplicaKey")]
    return named or ("/".join(part for part in parts if part) if parts[0] else "")
