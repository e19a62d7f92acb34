"""Why a pod may never be evicted, and which business class it is of.

Reads every spelling of "leave it alone" that is in use, as text or as YAML boolean. In doubt a pod is
inference and protected: a wrong protection costs a loan, a wrong eviction an outage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.claims import has_claims
from rebalancer.adapters.decode.dialects import OWNER, OWNER_LEGACY, OWNER_TAINTS, owner_word
from rebalancer.adapters.decode.objects import (
    annotations_of,
    falsy,
    items,
    labels_of,
    mapping,
    text,
    texts,
    whole,
)
from rebalancer.adapters.decode.owners import Owner
from rebalancer.core.units import OwnerClass

SYSTEM_PRIORITY = 2_000_000_000
"""Priorities from here on are reserved for the system (k8s.io/api/scheduling ``SystemCriticalPriority``)."""
SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
MIRROR_KEYS = ("kubernetes.io/config.mirror", "kubernetes.io/config.source")
NO_MEANS_STAY = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "volcano.sh/preemptable", "scheduling.volcano.sh/preemptable",
)  # fmt: skip
YES_MEANS_STAY = (
    "karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction", "autoscaling.cast.ai/removal-disabled",
)  # fmt: skip
_INFERENCE_KEYS = (
    "serving.kserve.io/inferenceservice", "serving.kserve.io/llminferenceservice",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-key", "serving.knative.dev/service", "serving.knative.dev/revision",
    "ray.io/serve", "nvidia.com/dynamo-component", "app.nvidia.com/nim-service", "seldon-deployment-id",
)  # fmt: skip
_TRAINING_PREFIXES = ("training.kubeflow.org/", "trainer.kubeflow.org/")
_RAY_ORIGIN = "ray.io/originated-from-crd"
_WORDS = re.compile(r"[^a-z]+", re.ASCII)


def owner_class(raw: Mapping[str, Any]) -> OwnerClass:
    """The pod's class: serving frameworks, the label, training frameworks, then taint or priority."""
    labels, spec = labels_of(raw), mapping(raw.get("spec"))
    marks = {**annotations_of(raw), **labels}
    said = [owner_word(labels.get(key, "")) for key in (OWNER, *OWNER_LEGACY)]
    said = [owner for owner in said if owner is not OwnerClass.UNKNOWN]
    if any(marks.get(key) for key in _INFERENCE_KEYS) or marks.get(_RAY_ORIGIN) == "RayService":
        return OwnerClass.INFERENCE
    if OwnerClass.INFERENCE in said:
        return OwnerClass.INFERENCE
    if said:
        return said[0]
    if any(key.startswith(_TRAINING_PREFIXES) for key in marks):
        return OwnerClass.TRAINING
    return _placed(spec)


def _placed(spec: Mapping[str, Any]) -> OwnerClass:
    """What selector, tolerations and priority class agree on; unknown when they say nothing or two things."""
    selected = owner_word(texts(spec.get("nodeSelector")).get(OWNER, ""))
    tolerated = [owner_word(text(item.get("value"))) for item in items(spec.get("tolerations"))
                 if item.get("key") in OWNER_TAINTS and item.get("operator", "Equal") == "Equal"]  # fmt: skip
    ranked = [owner_word(word) for word in _WORDS.split(text(spec.get("priorityClassName")).lower())]
    for source in ([selected], tolerated, ranked):
        found = {owner for owner in source if owner is not OwnerClass.UNKNOWN}
        if len(found) == 1:
            return next(iter(found))
    return OwnerClass.UNKNOWN


def protections(raw: Mapping[str, Any], owner: OwnerClass, held_by: Owner, phase: str) -> tuple[str, ...]:
    """Every reason why the pod must be left alone, sorted; empty when there is none."""
    spec, marks = mapping(raw.get("spec")), {**labels_of(raw), **annotations_of(raw)}
    priority = whole(spec.get("priority")) or 0
    mirror = any(key in marks for key in MIRROR_KEYS) or held_by.kind == "Node"
    critical = priority >= SYSTEM_PRIORITY or text(spec.get("priorityClassName")) in SYSTEM_CLASSES
    reasons = {
        "daemonset": held_by.kind == "DaemonSet",
        "mirror": mirror,
        "bare": held_by.kind == "",
        "system-critical": critical,
        "terminal": phase in ("Succeeded", "Failed"),
        "inference": owner is OwnerClass.INFERENCE,
        "do-not-disrupt": any(falsy(marks.get(key, "")) for key in NO_MEANS_STAY)
        or any(marks.get(key) is not None and not falsy(marks[key]) for key in YES_MEANS_STAY),
        "resource-claims": has_claims(raw),
    }
    return tuple(sorted(name for name, holds in reasons.items() if holds))
