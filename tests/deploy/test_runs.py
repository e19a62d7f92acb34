"""The chart on a real control plane with a real broker: watching, acting, leaving, each with the chart's own rights.

One installation goes the way of deploy/README.md: profile shadow, then act, then the pre-delete hook. What it asked of
the API server is in the server's audit log.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.adapters.cluster.permissions import PERMISSIONS, Profile
from tests.cluster.terms import Pool, policy
from tests.deploy.installed import Installation
from tests.servers import fleet
from tests.servers.audit import Call
from tests.servers.controlplane import ControlPlane
from tests.servers.exporters import Exporters
from tests.servers.kafka import KafkaServer
from tests.servers.manifests import Work

pytestmark = pytest.mark.go_binaries("helm")

SETTINGS = ["--config", "/etc/gpu-rebalancer/settings/settings.yaml"]
POOL, NODES = "infer-a100", 3
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
PATIENCE = 120.0  # seconds for what takes some; the machine may be busy with other servers
NODE_TAINT = {"key": "workload", "value": "inference", "effect": "NoSchedule"}


@pytest.fixture
def installation(control_plane: ControlPlane, own_kafka: KafkaServer, tmp_path: Path) -> Iterator[Installation]:
    """A fleet of idle inference nodes with their exporters, topics, and the chart in profile shadow."""
    names = fleet.gpu_nodes(control_plane, POOL, "A100", NODES)
    with Exporters(dict.fromkeys(names, (8, "A100")), dict.fromkeys(names, 0)) as exporters:
        pools = yaml.safe_load(policy([Pool(POOL, "A100", NODES, mode="shadow")]))
        space = fleet.namespace(control_plane, "rebalancer")
        nothing = dict.fromkeys(("infer-l20", "train-a100", "train-h100"))
        made = Installation(control_plane, tmp_path, space, {
            "cluster": "installed",
            "kafka": {"bootstrap": own_kafka.bootstrap},
            "dcgm": {"url": exporters.url, "every": 1},
            "leaderElection": {"leaseDuration": 3, "renewDeadline": 2, "retryPeriod": 0.5},
            "policy": {**pools, "pools": {**pools["pools"], **nothing}},
        })  # fmt: skip
        try:
            made.install()
            made.command(["rebalancer", "topics", "apply", *SETTINGS], PATIENCE)
            yield made
        finally:
            made.close()
            made.uninstall()
            fleet.clean(control_plane)


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_from_shadow_to_act_to_retire(installation: Installation, control_plane: ControlPlane) -> None:
    """Watches with rights to nothing, lends with rights to little, and leaves nothing behind."""
    api, me = control_plane.api, f"{installation.namespace}:gpu-rebalancer"
    before = nodes(control_plane)
    space = fleet.namespace(control_plane, "research")
    part, url = installation.replica("shadow")

    def seen() -> bool:
        pools = json.loads(installation.command(["rebalancer", "pools", "--json", *SETTINGS], PATIENCE))
        return any(pool["pool"] == POOL and pool["owned"] == NODES * 8 for pool in pools)

    api.wait(seen, PATIENCE, "the pool to be told")
    assert part.end(20) == 0
    shadow = control_plane.audit(me)
    assert {call.resource for call in shadow if call.verb in WRITES and call.code < 400} == {"leases"}
    assert beyond(shadow, "shadow") == set()
    assert nodes(control_plane) == before

    act(installation)
    fleet.plain_job(control_plane, space, "train", 2, Work(grace=3))  # the policy allows 6 seconds
    part, url = installation.replica("act")
    api.wait(lambda: len(lent(control_plane)) == 2, PATIENCE, "two nodes to be lent to the job")
    assert url
    assert beyond(control_plane.audit(me)[len(shadow):], "act") == set()  # fmt: skip

    installation.apply_hooks()
    part.kill()  # nobody scales a process down; the hook finds act dead and does its work itself
    said = installation.command(installation.hook_command(), PATIENCE * 2, kind="Job")
    assert "nothing of ours is left" in said
    assert nodes(control_plane) == before
    left = f"/apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases"
    assert api.items(left) == []
    assert not api.exists(f"/api/v1/namespaces/{installation.namespace}/configmaps/gpu-rebalancer-control")
    hook_account = f"{installation.namespace}:gpu-rebalancer-retire"
    assert beyond(control_plane.audit(hook_account), "retire") == set()


def act(installation: Installation) -> None:
    """Step 3 of the README: the profile, the API server's policies, the pool."""
    held = installation._values["policy"]
    pools = {name: pool and {**pool, "mode": "act"} for name, pool in held["pools"].items()}
    installation.install(profile="act", admission={"enabled": True}, policy={**held, "pools": pools})


def nodes(control_plane: ControlPlane) -> dict[str, Any]:
    """What of each node the rebalancer could have touched."""
    return {
        one["metadata"]["name"]: (
            one["metadata"].get("labels"), one["metadata"].get("annotations"), one["spec"].get("taints"),
            one["spec"].get("unschedulable"),
        )
        for one in control_plane.api.items("/api/v1/nodes")
    }  # fmt: skip


def lent(control_plane: ControlPlane) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in control_plane.api.items("/api/v1/nodes")
        if any(taint["key"] == "gpu-rebalancer.io/on-loan" for taint in one["spec"].get("taints", ()))
    ]


def beyond(calls: list[Call], profile: Profile) -> set[tuple[str, str, str, str]]:
    """What was asked outside the profile's list; discovery and questions about ourselves are everybody's."""
    allowed = {(one.verb, one.group, one.resource, one.subresource) for one in PERMISSIONS[profile]}
    asked = {(call.verb, call.group, call.resource, call.subresource) for call in calls if call.resource}
    return {one for one in asked if one not in allowed and one[1] != "authorization.k8s.io"}
