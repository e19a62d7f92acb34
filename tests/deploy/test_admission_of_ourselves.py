"""What the API server lets the chart's own service account do: RBAC would allow more, admission does not."""

from collections.abc import Iterator
from copy import deepcopy

import pytest

from tests.deploy.asked import EFFECTIVE_WITHIN, RELEASE, Object, pod
from tests.servers import fleet
from tests.servers.adminclient import AdminClient
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = pytest.mark.go_binaries("helm")

NODE = "admitted-01"
TAINTS = [
    {"key": "foreign", "value": "a", "effect": "NoSchedule"},
    {"key": "workload", "value": "inference", "effect": "NoSchedule"},
    {"key": "other", "effect": "PreferNoSchedule"},
]
CLOSING = {"key": "gpu-rebalancer.io/closing", "effect": "NoSchedule"}
LENT = {"key": "gpu-rebalancer.io/on-loan", "value": "training", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def ourselves(governed: ControlPlane, home: str) -> Iterator[AdminClient]:
    """A client with the token of the chart's service account, and a node and a pod to write to."""
    api = governed.api
    fleet.gpu_nodes(governed, "infer-a100", "A100", 1, name_prefix="admitted")
    api.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"theirs": "1"}}, "spec": {"taints": TAINTS}})
    victim = pod(reclaimable="true", tolerations=[], gpus=0)
    victim["metadata"]["name"] = "victim"
    api.post("/api/v1/namespaces/default/pods", victim)
    us = governed.client(governed.identity(home, RELEASE))
    api.wait(lambda: us.get(f"/api/v1/nodes/{NODE}"), EFFECTIVE_WITHIN, "our rights")
    api.wait(lambda: wrong(us, {"metadata": {"annotations": {"theirs": "2"}}}), EFFECTIVE_WITHIN, "our limits")
    yield us
    us.disconnect()
    api.request("DELETE", "/api/v1/namespaces/default/pods/victim", {"gracePeriodSeconds": 0})


def wrong(us: AdminClient, patch: Object, path: str = f"/api/v1/nodes/{NODE}") -> str:
    """Why our own merge patch is refused; "" when it would be taken."""
    status, told = us.request("PATCH", path, patch, "application/merge-patch+json", dryRun="All")
    assert status in {200, 403, 422}, told
    return "" if status == 200 else str(told["message"])


def tainted(*taints: Object) -> Object:
    return {"spec": {"taints": list(taints)}}


LOAN = {"metadata": {"annotations": {"gpu-rebalancer.io/loan": "{}"}}}
OURS = {
    "the closing taint": tainted(*TAINTS, CLOSING),
    "lent: the owner's taint off, ours on, annotated": {**tainted(TAINTS[0], LENT, TAINTS[2]), **LOAN},
    "only foreign taints left": tainted(TAINTS[0], TAINTS[2]),
    "our annotation": LOAN,
}
NOT_OURS = {
    "a foreign taint gone": (tainted(*TAINTS[1:]), "no taints but its own"),
    "a foreign taint changed": (tainted({**TAINTS[0], "value": "b"}, *TAINTS[1:]), "no taints but its own"),
    "foreign taints in another order": (tainted(TAINTS[2], TAINTS[1], TAINTS[0]), "no taints but its own"),
    "a taint of another key": (tainted(*TAINTS, {"key": "x", "effect": "NoSchedule"}), "no taints but its own"),
    "an owner taint that the policy does not name": (
        tainted(TAINTS[0], {"key": "workload", "value": "batch", "effect": "NoSchedule"}, TAINTS[2]),
        "no taints but its own",
    ),
    "our own taint as NoExecute": (tainted(*TAINTS, {**CLOSING, "effect": "NoExecute"}), "NoSchedule"),
    "somebody's annotation": ({"metadata": {"annotations": {"theirs": "2"}}}, "no annotation of nodes"),
    "somebody's annotation gone": ({"metadata": {"annotations": {"theirs": None}}}, "no annotation of nodes"),
    "a person's opt-out": ({"metadata": {"annotations": {"gpu-rebalancer.io/opt-out": "true"}}}, "no annotation"),
    "a label": ({"metadata": {"labels": {"zone": "b"}}}, "no labels"),
    "a finalizer": ({"metadata": {"finalizers": ["example.org/x"]}}, "no labels, finalizers"),
    "cordoning": ({"spec": {"unschedulable": True}}, "nothing of a node's spec but taints"),
}


@pytest.mark.parametrize("patch", OURS.values(), ids=OURS)
def test_we_may_write_to_a_node(ourselves: AdminClient, patch: Object) -> None:
    """What the protocols do."""
    assert wrong(ourselves, patch) == ""


