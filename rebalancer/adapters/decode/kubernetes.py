"""Any Kubernetes object into the fact that it is: the one entry for watch, list, bridges and snapshots.

Objects of kinds that no decision needs are None, not errors. Nothing is fetched and nothing remembered here;
resource claims that are known are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rebalancer.adapters.decode.budgets import decode_budget
from rebalancer.adapters.decode.claims import Claims
from rebalancer.adapters.decode.control import control_from_configmap, decode_namespace, is_control
from rebalancer.adapters.decode.dialects import Dialect
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.gangs import GANG_KINDS, decode_gang
from rebalancer.adapters.decode.nodes import decode_node
from rebalancer.adapters.decode.objects import text
from rebalancer.adapters.decode.pods import decode_pod
from rebalancer.core.stimuli import Fact, FactKind

STAGE = "kubernetes"
_KINDS: Mapping[str, FactKind] = {
    "Pod": "pod", "Node": "node", "PodDisruptionBudget": "budget", "Namespace": "namespace", "ConfigMap": "control",
}  # fmt: skip
_PLURALS = {
    "pods": "Pod", "nodes": "Node", "poddisruptionbudgets": "PodDisruptionBudget", "namespaces": "Namespace",
    "configmaps": "ConfigMap", "podgroups": "PodGroup", "jobsets": "JobSet", "rayclusters": "RayCluster", "jobs": "Job",
    "pytorchjobs": "PyTorchJob", "tfjobs": "TFJob", "mpijobs": "MPIJob",
}  # fmt: skip
GANG_GROUPS = {
    "Job": ("batch",),
    "PodGroup": (
        "scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.run.ai", "scheduling.k8s.io",
        "scheduling.sigs.k8s.io",
    ),
}  # fmt: skip
"""Kinds whose bare name others use too (Volcano has a Job of its own)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What decoding needs to know beside the object: the label map, and the resource claims seen so far."""

    known: Dialect = field(default_factory=Dialect)
    claims: Claims = field(default_factory=dict)


def fact_kind(kind: str, api_version: str = "") -> FactKind | None:
    """Which kind of fact a Kubernetes kind becomes; None when no decision needs it."""
    if kind in GANG_KINDS:
        group = api_version.partition("/")[0]
        return "group" if not api_version or group in GANG_GROUPS.get(kind, (group,)) else None
    return _KINDS.get(kind)


def singular(resource: str) -> str:
    """The kind that a plural resource name stands for; "" when it is none of ours. A kind stays as it is."""
    if resource in _PLURALS.values():
        return resource
    return _PLURALS.get(resource.lower(), "")


def decode_object(raw: Mapping[str, Any], reading: Reading) -> Fact | None:
    """The fact that an object is, or None for kinds that no decision needs.

    Raises:
        DecodeError: it is of a kind that matters, and lacks what identifies it.
    """
    kind = text(raw.get("kind"))
    if not kind:
        raise DecodeError(STAGE, "the object has no kind")
    of = fact_kind(kind, text(raw.get("apiVersion")))
    if of is None or (of == "control" and not is_control(raw)):
        return None
    return _DECODERS[of](raw, reading)


_DECODERS: Mapping[FactKind, Callable[[Mapping[str, Any], Reading], Fact]] = {
    "pod": lambda raw, reading: decode_pod(raw, reading.claims),
    "node": lambda raw, reading: decode_node(raw, reading.known),
    "budget": lambda raw, _: decode_budget(raw),
    "namespace": lambda raw, _: decode_namespace(raw),
    "group": lambda raw, _: decode_gang(raw),
    "control": lambda raw, _: control_from_configmap(raw),
}
