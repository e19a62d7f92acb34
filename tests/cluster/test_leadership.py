"""The leader is stopped in the middle of a plan, past its Lease; the other finishes it, and the first adds nothing."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.granting import granted
from tests.cluster.product import Replica
from tests.cluster.stage import NAMESPACE, Stage, staged
from tests.cluster.standby import BRAIN, LEADS, Standby
from tests.cluster.terms import Pool
from tests.servers import fleet
from tests.servers.audit import Call
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SHORT, DEFAULTS = Pool("infer-a100", "A100"), Pool("infer-a40", "A40")
MEMBERS = 8
SLOWLY = {"evictions_per_second": 1, "eviction_burst": 1}
"""So that a plan lasts for as long as a gang has members."""
TOUCHED = frozenset({"nodes", "pods"})
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/gpu-rebalancer-act"


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("leadership")
    with staged(control_plane, folder, (SHORT, DEFAULTS), start=False, pace=SLOWLY) as running:
        running.product.start("brain", BRAIN)
        yield running


@pytest.mark.parametrize(
    ("pool", "lease"),
    [
        pytest.param(SHORT, {"duration": 5, "renew": 3.5, "retry": 0.5}, id="with Leases of 5 seconds"),
        pytest.param(DEFAULTS, {"duration": 15, "renew": 10, "retry": 2}, id="with the Leases of a new installation"),
    ],
)
def test_a_leader_stopped_in_mid_plan_and_gone_on_later_adds_nothing_to_what_the_other_did(
    stage: Stage, pool: Pool, lease: Mapping[str, Any], tmp_path: Path
) -> None:
    space, standby = fleet.namespace(stage.plane, "flip"), Standby(stage)
    names = [f"{pool.model.lower()}-{number}" for number in (1, 2)]
    standby.begin(names, lease=lease, who={name: identity(stage, name, tmp_path) for name in names})
    fleet.plain_job(stage.plane, space, "train", MEMBERS, stage.work(pool.model, 8 // MEMBERS))
    stage.await_lent(pool.name, 1)
    stage.await_running(space, "train", MEMBERS, pool=pool.name)
    first = standby.acting()
    second, epoch = standby.other(first), transitions(stage)
    stage.serve(space, pool.model, 1)
    stage.await_("two members to be evicted", lambda: len(stage.watching.evicted(space)) >= 2, pool=pool.name)
    first.part.pause()
    stopped = time.monotonic()
    stage.await_("the other to lead", lambda: leads(second), lease["duration"] + 30.0)
    assert time.monotonic() - stopped >= lease["duration"] - lease["renew"] - 0.5
    stage.await_("another member to go by its hand", lambda: evictions(stage, second), pool=pool.name)
    before = touched(stage, first)
    first.part.resume()
    stage.await_("the first to know", lambda: "lease lost" in first.log(), pool=pool.name)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)
    assert touched(stage, first) == before, "the first has written after it went on"
    assert len(stage.watching.evicted(space)) == MEMBERS
    assert [
        life.name for life in stage.watching.lives(space, "train") if life.left is not None and not life.bound
    ] == []
    assert len(accepted(stage, space)) == MEMBERS
    assert stage.hearing.evicted(pool.name) == [f"{space}/job/train"]
    assert (leads(first), leads(second), transitions(stage)) == (False, True, epoch + 1)
    assert [replica.end() for replica in (first, second)] == [0, 0]
    assert stage.plane.api.get(LEASE.format(NAMESPACE))["spec"]["holderIdentity"] == ""


def identity(stage: Stage, name: str, folder: Path) -> Path:
    """A service account of its own, so that the audit log tells the two apart."""
    return stage.proxy.kubeconfig(granted(stage.plane, NAMESPACE, name, "act"), folder / f"{name}.kubeconfig")


def leads(replica: Replica) -> bool:
    return LEADS.search(replica.page("/metrics")) is not None


def transitions(stage: Stage) -> int:
    return int(stage.plane.api.get(LEASE.format(NAMESPACE))["spec"]["leaseTransitions"])


def touched(stage: Stage, replica: Replica) -> list[Call]:
    """What a replica has written on nodes and pods, evictions and tries included."""
    calls = stage.plane.audit(f"{NAMESPACE}:{replica.name}")
    return [one for one in calls if one.verb in WRITES and one.resource in TOUCHED]


def evictions(stage: Stage, replica: Replica) -> list[Call]:
    return [one for one in touched(stage, replica) if one.subresource == "eviction"]


def accepted(stage: Stage, space: str) -> list[Any]:
    """Evictions in earnest that the API server accepted, by whomever."""
    asked = stage.proxy.requests("POST", f"/namespaces/{space}/pods/.*/eviction")
    return [one for one in asked if one.status == 201 and "dryRun" not in (one.body.get("deleteOptions") or {})]
