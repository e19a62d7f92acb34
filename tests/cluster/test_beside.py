"""The stock descheduler at work beside the rebalancer: chart defaults, our snippet, and a look every second."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.stage import GRACE, Stage, staged
from tests.cluster.terms import LEAD, Pool
from tests.deploy.manifests import DEPLOY
from tests.servers import fleet, manifests
from tests.servers.audit import Call
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

POOL, DECOY = Pool("infer-a100", "A100", nodes=2), Pool("infer-a40", "A40", mode="shadow")
BESIDE = "descheduler"
EVERY = "1s"
NOTICE = int(LEAD) - GRACE
"""Seconds; all that a borrower may ask for beside its grace. So long are nodes closed with the gang still on them."""
WHOLE_WITHIN = 2.0
"""Seconds; a gang's evictions go side by side, and the descheduler's would lie a second or more apart from them."""


@pytest.fixture(scope="module")
def stage(
    control_plane: ControlPlane, descheduler_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("beside")
    with staged(control_plane, folder, (POOL, DECOY)) as running:
        space = fleet.namespace(control_plane, BESIDE)
        config = account(control_plane, space)
        control_plane.add_part(BESIDE, command(descheduler_binary, config, folder))
        control_plane.start(BESIDE)
        try:
            running.serving = space
            yield running
        finally:
            control_plane.stop(BESIDE)
            control_plane.api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{space}")


def account(plane: ControlPlane, space: str) -> Path:
    """Whatever the descheduler's chart grants is enough; here it may do everything, and its account is told apart."""
    config = plane.identity(space, BESIDE)
    subject = {"kind": "ServiceAccount", "name": BESIDE, "namespace": space}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    body = {"metadata": {"name": space}, "subjects": [subject], "roleRef": role}
    plane.api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body)
    return config


def command(binary: Path, kubeconfig: Path, folder: Path) -> list[str]:
    """As its chart runs it, but for the pace."""
    return [
        str(binary),
        f"--client-connection-kubeconfig={kubeconfig}",
        f"--policy-config-file={DEPLOY / 'descheduler/policy.yaml'}",
        f"--descheduling-interval={EVERY}",
        f"--cert-dir={folder / 'certificates'}",
        "--secure-port=0",
        "--v=3",
    ]


def evictions(stage: Stage, space: str) -> list[Call]:
    """What the descheduler has evicted in a namespace."""
    calls = stage.plane.audit(f"{stage.serving}:{BESIDE}")
    return [one for one in calls if one.subresource == "eviction" and one.namespace == space and one.code < 300]


def test_no_gang_is_split_over_a_lend_and_a_recall_while_the_descheduler_does_its_work(stage: Stage) -> None:
    space, other = fleet.namespace(stage.plane, "gang"), fleet.namespace(stage.plane, "decoy")
    breaks(stage, other)
    work = stage.work(POOL.model, 4, annotations={"gpu-rebalancer.io/notice-seconds": str(NOTICE)})
    fleet.plain_job(stage.plane, space, "train", 4, work)
    stage.await_lent(POOL.name, 2)
    stage.await_running(space, "train", 4, pool=POOL.name)
    stage.await_("the descheduler to work", lambda: evictions(stage, other))
    before = len(evictions(stage, other))
    stage.serve(space, POOL.model, 2)
    closed = lambda: [node for node in stage.nodes[POOL.name] if "closing" in str(stage.state(node).ours)]  # noqa: E731
    stage.await_("nodes to be closed with the gang on them", closed, pool=POOL.name)
    stage.await_("the descheduler to look at them", lambda: len(evictions(stage, other)) > before)
    stage.await_running(space, "chat", 2, pool=POOL.name)
    stage.await_home(POOL.name)
    assert evictions(stage, space) == [], "the descheduler evicted members of the gang, or its owner's pods"
    splits = stage.watching.splits(space)
    assert [split for split in splits if split.seconds > WHOLE_WITHIN] == []
    assert len(stage.watching.evicted(space, "train")) == 4
    assert stage.hearing.evicted(POOL.name) == [f"{space}/job/train"]


def breaks(stage: Stage, space: str) -> None:
    """A pod that the descheduler evicts as often as it comes: bound past the scheduler, it tolerates no taint."""
    (node,) = stage.nodes[DECOY.name]
    template = manifests.inference_template("decoy", Work(DECOY.model, 1, grace=1, lendable=False), spread=False)
    template["spec"] |= {"nodeName": node, "tolerations": []}
    stage.plane.api.post(f"/apis/apps/v1/namespaces/{space}/deployments", manifests.deployment("decoy", 1, template))
