"""Which rights the program needs in a cluster: the one list that the chart's roles, preflight and tests follow.

A right is asked for only where a call is made with it. ``namespace`` rights hold in the namespace of our own
objects, ``cluster`` rights everywhere; names narrow a right to those objects. Nothing is asked of a server here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rebalancer.adapters.decode.control import CONTROL_NAME

Scope: TypeAlias = Literal["cluster", "namespace"]
Profile: TypeAlias = Literal["shadow", "act", "retire", "operator"]
LEASES = ("gpu-rebalancer-act", "gpu-rebalancer-collect")
"""With the default ``lease.name``; :func:`needed` takes another."""
DEPLOYMENTS = ("gpu-rebalancer",)
"""As the chart calls its one Deployment by default; :func:`needed` takes others."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource. ``names``: only on objects of these names (never for create and list)."""

    group: str
    resource: str
    subresource: str
    verb: str
    scope: Scope
    names: tuple[str, ...] = ()
    optional: bool = False
    """Whether its kind may be missing in the cluster."""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        return f"{self.verb} {what}" + (f".{self.group}" if self.group else "")


def _rights(
    group: str,
    resource: str,
    verbs: str,
    scope: Scope = "cluster",
    names: tuple[str, ...] = (),
    *,
    optional: bool = False,
) -> tuple[Right, ...]:
    whole, _, part = resource.partition("/")
    return tuple(Right(group, whole, part, verb, scope, names, optional) for verb in verbs.split())


GANG_OBJECTS: Mapping[str, tuple[str, ...]] = {
    "batch": ("jobs",),
    "jobset.x-k8s.io": ("jobsets",),
    "ray.io": ("rayclusters",),
    "kubeflow.org": ("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"),
    "scheduling.volcano.sh": ("podgroups",),
    "scheduling.x-k8s.io": ("podgroups",),
    "scheduling.run.ai": ("podgroups",),
    "scheduling.k8s.io": ("podgroups",),
    "scheduling.sigs.k8s.io": ("podgroups",),
}
"""Objects that define gangs, by API group; all but plain Jobs are optional."""
ANNOTATED: Mapping[str, tuple[str, ...]] = {
    group: left for group, kinds in GANG_OBJECTS.items() if (left := tuple(one for one in kinds if one != "podgroups"))
}
"""Top owners that may get `last-recall`: act writes it on these only, and retiring takes it off all of them.

What people submit as a gang. A Deployment, StatefulSet or LeaderWorkerSet would need a right to patch all of its kind
in the cluster for one word to its owner, who has the Event as well.
"""

_SEEN = (
    *_rights("", "nodes", "get list watch"),
    *_rights("", "pods", "get list watch"),
    *_rights("", "namespaces", "get list watch"),
    *_rights("policy", "poddisruptionbudgets", "get list watch"),
    *_rights("resource.k8s.io", "resourceclaims", "list watch", optional=True),
    *(
        right
        for group, kinds in GANG_OBJECTS.items()
        for kind in kinds
        for right in _rights(group, kind, "list watch", optional=group != "batch")
    ),
    *_rights("", "configmaps", "get list watch", "namespace", (CONTROL_NAME,)),
)
_LED = (
    *_rights("coordination.k8s.io", "leases", "create", "namespace"),
    *_rights("coordination.k8s.io", "leases", "get update", "namespace", LEASES),
)
_HANDS = (
    *_rights("", "nodes", "patch"),
    *_rights("", "pods", "patch"),
    *_rights("", "pods/eviction", "create"),
    *_rights("events.k8s.io", "events", "create"),
    *(
        right  # `last-recall` on what somebody submitted; an admission policy narrows it to that annotation
        for group, kinds in ANNOTATED.items()
        for kind in kinds
        for right in _rights(group, kind, "patch", optional=group != "batch")
    ),
)
_BRAKES = (
    *_rights("", "configmaps", "create", "namespace"),
    *_rights("", "configmaps", "get patch", "namespace", (CONTROL_NAME,)),
)
_LEAVING = (
    *_BRAKES,
    *_rights("", "configmaps", "delete", "namespace", (CONTROL_NAME,)),
    *_rights("coordination.k8s.io", "leases", "delete", "namespace", LEASES),
    *_rights("apps", "deployments/scale", "patch", "namespace", DEPLOYMENTS),  # others may live in our namespace
)

PERMISSIONS: Mapping[Profile, tuple[Right, ...]] = {
    "shadow": (*_SEEN, *_LED),
    "act": (*_SEEN, *_LED, *_HANDS),
    "retire": (*_SEEN, *_LED, *_HANDS, *_LEAVING),
    "operator": (*_BRAKES, *_rights("", "nodes", "list")),
}
"""``shadow`` and ``act``: the program itself. ``retire``: the hook that takes it out. ``operator``: who brakes."""


def needed(
    profile: Profile, lease: str = "gpu-rebalancer", deployments: tuple[str, ...] = DEPLOYMENTS
) -> tuple[Right, ...]:
    """The rights of a profile where Leases and Deployments are called otherwise; each once, in the table's order."""
    called = {LEASES: tuple(f"{lease}-{name.rpartition('-')[2]}" for name in LEASES), DEPLOYMENTS: deployments}
    return tuple(
        dict.fromkeys(replace(right, names=called.get(right.names, right.names)) for right in PERMISSIONS[profile])
    )