@pytest.mark.parametrize(("patch", "said"), NOT_OURS.values(), ids=NOT_OURS)
def test_we_may_not_write_to_a_node(ourselves: AdminClient, patch: Object, said: str) -> None:
    """RBAC would allow it all; admission does not."""
    assert said in wrong(ourselves, patch)


VICTIM = "/api/v1/namespaces/default/pods/victim"
OUR_PODS = {
    "our notice": ({"metadata": {"annotations": {"gpu-rebalancer.io/evict-at": "2026-01-01T00:00:00Z"}}}, ""),
    "their annotation": (
        {"metadata": {"annotations": {"gpu-rebalancer.io/checkpointed-at": "x"}}},
        "no annotation of pods",
    ),
    "their label": ({"metadata": {"labels": {"gpu-rebalancer.io/reclaimable": "false"}}}, "no labels"),
    "their spec": ({"spec": {"activeDeadlineSeconds": 1}}, "the spec of pods"),
}


@pytest.mark.parametrize(("patch", "said"), OUR_PODS.values(), ids=OUR_PODS)
def test_what_we_may_write_to_a_pod(ourselves: AdminClient, patch: Object, said: str) -> None:
    """The notice and nothing else."""
    found = wrong(ourselves, patch, VICTIM)
    assert (found == "") if said == "" else said in found


def test_we_may_evict_only_the_very_pod_that_was_meant(ourselves: AdminClient) -> None:
    """Without the uid as a precondition an eviction is refused."""
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim", "namespace": "default"}}
    status, told = ourselves.request("POST", f"{VICTIM}/eviction", {**asked, "deleteOptions": {"dryRun": ["All"]}})
    assert status in {403, 422}, told
    assert "only with the pod's uid" in told["message"]
    uid = ourselves.get(VICTIM)["metadata"]["uid"]
    meant = {**asked, "deleteOptions": {"dryRun": ["All"], "preconditions": {"uid": uid}}}
    assert ourselves.request("POST", f"{VICTIM}/eviction", meant)[0] == 201


def test_we_may_make_no_lease_but_our_own(ourselves: AdminClient, home: str) -> None:
    """RBAC cannot name what is not there yet; admission can."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases"
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "gpu-rebalancer-act"},
    }
    other = deepcopy(lease)
    other["metadata"]["name"] = "kube-scheduler"
    assert ourselves.request("POST", path, lease, dryRun="All")[0] == 201
    status, told = ourselves.request("POST", path, other, dryRun="All")
    assert status in {403, 422}
    assert "no Lease but its own" in told["message"]


SCALINGS = {
    "our own to nothing": (RELEASE, 0, True, ""),
    "our own to more": (RELEASE, 3, True, "only to 0"),
    "another one to nothing": ("theirs", 0, True, "nothing but its own"),
    "another one, as somebody else": ("theirs", 0, False, ""),
}


@pytest.fixture(scope="module")
def retiring(governed: ControlPlane, home: str, ourselves: AdminClient) -> Iterator[AdminClient]:
    """Ourselves with a right that only retiring has, on every Deployment of the namespace; and two of these."""
    del ourselves  # made so that its rights are there
    rules = [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}]
    role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "scaling", "namespace": home}}
    account = {"kind": "ServiceAccount", "name": RELEASE, "namespace": home}
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "scaling"}
    governed.api.apply(
        [
            {**role, "kind": "Role", "rules": rules},
            {**role, "kind": "RoleBinding", "roleRef": bound, "subjects": [account]},
        ],
        namespace=home,
    )
    for name in (RELEASE, "theirs"):
        fleet.inference(governed, home, name, 1, Work(gpus=0, lendable=False))
    us = governed.client(governed.identity(home, RELEASE))
    governed.api.wait(lambda: scaled(us, home, RELEASE, 0) == "", EFFECTIVE_WITHIN, "the right to scale")
    yield us
    us.disconnect()


def scaled(client: AdminClient, home: str, name: str, replicas: int) -> str:
    path = f"/apis/apps/v1/namespaces/{home}/deployments/{name}/scale"
    return wrong(client, {"spec": {"replicas": replicas}}, path)


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS)
def test_which_deployments_we_may_scale(
    governed: ControlPlane, retiring: AdminClient, home: str, scaling: tuple[str, int, bool, str]
) -> None:
    """A right on a subresource is not met by a wildcard over resources: it has a rule of its own."""
    name, replicas, ours, said = scaling
    found = scaled(retiring if ours else governed.api, home, name, replicas)
    assert (found == "") if said == "" else said in found


def test_nobody_else_is_held_to_our_limits(governed: ControlPlane, ourselves: AdminClient) -> None:
    """An admin labels, cordons and taints as before."""
    patch = {"metadata": {"labels": {"zone": "b"}}, "spec": {"unschedulable": True, "taints": []}}
    assert wrong(governed.api, patch) == ""
