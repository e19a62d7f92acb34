"""Preflight's judgement, table by table: what a cluster's objects are worth saying."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rebalancer.adapters.cluster.findings import Code, Finding, Severity
from rebalancer.adapters.cluster.lookatdescheduler import descheduler
from rebalancer.adapters.cluster.lookatnodes import keepers
from rebalancer.adapters.cluster.preflight import judged
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.core.facts import Taint
from rebalancer.core.units import CLOSING, ON_LOAN
from tests.control.things import FOREIGN, LENT, OWNER, POLICY, lent, node, pod
from tests.core.build import START

STOPS, WARNS = Severity.STOPS, Severity.WARNS
TAINT = Taint("workload", "inference")


def look(
    *raws: dict[str, Any], daemonsets: tuple[dict[str, Any], ...] = (), configmaps: tuple[dict[str, Any], ...] = ()
) -> list[Finding]:
    lists: dict[str, list[Any]] = {"nodes": [], "pods": [], "namespaces": [], "budgets": []}
    names = {"Node": "nodes", "Pod": "pods", "Namespace": "namespaces", "PodDisruptionBudget": "budgets"}
    for raw in raws:
        lists[names[raw["kind"]]].append(raw)
    everything = {**lists, "daemonsets": list(daemonsets), "configmaps": list(configmaps)}
    return judged(everything, POLICY, Reading(dialect(POLICY)), START)


def codes(found: list[Finding]) -> set[tuple[Code, str]]:
    return {(one.code, one.object) for one in found}


def test_a_cluster_in_order_gives_no_finding() -> None:
    assert look(node("n1"), lent("n2"), pod("p0"), pod("p1", "n2")) == []


BARE = {"node-pool": "infer-a100", "gpu-model": "A100", "workload-type": "inference"}
NODES = {
    "labels contradict": (
        node("n1", labels={**BARE, "nodepool": "train-a100"}), Code.NODE_QUARANTINED,
    ),
    "no pool": (node("n1", labels={"gpu-model": "H100"}), Code.NODE_WITHOUT_POOL),
    "owner taint missing": (node("n1", FOREIGN), Code.OWNER_TAINT_MISSING),
    "our closing taint without a loan": (
        node("n1", OWNER, {"key": CLOSING, "effect": "NoSchedule"}), Code.TRACE_LEFT,
    ),
    "our on-loan taint without a mark": (node("n1", LENT), Code.TRACE_LEFT),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "code"), NODES.values(), ids=NODES)
def test_what_is_wrong_with_a_node_is_said(raw: dict[str, Any], code: Code) -> None:
    assert (code, "n1") in codes(look(raw, node("n2")))


def test_a_pool_that_lends_and_has_no_node_is_said() -> None:
    assert codes(look()) == {(Code.POOL_EMPTY, "infer-a100")}


def manager(name: str, operation: str = "Update", field: str = "f:taints") -> dict[str, Any]:
    return {"managedFields": [{"manager": name, "operation": operation, "fieldsV1": {"f:spec": {field: {}}}}]}


KEEPERS = {
    "kubectl tainted it by hand": (manager("kubectl-taint"), set()),
    "the kubelet registered it": (manager("kubelet"), set()),
    "the lifecycle controller": (manager("kube-controller-manager"), set()),
    "ourselves": (manager("gpu-rebalancer"), set()),
    "Argo CD owns the taints": (manager("argocd-controller", "Apply"), {("Argo CD", STOPS)}),
    "Argo CD owns something else": (manager("argocd-controller", "Apply", "f:unschedulable"), set()),
    "Argo CD tracks the node": (
        {"annotations": {"argocd.argoproj.io/tracking-id": "fleet:/Node:/n1"}}, {("Argo CD", WARNS)},
    ),
    "Flux owns the taints": (manager("kustomize-controller", "Apply"), {("Flux", STOPS)}),
    "Flux labels the node": ({"labels": {"kustomize.toolkit.fluxcd.io/name": "fleet"}}, {("Flux", WARNS)}),
    "Karpenter made the node": ({"labels": {"karpenter.sh/nodepool": "gpu"}}, {("Karpenter", WARNS)}),
    "Karpenter owns the taints": (manager("karpenter"), {("Karpenter", STOPS)}),
    "Cluster API made the node": ({"annotations": {"cluster.x-k8s.io/machine": "m"}}, {("Cluster API", WARNS)}),
    "Cluster API puts the owner's taint back": (
        {"annotations": {"cluster.x-k8s.io/taints-from-machine": "workload:NoSchedule"}}, {("Cluster API", STOPS)},
    ),
    "Cluster API keeps another taint": (
        {"annotations": {
            "cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/taints-from-machine": "other:NoSchedule",
        }},
        {("Cluster API", WARNS)},
    ),
    "something unknown applies them": (manager("fleet-tool", "Apply"), {("fleet-tool (server-side apply)", STOPS)}),
    "something unknown wrote them once": (manager("fleet-tool"), set()),
}  # fmt: skip


@pytest.mark.parametrize(("meta", "found"), KEEPERS.values(), ids=KEEPERS)
def test_who_would_put_the_owners_taint_back(meta: dict[str, Any], found: set[tuple[str, Severity]]) -> None:
    assert set(keepers({"metadata": meta}, TAINT)) == found


def test_a_keeper_is_told_once_for_all_its_nodes() -> None:
    kept = manager("argocd-controller", "Apply")
    found = [one for one in look(*(node(f"n{i}", **kept) for i in range(5))) if one.code is Code.TAINTS_KEPT]
    assert [(one.severity, one.object) for one in found] == [(STOPS, "n0, n1, n2 and 2 more")]


def policy_of(*enabled: str, **args: list[str]) -> dict[str, Any]:
    name = "RemovePodsViolatingNodeTaints"
    profile = {
        "name": "default", "pluginConfig": [{"name": name, "args": args}],
        "plugins": {"deschedule": {"enabled": list(enabled)}},
    }  # fmt: skip
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}


TAINTS = "RemovePodsViolatingNodeTaints"
LEGACY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy",
    "strategies": {TAINTS: {"enabled": True, "params": {"excludedTaints": ["a"]}}},
}  # fmt: skip
DESCHEDULERS = {
    "nothing excluded": (policy_of(TAINTS), {STOPS}),
    "ours excluded": (policy_of(TAINTS, excludedTaints=[CLOSING, ON_LOAN]), set()),
    "only closing excluded": (policy_of(TAINTS, excludedTaints=[CLOSING]), {WARNS}),
    "only on-loan excluded": (policy_of(TAINTS, excludedTaints=[ON_LOAN]), {STOPS}),
    "excluded with a value that it never has": (
        policy_of(TAINTS, excludedTaints=[f"{CLOSING}=yes", ON_LOAN]), {STOPS},
    ),
    "only other taints are acted upon": (policy_of(TAINTS, includedTaints=["dedicated"]), set()),
    "the plugin is not enabled": (policy_of("RemoveDuplicates"), set()),
    "an old policy": (LEGACY, {STOPS}),
    "an old policy with the strategy off": (
        {**LEGACY, "strategies": {TAINTS: {"enabled": False}}}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("policy", "severities"), DESCHEDULERS.values(), ids=DESCHEDULERS)
def test_what_a_descheduler_would_do(policy: dict[str, Any], severities: set[Severity]) -> None:
    meta = {"namespace": "kube-system", "name": "descheduler"}
    found = list(descheduler({"metadata": meta, "data": {"policy.yaml": yaml.safe_dump(policy)}}))
    assert {one.severity for one in found} == severities
    assert all(one.object == "kube-system/descheduler:policy.yaml" for one in found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("just: a map", 0, id="no policy"),
        pytest.param("a comment on DeschedulerPolicy", 0, id="a text that names it"),
        pytest.param("kind: DeschedulerPolicy\n  bad: [", 1, id="a policy that cannot be read"),
    ],
)
def test_other_config_maps(text: str, count: int) -> None:
    assert len(list(descheduler({"metadata": {"name": "x"}, "data": {"k": text}}))) == count


def daemonset(*tolerations: dict[str, str]) -> dict[str, Any]:
    spec = {"template": {"spec": {"tolerations": list(tolerations)}}}
    return {"kind": "DaemonSet", "metadata": {"namespace": "gpu", "name": "exporter"}, "spec": spec}


ABOUT_OWNER = {"key": "workload", "operator": "Exists"}
DAEMONSETS = {
    "tolerates nothing": (daemonset(), False),
    "tolerates everything": (daemonset({"operator": "Exists"}), False),
    "tolerates the owner's taint only": (daemonset(ABOUT_OWNER), True),
    "tolerates ours too": (daemonset(ABOUT_OWNER, {"key": ON_LOAN, "operator": "Exists"}), False),
    "tolerates ours for another borrower": (daemonset(ABOUT_OWNER, {"key": ON_LOAN, "value": "batch"}), True),
}


@pytest.mark.parametrize(("raw", "told"), DAEMONSETS.values(), ids=DAEMONSETS)
def test_which_daemonsets_would_stay_off_a_lent_node(raw: dict[str, Any], *, told: bool) -> None:
    found = codes(look(node("n1"), daemonsets=(raw,)))
    assert ((Code.DAEMONSET_STAYS_AWAY, "gpu/exporter") in found) is told


def budget(**spec: Any) -> dict[str, Any]:
    meta = {"namespace": "ml", "name": "train", "uid": "uid-pdb"}
    selector = {"matchLabels": {"workload-type": "training"}}
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
        "spec": {"selector": selector, **spec}, "status": {"disruptionsAllowed": 0, "expectedPods": 1},
    }  # fmt: skip


QUIET = {"apiVersion": "v1", "kind": "Namespace", "metadata": {
    "name": "ml", "uid": "uid-ml", "annotations": {"gpu-rebalancer.io/opt-out": "true"},
}}  # fmt: skip
H100_ONLY = {"matchExpressions": [{"key": "gpu-model", "operator": "In", "values": ["H100"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [H100_ONLY]}}
AWAY: dict[str, Any] = {"affinity": {"nodeAffinity": REQUIRED}}
JOBS = {
    "it is not labelled reclaimable": ([pod("p0", labels={"gpu-rebalancer.io/reclaimable": "no"})], "not labelled"),
    "it does not tolerate our taint": ([pod("p0", tolerations=[])], "does not tolerate"),
    "it says safe-to-evict=false": (
        [pod("p0", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})], "protected",
    ),
    "its grace is too long": ([pod("p0", terminationGracePeriodSeconds=7200)], "7200 s to leave"),
    "its budget keeps all of it": ([pod("p0"), budget(minAvailable=1)], "could not be taken back"),
    "its budget is about a Job": ([pod("p0"), budget(maxUnavailable=1)], "could not be taken back"),
    "its namespace opted out": ([pod("p0"), QUIET], "opted out"),
    "it opted out": ([pod("p0", annotations={"gpu-rebalancer.io/opt-out": "true"})], "opted out"),
    "it runs on another model": ([pod("p0", **AWAY)], "does not declare A100"),
}  # fmt: skip


@pytest.mark.parametrize(("raws", "says"), JOBS.values(), ids=JOBS)
def test_why_a_job_could_never_borrow(raws: list[dict[str, Any]], says: str) -> None:
    found = [one for one in look(node("n1"), *raws) if one.code is Code.NEVER_BORROWS]
    assert [one.object for one in found] == ["ml/job/train"]
    assert says in found[0].sentence


STUCK = {
    "a bare pod": (pod("p0", owners=[]), True),
    "an inference pod that tolerates everything": (
        pod("p0", labels={"workload-type": "inference"}, tolerations=[{"operator": "Exists"}]), True,
    ),
    "one that was never labelled": (pod("p0", labels={"gpu-rebalancer.io/reclaimable": "no"}), True),
    "one that opted in": (pod("p0"), False),
    "one that cannot land there": (pod("p0", owners=[], tolerations=[]), False),
    "a pod of a DaemonSet": (
        pod("p0", owners=[{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "told"), STUCK.values(), ids=STUCK)
def test_which_pods_could_land_on_a_lent_node_and_never_leave(raw: dict[str, Any], *, told: bool) -> None:
    assert ((Code.NEVER_EVICTED, "ml/p0") in codes(look(node("n1"), raw))) is told
