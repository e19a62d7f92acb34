"""Least privilege: with the chart's own rights as its identity, first of profile shadow, then of act, and none besides.

What it did is in the API server's audit log, what it might do in the server's own answer, what it may not is tried.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from rebalancer.adapters.cluster.permissions import PERMISSIONS, Right
from rebalancer.adapters.decode.control import CONTROL_NAME
from rebalancer.core.units import Mode
from tests.cluster.granting import in_force
from tests.cluster.stage import IDLE_WITHIN, NAMESPACE, Stage, staged
from tests.cluster.terms import Pool, policy
from tests.deploy.manifests import DEPLOY
from tests.servers import fleet
from tests.servers.audit import Call
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

POOL = Pool("infer-a100", "A100")
WATCHED, ACTED = POOL._replace(mode="shadow"), POOL
ME = f"{NAMESPACE}:gpu-rebalancer"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = (
    f"{RBAC}/clusterrolebindings/gpu-rebalancer-gpu-rebalancer",
    f"{RBAC}/namespaces/{NAMESPACE}/rolebindings/gpu-rebalancer-gpu-rebalancer",
    f"{RBAC}/namespaces/{NAMESPACE}/rolebindings/gpu-rebalancer",
    f"{RBAC}/clusterroles/gpu-rebalancer-gpu-rebalancer",
    f"{RBAC}/namespaces/{NAMESPACE}/roles/gpu-rebalancer-gpu-rebalancer",
    f"{RBAC}/namespaces/{NAMESPACE}/roles/gpu-rebalancer",
)
"""Also what other stories grant to an account of the same name."""
READS = frozenset({"get", "list", "watch"})
EVERYBODYS = frozenset({"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"})
"""API groups in which Kubernetes grants to every service account: asking about itself, and reading trust bundles."""
Verb: TypeAlias = tuple[str, str, str, str]
"""Verb, API group, resource, subresource."""


@dataclass
class Seen:
    """What there was to see."""

    stage: Stage
    shadow: list[Call] = field(default_factory=list)
    act: list[Call] = field(default_factory=list)
    who: Path = Path()


@pytest.fixture(scope="module")
def seen(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("privileges")
    plane = control_plane
    plane.api.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    withdraw(plane)
    who = plane.identity(NAMESPACE, "gpu-rebalancer")
    limits: list[Any] = []
    try:
        with staged(plane, folder, [WATCHED], kubeconfig=who, start=False) as stage:
            found = Seen(stage, who=who)
            found.shadow = watched(stage, who)
            limits = plane.api.apply((DEPLOY / "admission/own-limits.yaml").read_text())
            found.act = acted(stage, who)
            yield found
    finally:
        withdraw(plane)
        for one in limits:
            plane.api.request("DELETE", plane.api.path_of(one))


def withdraw(plane: ControlPlane) -> None:
    """No rights for this account."""
    for path in BINDINGS:
        plane.api.request("DELETE", path)


def grant(plane: ControlPlane, profile: str, who: Path) -> int:
    """The rights of a profile as the plain manifests have them; how many calls there were before."""
    rights = (DEPLOY / f"kustomize/overlays/{profile}/rbac.yaml").read_text()
    plane.api.apply([one for one in yaml.safe_load_all(rights) if one], namespace=NAMESPACE)
    in_force(plane, who)
    return len(plane.audit(ME))


def watched(stage: Stage, who: Path) -> list[Call]:
    """A whole cycle in shadow: a loan that is only decided on, and its end when a person calls everything home."""
    before, space = grant(stage.plane, "shadow", who), fleet.namespace(stage.plane, "shadow")
    fleet.plain_job(stage.plane, space, "train", 2, stage.work(POOL.model, 4))
    stage.product.start()
    stage.await_("a loan in shadow", lambda: stage.open_loans(POOL.name), IDLE_WITHIN, POOL.name)
    assert {plan.mode for plan in stage.hearing.plans(POOL.name)} == {Mode.SHADOW}
    brakes = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    called = {"metadata": {"name": CONTROL_NAME}, "data": {"recall-all": "true"}}
    stage.plane.api.post(brakes, called)
    stage.await_("its end", lambda: not stage.open_loans(POOL.name), pool=POOL.name)
    assert stage.one().end() == 0
    assert all(not state.ours for state in stage.watching.states(stage.nodes[POOL.name][0]))
    stage.plane.api.delete(f"{brakes}/{CONTROL_NAME}")
    stage.plane.api.delete(f"/apis/batch/v1/namespaces/{space}/jobs/train", propagationPolicy="Background")
    stage.await_("the gang to be gone", lambda: not fleet.pods(stage.plane, space))
    return stage.plane.audit(ME)[before:]


def acted(stage: Stage, who: Path) -> list[Call]:
    """A whole cycle in earnest: lent, noticed, taken back."""
    before, space = grant(stage.plane, "act", who), fleet.namespace(stage.plane, "act")
    stage.product.adopt(policy([ACTED]))
    work = stage.work(POOL.model, 4, annotations={"gpu-rebalancer.io/notice-seconds": "1"})
    fleet.plain_job(stage.plane, space, "train", 2, work)
    stage.product.start()
    stage.await_lent(POOL.name, 1)
    stage.await_running(space, "train", 2, pool=POOL.name)
    stage.serve(space, POOL.model, 1)
    stage.await_running(space, "chat", 1, pool=POOL.name)
    stage.await_home(POOL.name)
    told = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
    stage.await_("its Events", lambda: [one for one in stage.plane.api.items(told) if "ebalancer" in str(one)])
    assert stage.one().end() == 0
    return stage.plane.audit(ME)[before:]


def used(calls: Iterable[Call]) -> set[Verb]:
    """What was asked, as rights name it; discovery and questions about oneself are everybody's."""
    asked = {(call.verb, call.group, call.resource, call.subresource) for call in calls if call.resource}
    return {one for one in asked if one[1] not in EVERYBODYS}


