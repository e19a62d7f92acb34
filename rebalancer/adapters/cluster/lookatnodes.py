"""Preflight's judgement of nodes and of what else cares for them: labels, taints that others keep, DaemonSets. Pure.

Only nodes of pools that lend are asked about taints; one finding covers all nodes with the same trouble.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rebalancer.adapters.cluster.findings import Code, Finding, Severity, some
from rebalancer.adapters.decode.objects import annotations_of, items, labels_of, mapping, metadata, text
from rebalancer.adapters.decode.placement import tolerations
from rebalancer.core.facts import Node, Taint
from rebalancer.core.fit import tolerates
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.units import ON_LOAN

Raw = Mapping[str, Any]
KEEPERS = (
    ("Argo CD", ("argocd", "argo-cd"), ("argocd.argoproj.io/tracking-id",)),
    (
        "Flux", ("kustomize-controller", "helm-controller"),
        ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"),
    ),
    ("Karpenter", ("karpenter",), ("karpenter.sh/nodepool",)),
    ("Cluster API", ("capi-", "cluster-api", "manager-capi"), ("cluster.x-k8s.io/machine",)),
)  # fmt: skip
"""Who keeps nodes as declared elsewhere: how they call themselves in managedFields, and what they leave on nodes."""
CAPI_TAINTS = "cluster.x-k8s.io/taints-from-machine"
"""Cluster API lists here the taints that it puts back (Machine ``spec.taints``, from v1.12)."""
OTHERS = ("kubelet", "kube-controller-manager", "node-controller", "kubectl", "gpu-rebalancer", "k3s", "kubeadm")
"""Who may well have written the taints once and does not put them back."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as a fact, with the raw object that it was."""

    node: Node
    raw: Raw


def labels(seen: Sequence[Seen], policy: Policy) -> Iterator[Finding]:
    """Nodes that cannot be lent for what they say of themselves, and pools without nodes."""
    quarantined: dict[str, list[str]] = {}
    for one in seen:
        if one.node.quarantine:
            quarantined.setdefault(one.node.quarantine, []).append(one.node.name)
    for why, names in sorted(quarantined.items()):
        said = f"labels contradict each other and the nodes are left alone: {why}"
        yield Finding(Code.NODE_QUARANTINED, Severity.WARNS, some(names), said, "mend the labels")
    homeless = [one.node.name for one in seen if not one.node.pool and not one.node.quarantine and one.node.capacity]
    if homeless:
        said = "GPU nodes belong to no pool, so that they are neither lent nor counted"
        yield Finding(Code.NODE_WITHOUT_POOL, Severity.WARNS, some(homeless), said, "label them node-pool=POOL")
    for name, pool in policy.pools.items():
        if pool.lends_to and not any(one.node.pool == name for one in seen):
            said = f"no node is of pool {name}, which the policy lets lend"
            yield Finding(Code.POOL_EMPTY, Severity.WARNS, name, said, "compare the policy's pools with the labels")


def taints(seen: Sequence[Seen], policy: Policy) -> Iterator[Finding]:
    """Owner taints that are missing or kept by others, and what is left of ours."""
    strays = [one.node.name for one in seen if one.node.stray]
    if strays:
        said = "something of ours is on nodes without a loan of their own"
        step = "leave it to act, which repairs it after quarantine_ttl, or run `rebalancer retire`"
        yield Finding(Code.TRACE_LEFT, Severity.WARNS, some(strays), said, step)
    kept: dict[tuple[str, Severity], list[str]] = {}
    for name, pool in policy.pools.items():
        if not pool.lends_to:
            continue
        mine = [one for one in seen if one.node.pool == name]
        yield from _missing(mine, pool)
        for one in mine:
            for keeper, severity in keepers(one.raw, pool.owner_taint):
                kept.setdefault((keeper, severity), []).append(one.node.name)
    for (keeper, severity), names in sorted(kept.items()):
        yield _kept(keeper, severity, names)


