"""Who owns a pod: its controller, its top owner, and the identity that outlives a resubmission.

Generated endings (template hashes, generated names, run counters, timestamps) are cut, so that submitting the
same work again under a new name finds its old cooldown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rebalancer.adapters.decode.objects import annotations_of, first, items, labels_of, metadata, text
from rebalancer.core.units import WorkloadId


class Owner(NamedTuple):
    """An owning object; all "" when there is none."""

    api_version: str = ""
    kind: str = ""
    name: str = ""

    @property
    def reference(self) -> str:
        """``Kind.version.group/name``, as kubectl spells a kind in full; "" without an owner."""
        group, _, version = self.api_version.rpartition("/")
        return f"{self.kind}.{version}{'.' if group else ''}{group}/{self.name}" if self.kind else ""


def parse_reference(reference: str) -> Owner:
    """The owner that a reference spells; an empty one when it spells none."""
    full, _, name = reference.partition("/")
    kind, _, rest = full.partition(".")
    version, _, group = rest.partition(".")
    if not (kind and version and name):
        return Owner()
    return Owner(f"{group}/{version}" if group else version, kind, name)


QUEUE_KEYS = (
    "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "scheduling.volcano.sh/queue-name",
    "kai.scheduler/queue", "runai/queue", "yunikorn.apache.org/queue",
)  # fmt: skip
_DECLARED = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.x-k8s.io/v1alpha2", "JobSet"),
    ("ray.io/cluster", "ray.io/v1", "RayCluster"),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
)
"""Labels that name the owner above the controller."""


def controller(raw: Mapping[str, Any]) -> Owner:
    """The controlling owner reference."""
    listed = items(metadata(raw).get("ownerReferences"))
    held = next((item for item in listed if item.get("controller") is True), None)
    return Owner(*(text(held.get(key)) for key in ("apiVersion", "kind", "name"))) if held is not None else Owner()


def top_owner(raw: Mapping[str, Any]) -> Owner:
    """The object that a person submitted, as far as the pod itself tells."""
    direct = controller(raw)
    labels = {**annotations_of(raw), **labels_of(raw)}
    for key, api_version, kind in _DECLARED:
        if labels.get(key):
            return Owner(api_version, kind, labels[key])
    if direct.kind == "ReplicaSet":
        hash_ = labels.get("pod-template-hash", "")
        stem = direct.name.removesuffix(f"-{hash_}") if hash_ else direct.name
        stem = stem if stem != direct.name else _without_hash(direct.name)
        return Owner("apps/v1", "Deployment", stem) if stem != direct.name else direct
    return direct


def queue_of(raw: Mapping[str, Any]) -> str:
    """The queue that the pod was submitted to, "" when it names none."""
    return first({**annotations_of(raw), **labels_of(raw)}, QUEUE_KEYS)


NAME_LIMIT = 253
"""Characters of a name in Kubernetes; what is longer came from no API server."""
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: k8s.io/apimachinery/pkg/util/rand."""
_HASH = re.compile(rf"-[{_SAFE}]{{5,10}}", re.ASCII)
_GENERATED = re.compile(
    rf"[-_.](?:[{_SAFE}]{{5}}|(?=[a-z]*[0-9])(?=[0-9]*[a-z])[{_SAFE}]{{6,10}}"
    r"|(?=[a-f]*[0-9])[0-9a-f]{6,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?:run|try|attempt|retry|v|r)?[-_]?[0-9]+|[0-9]{4}[-_]?[0-9]{2}[-_]?[0-9]{2}(?:[-_t][0-9]+)*)",
    re.ASCII,
)


def _without_hash(name: str) -> str:
    """A ReplicaSet's name without its template hash."""
    stem, dash, last = name.rpartition("-")
    return stem if (stem and _HASH.fullmatch(dash + last)) or (stem and re.fullmatch(r"[0-9a-f]{6,10}", last)) else name


def stem(name: str) -> str:
    """A name without generated endings; at least its first part remains."""
    current = name[:NAME_LIMIT]
    while True:
        cut = _last_generated(current)
        if cut == 0:
            return current
        current = current[:cut]


def _last_generated(name: str) -> int:
    """Where the longest generated ending begins, 0 when there is none."""
    places = [place for place in range(1, len(name)) if name[place] in "-_."]
    return next((place for place in places[-6:] if _GENERATED.fullmatch(name, place)), 0)


def workload_identity(raw: Mapping[str, Any]) -> WorkloadId:
    """``namespace/queue/name`` of what was submitted, stable over resubmissions."""
    owner = top_owner(raw)
    name = owner.name or text(metadata(raw).get("generateName")).rstrip("-") or text(metadata(raw).get("name"))
    return f"{text(metadata(raw).get('namespace'))}/{queue_of(raw)}/{stem(name)}"
