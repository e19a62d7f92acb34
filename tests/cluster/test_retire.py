"""Retirement on a real API server, with the rights of its own profile: nothing lost, nothing left."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from rebalancer.cli.app import app
from rebalancer.core.units import CLOSING
from tests.cluster.granting import granted
from tests.cluster.lentnodes import AT_HOME, FIRST, LAST, OWNER, lend, ours, taints
from tests.cluster.terms import Pool, policy
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

POOL = "infer-a100"
RUNNING = 60.0
"""Seconds that a retirement may take here; some on idle cores."""


@pytest.fixture
def space(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for our objects."""
    yield fleet.namespace(control_plane, "rebalancer")
    fleet.clean(control_plane)


@pytest.fixture
def settings(control_plane: ControlPlane, space: str, tmp_path: Path) -> Path:
    """Settings of whoever retires, with no more rights than that needs."""
    (tmp_path / "policy.yaml").write_text(policy([Pool(POOL, "A100")]))
    held = {
        "kubernetes": {"kubeconfig": str(granted(control_plane, space, "retire", "retire")), "namespace": space},
        "policy": str(tmp_path / "policy.yaml"), "lease": {"duration": 6.0, "renew": 4.0, "retry": 0.5},
    }  # fmt: skip
    at = tmp_path / "settings.yaml"
    at.write_text(yaml.safe_dump(held))
    return at


def retire(settings: Path, *options: str, timeout: float = RUNNING) -> Result:
    words = ["retire", "--yes", "--json", "--by", "grace", "--timeout", str(timeout), *options]
    return CliRunner().invoke(app, [*words, "--config", str(settings)])


def left_in(control_plane: ControlPlane, space: str) -> list[str]:
    """Names of our own objects that are still there."""
    maps = control_plane.api.items(f"/api/v1/namespaces/{space}/configmaps")
    leases = control_plane.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases")
    names = [one["metadata"]["name"] for one in (*maps, *leases)]
    return [name for name in names if name.startswith("gpu-rebalancer")]


def refusals(control_plane: ControlPlane, space: str) -> list[str]:
    return [
        f"{call.verb} {call.resource}/{call.subresource}"
        for call in control_plane.audit(f"{space}:retire")
        if call.code == 403
    ]


def test_alone_it_brings_whole_gangs_off_lent_nodes_and_leaves_every_node_as_it_was(
    control_plane: ControlPlane, space: str, settings: Path
) -> None:
    names = fleet.gpu_nodes(control_plane, POOL, "A100", 3)
    for name in names[:2]:
        lend(control_plane, name)
    control_plane.api.patch(f"/api/v1/nodes/{names[2]}", {"spec": {"taints": AT_HOME}})
    team = fleet.namespace(control_plane)
    fleet.plain_job(control_plane, team, "train", 2, Work(grace=1))
    fleet.await_pods(control_plane, team, "train", 2)
    fleet.pdb(control_plane, team, "train", minimum=0)
    told = retire(settings, "--alone")
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["result"] == "retired"
    assert [taints(control_plane, name) for name in names] == [AT_HOME] * 3
    kept = control_plane.api.get(f"/api/v1/nodes/{names[0]}")["metadata"]["annotations"]
    assert kept["example.com/keep"] == "this"
    assert (ours(control_plane), left_in(control_plane, space)) == ([], [])
    on_nodes = [pod for pod in fleet.pods(control_plane, team) if pod["spec"].get("nodeName") in names]
    assert [pod for pod in on_nodes if "deletionTimestamp" not in pod["metadata"]] == []
    assert refusals(control_plane, space) == []
    again = retire(settings)
    assert (again.exit_code, json.loads(again.stdout)["result"]) == (0, "nothing-there")


def test_without_an_actor_nothing_is_evicted_and_the_next_step_is_said(
    control_plane: ControlPlane, space: str, settings: Path
) -> None:
    (name,) = fleet.gpu_nodes(control_plane, POOL, "A100", 1)
    lend(control_plane, name)
    before = taints(control_plane, name)
    told = retire(settings, timeout=10.0)
    assert (told.exit_code, json.loads(told.stdout)["result"]) == (3, "no-actor")
    assert taints(control_plane, name) == before
    assert left_in(control_plane, space) == ["gpu-rebalancer-control"]


def test_a_gang_that_a_budget_keeps_is_not_broken_and_the_time_is_kept(
    control_plane: ControlPlane, space: str, settings: Path
) -> None:
    names = fleet.gpu_nodes(control_plane, POOL, "A100", 2)
    for name in names:
        lend(control_plane, name)
    team = fleet.namespace(control_plane)
    fleet.plain_job(control_plane, team, "train", 2, Work(grace=1))
    fleet.await_pods(control_plane, team, "train", 2)
    fleet.pdb(control_plane, team, "train", minimum=2)
    told = retire(settings, "--alone", timeout=8.0)
    assert (told.exit_code, json.loads(told.stdout)["result"]) == (3, "still-out")
    assert len(fleet.await_pods(control_plane, team, "train", 2)) == 2
    assert left_in(control_plane, space) == ["gpu-rebalancer-control", "gpu-rebalancer-act"]