def named(rights: Iterable[Right]) -> set[Verb]:
    return {(one.verb, one.group, one.resource, one.subresource) for one in rights}


def test_in_shadow_it_writes_nothing_but_its_leases(seen: Seen) -> None:
    writes = [call for call in seen.shadow if call.verb not in READS and call.group not in EVERYBODYS]
    assert {(call.resource, call.namespace) for call in writes} == {("leases", NAMESPACE)}
    assert {call.verb for call in writes} <= {"create", "update"}


@pytest.mark.parametrize("profile", ["shadow", "act"])
def test_it_asks_for_nothing_that_its_profile_does_not_list_and_is_refused_nothing(seen: Seen, profile: str) -> None:
    calls: list[Call] = getattr(seen, profile)
    assert used(calls) - named(PERMISSIONS["shadow" if profile == "shadow" else "act"]) == set()
    assert [call for call in calls if call.code == 403] == []


def test_every_right_to_write_that_the_cluster_has_objects_for_is_used(seen: Seen) -> None:
    needed = {one for one in PERMISSIONS["act"] if not one.optional and one.verb not in READS}
    assert named(needed) - used([*seen.shadow, *seen.act]) == set()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its own namespace", "in any other"])
def test_the_server_knows_of_no_further_right(seen: Seen, elsewhere: bool) -> None:
    """Its answer to what the account might do there, but for what everybody may ask about himself."""
    client = seen.stage.plane.client(seen.who)
    asked = {"spec": {"namespace": "default" if elsewhere else NAMESPACE}}
    told = client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", asked)["status"]
    client.disconnect()
    may = {
        (verb, group, *(resource.split("/") if "/" in resource else (resource, "")))
        for rule in told["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if group not in EVERYBODYS
    }
    listed = [one for one in PERMISSIONS["act"] if one.scope == "cluster" or not elsewhere]
    assert may == named(listed)


POD = "/api/v1/namespaces/{space}/pods"
FORBIDDEN = {
    "deleting a pod": ("DELETE", POD + "/some"),
    "deleting pods": ("DELETE", POD),
    "making a pod": ("POST", POD),
    "replacing a pod": ("PUT", POD + "/some"),
    "binding a pod": ("POST", POD + "/some/binding"),
    "a command in a pod": ("POST", POD + "/some/exec"),
    "deleting a node": ("DELETE", "/api/v1/nodes/{node}"),
    "replacing a node": ("PUT", "/api/v1/nodes/{node}"),
    "a node's status": ("PATCH", "/api/v1/nodes/{node}/status"),
    "reading secrets": ("GET", "/api/v1/secrets"),
    "a budget": ("PATCH", "/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/guard"),
    "suspending a deployment": ("PATCH", "/apis/apps/v1/namespaces/{space}/deployments/chat"),
    "deleting a job": ("DELETE", "/apis/batch/v1/namespaces/{space}/jobs/train"),
    "another's Lease": ("PUT", "/apis/coordination.k8s.io/v1/namespaces/{space}/leases/gpu-rebalancer-act"),
    "another Lease": ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/other"),
    "its own brakes": ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-rebalancer-control"),
    "its own rights": ("PATCH", f"{RBAC}/clusterroles/gpu-rebalancer-gpu-rebalancer"),
}


@pytest.mark.parametrize(("method", "path"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_is_refused(seen: Seen, method: str, path: str) -> None:
    client = seen.stage.plane.client(seen.who)
    spelled = path.replace("{space}", "default").replace("{node}", seen.stage.nodes[POOL.name][0])
    kind = {"PATCH": "application/merge-patch+json"}.get(method, "application/json")
    status, _ = client.request(method, spelled, {} if method in {"POST", "PUT", "PATCH"} else None, kind)
    client.disconnect()
    assert status == 403
