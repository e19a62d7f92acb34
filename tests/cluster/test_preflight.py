"""Preflight on a real API server: rights are those of whoever asks, and what is found is what really stands there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.adapters.cluster.permissions import Profile
from rebalancer.cli.app import app
from tests.cluster.granting import granted
from tests.cluster.terms import Pool, policy
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

POOL = "infer-a100"
PROFILES: tuple[Profile, ...] = ("shadow", "act", "retire")
SNIPPET = {"excludedTaints": ["gpu-rebalancer.io/closing", "gpu-rebalancer.io/on-loan"]}


@pytest.fixture
def space(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for our objects, and a fleet in order."""
    fleet.gpu_nodes(control_plane, POOL, "A100", 2)
    yield fleet.namespace(control_plane, "rebalancer")
    fleet.clean(control_plane)


def look(kubeconfig: Path, space: str, folder: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    (folder / "policy.yaml").write_text(policy([Pool(POOL, "A100")]))
    held = {
        "kubernetes": {"kubeconfig": str(kubeconfig), "namespace": space},
        "policy": str(folder / "policy.yaml"),
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(held))
    told = CliRunner().invoke(app, ["preflight", "--json", *options, "--config", str(folder / "settings.yaml")])
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return told.exit_code, json.loads(told.stdout)["findings"]


def found(findings: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["code"], one["object"]) for one in findings}


@pytest.mark.parametrize("profile", PROFILES)
def test_whoever_has_a_profiles_rights_misses_none_of_them(
    control_plane: ControlPlane, space: str, tmp_path: Path, profile: Profile
) -> None:
    kubeconfig = granted(control_plane, space, profile, profile)
    _, findings = look(kubeconfig, space, tmp_path, "--profile", profile)
    assert [one for one in findings if one["code"] == "permission-missing"] == []


def test_the_rights_of_shadow_do_not_suffice_to_act(control_plane: ControlPlane, space: str, tmp_path: Path) -> None:
    code, findings = look(granted(control_plane, space, "only-shadow", "shadow"), space, tmp_path)
    missing = {one["object"] for one in findings if one["code"] == "permission-missing"}
    assert code == 3
    assert missing >= {"patch nodes", "patch pods", "create pods/eviction"}
    assert ("not-seen", "daemonsets") in found(findings)


def test_whoever_may_nothing_learns_that_nothing_was_seen(
    control_plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    code, findings = look(control_plane.kubeconfig("outsider"), space, tmp_path)
    assert code == 3
    assert found(findings) >= {("not-seen", "nodes"), ("not-seen", "pods"), ("permission-missing", "list nodes")}


def test_a_fleet_in_order_is_safe(control_plane: ControlPlane, space: str, tmp_path: Path) -> None:
    team = fleet.namespace(control_plane)
    fleet.plain_job(control_plane, team, "train", 2, Work(grace=1))
    code, findings = look(control_plane.kubeconfig(), space, tmp_path)
    assert (code, [one for one in findings if team in one["object"]]) == (0, [])


def test_what_would_go_wrong_is_told_before_anything_acts(
    control_plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    team = fleet.namespace(control_plane)
    fleet.plain_job(control_plane, team, "kept", 2, Work(grace=1))
    fleet.plain_job(control_plane, team, "shy", 1, Work(grace=1, lendable=False))
    budget = manifests.budget("kept", "kept", None, 1)  # never counted: a Job has no scale subresource
    control_plane.api.post(f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets", budget)
    fleet.await_pods(control_plane, team, "shy", 1, phase="Pending")
    policy_ = {"kind": "DeschedulerPolicy", "profiles": [{"plugins": {"deschedule": {"enabled": [
        "RemovePodsViolatingNodeTaints"
    ]}}}]}  # fmt: skip
    config = {"metadata": {"name": "descheduler"}, "data": {"policy.yaml": yaml.safe_dump(policy_)}}
    control_plane.api.post(f"/api/v1/namespaces/{team}/configmaps", config)
    exporter = {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "exporter"},
        "spec": {
            "selector": {"matchLabels": {"app": "exporter"}},
            "template": {
                "metadata": {"labels": {"app": "exporter"}},
                "spec": {
                    "tolerations": [{"key": "workload", "operator": "Exists"}],
                    "containers": [{"name": "main", "image": "registry.example/exporter:1"}],
                },
            },
        },
    }  # fmt: skip
    control_plane.api.apply([exporter], namespace=team)
    nodes = [one["metadata"]["name"] for one in control_plane.api.items("/api/v1/nodes")]
    declared = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": nodes[0]}, "spec": {"taints": [
        {"key": "workload", "value": "inference", "effect": "NoSchedule"}
    ]}}  # fmt: skip
    control_plane.api.apply([declared], manager="argocd-controller")
    code, findings = look(control_plane.kubeconfig(), space, tmp_path)
    assert code == 3
    assert found(findings) >= {
        ("never-borrows", f"{team}/job/kept"), ("never-borrows", f"{team}/job/shy"),
        ("descheduler-evicts", f"{team}/descheduler:policy.yaml"), ("daemonset-stays-away", f"{team}/exporter"),
        ("taints-kept", nodes[0]),
    }  # fmt: skip