@pytest.mark.parametrize("by", ["namespace", "job"])
def test_alone_it_leaves_who_opted_out_where_the_policy_spares_them(
    control_plane: ControlPlane, space: str, settings: Path, by: str
) -> None:
    """The pod itself says nothing: only its namespace, or the object that was submitted."""
    rules = settings.with_name("policy.yaml")
    held = yaml.safe_load(rules.read_text())
    rules.write_text(yaml.safe_dump({**held, "pace": {**held["pace"], "recall_while_paused": False}}))
    names = fleet.gpu_nodes(control_plane, POOL, "A100", 1)
    lend(control_plane, names[0])
    team = fleet.namespace(control_plane)
    job = control_plane.api.path_of(fleet.plain_job(control_plane, team, "train", 1, Work(grace=1)), team)
    fleet.await_pods(control_plane, team, "train", 1)
    quiet = {"metadata": {"annotations": {"gpu-rebalancer.io/opt-out": "true"}}}
    control_plane.api.patch(job if by == "job" else f"/api/v1/namespaces/{team}", quiet)
    told = retire(settings, "--alone", timeout=8.0)
    assert (told.exit_code, json.loads(told.stdout)["result"]) == (3, "still-out")
    assert f"{names[0]} stays out: {team}/" in told.stderr
    assert len(fleet.await_pods(control_plane, team, "train", 1)) == 1
    assert refusals(control_plane, space) == []


def test_what_a_crash_or_a_hand_left_behind_goes_too(control_plane: ControlPlane, space: str, settings: Path) -> None:
    closed, copied, spoilt = fleet.gpu_nodes(control_plane, POOL, "A100", 3)
    closing = [FIRST, OWNER, {"key": CLOSING, "effect": "NoSchedule"}, LAST]
    control_plane.api.patch(f"/api/v1/nodes/{closed}", {"spec": {"taints": closing}})
    lend(control_plane, copied, nodeUid="of-another-node")
    lend(control_plane, spoilt, due="never")
    team = fleet.namespace(control_plane)
    pod = fleet.bound_pod(control_plane, team, "noticed", closed)
    marks = {"gpu-rebalancer.io/evict-at": "2026-01-01T00:00:00Z"}
    control_plane.api.patch(fleet.pod_path(pod), {"metadata": {"annotations": marks}})
    job = fleet.plain_job(control_plane, team, "train", 1, Work(lendable=False))  # it waits: nobody uses these nodes
    owner = f"/apis/batch/v1/namespaces/{team}/jobs/{job['metadata']['name']}"
    control_plane.api.patch(owner, {"metadata": {"annotations": {"gpu-rebalancer.io/last-recall": "earlier"}}})
    told = retire(settings)
    assert told.exit_code == 0, told.stderr
    assert taints(control_plane, closed) == AT_HOME
    assert [sorted(map(str, taints(control_plane, name))) for name in (copied, spoilt)] == [
        sorted(map(str, AT_HOME))
    ] * 2
    assert (ours(control_plane), left_in(control_plane, space)) == ([], [])
    assert "gpu-rebalancer.io/last-recall" not in control_plane.api.get(owner)["metadata"].get("annotations", {})
    assert refusals(control_plane, space) == []


def test_a_deployment_that_is_named_is_stopped_before_the_control_object_goes(
    control_plane: ControlPlane, space: str, settings: Path
) -> None:
    fleet.gpu_nodes(control_plane, POOL, "A100", 1)
    fleet.inference(control_plane, space, "gpu-rebalancer", 1, Work(gpus=0, lendable=False))
    control_plane.api.post(
        f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": "gpu-rebalancer-control"}, "data": {}}
    )
    told = retire(settings, "--stop", "gpu-rebalancer")
    assert told.exit_code == 0, told.stderr
    held = control_plane.api.get(f"/apis/apps/v1/namespaces/{space}/deployments/gpu-rebalancer")
    assert (held["spec"]["replicas"], left_in(control_plane, space)) == (0, [])
    assert refusals(control_plane, space) == []


def test_a_deployment_that_is_not_ours_cannot_be_stopped(
    control_plane: ControlPlane, space: str, settings: Path
) -> None:
    fleet.gpu_nodes(control_plane, POOL, "A100", 1)
    fleet.inference(control_plane, space, "theirs", 1, Work(gpus=0, lendable=False))
    control_plane.api.post(
        f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": "gpu-rebalancer-control"}, "data": {}}
    )
    told = retire(settings, "--stop", "theirs")
    assert told.exit_code != 0
    held = control_plane.api.get(f"/apis/apps/v1/namespaces/{space}/deployments/theirs")
    assert (held["spec"]["replicas"], left_in(control_plane, space)) == (1, ["gpu-rebalancer-control"])