def _missing(mine: Sequence[Seen], pool: PoolPolicy) -> Iterator[Finding]:
    taint = pool.owner_taint
    without = [one.node.name for one in mine if taint is not None and not _bears(one.node, taint)]
    if taint is not None and without:
        said = f"nodes of {pool.name} do not bear {taint.key}={taint.value}:{taint.effect} and are never lent"
        step = "taint them, or mend owner_taint in the policy"
        yield Finding(Code.OWNER_TAINT_MISSING, Severity.WARNS, some(without), said, step)


def _bears(node: Node, taint: Taint) -> bool:
    return taint in node.taints or node.mark is not None


def keepers(raw: Raw, owner: Taint | None) -> Iterator[tuple[str, Severity]]:
    """Who keeps this node as declared elsewhere; it stops us where the taint we take off would be put back."""
    owning = list(_owners_of_taints(raw, owner))
    marks = {**labels_of(raw), **annotations_of(raw)}
    for name, managers, left in KEEPERS:
        if any(manager.startswith(managers) for manager, _ in owning) or (
            name == "Cluster API" and _capi(marks, owner)
        ):
            yield name, Severity.STOPS
        elif any(key in marks for key in left):
            yield name, Severity.WARNS
    known = tuple(prefix for _, managers, _ in KEEPERS for prefix in managers)
    for manager, applied in owning:
        if applied and not manager.startswith((*known, *OTHERS)):
            yield f"{manager} (server-side apply)", Severity.STOPS


def _owners_of_taints(raw: Raw, owner: Taint | None) -> Iterator[tuple[str, bool]]:
    """Managers of ``spec.taints`` and whether they apply it, which means to keep it."""
    if owner is None:
        return
    for entry in items(metadata(raw).get("managedFields")):
        if "f:taints" in mapping(mapping(entry.get("fieldsV1")).get("f:spec")):
            yield text(entry.get("manager")).lower(), entry.get("operation") == "Apply"


def _capi(marks: Mapping[str, str], owner: Taint | None) -> bool:
    return owner is not None and owner.key in marks.get(CAPI_TAINTS, "")


def _kept(keeper: str, severity: Severity, names: list[str]) -> Finding:
    if severity is Severity.STOPS:
        said = f"{keeper} owns the nodes' taints and would put the owner's taint back while a node is lent"
        return Finding(Code.TAINTS_KEPT, severity, some(names), said, f"take spec.taints out of what {keeper} keeps")
    said = f"{keeper} looks after the nodes; it must not put the owner's taint back while a node is lent"
    step = "see that its declaration sets taints at most when a node is made (startupTaints do no harm)"
    return Finding(Code.TAINTS_KEPT, severity, some(names), said, step)


def daemonsets(found: Iterable[Raw], policy: Policy) -> Iterator[Finding]:
    """DaemonSets whose pods run on a pool's nodes for tolerating its taint, and could not start on a lent one."""
    for raw in found:
        spec = mapping(mapping(mapping(raw.get("spec")).get("template")).get("spec"))
        held, meta = tolerations(spec), metadata(raw)
        away = [name for name, pool in policy.pools.items() if pool.lends_to and _stays_away(held, pool)]
        if away:
            said = f"its pods tolerate the taint of {some(away)}, not ours: after a restart they stay off a lent node"
            step = f"let it tolerate {ON_LOAN} with operator Exists"
            name = f"{text(meta.get('namespace'))}/{text(meta.get('name'))}"
            yield Finding(Code.DAEMONSET_STAYS_AWAY, Severity.WARNS, name, said, step)


def _stays_away(held: Sequence[Any], pool: PoolPolicy) -> bool:
    if pool.owner_taint is None or not tolerates(held, pool.owner_taint):
        return False
    return not all(tolerates(held, Taint(ON_LOAN, borrower.value)) for borrower in pool.lends_to)
