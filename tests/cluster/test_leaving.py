"""Brakes and exit on a running installation: pause, recall, other releases in mid-loan, retire, and coming back.

What people type is typed; who types it has an operator's rights. The stories follow one another on one installation.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rebalancer.adapters.cluster.permissions import Profile
from rebalancer.cli.app import app
from rebalancer.core.loans import LoanPhase
from rebalancer.core.reasons import Reason
from tests.cluster.granting import granted, in_force
from tests.cluster.lentnodes import ours
from tests.cluster.stage import NAMESPACE, WITHIN, Stage, staged
from tests.cluster.terms import Pool
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

PAUSED, RECALLED = Pool("infer-a100", "A100"), Pool("infer-a40", "A40", nodes=2)
DIRECT, CHANGED, RETIRED = Pool("infer-l20", "L20"), Pool("infer-l40", "L40"), Pool("infer-t4", "T4")
WITNESS = Pool("infer-h100", "H100")
POOLS = (PAUSED, RECALLED, DIRECT, CHANGED, RETIRED, WITNESS)
RETIRES_WITHIN = 60
LOAN = "gpu-rebalancer.io/loan"
OWN = ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", "/api/v1/namespaces/{}/configmaps")


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(control_plane, tmp_path_factory.mktemp("leaving"), POOLS) as running:
        yield running


class Operator:
    """Somebody at a terminal, with the rights of a profile."""

    def __init__(self, stage: Stage, folder: Path, profile: Profile = "operator") -> None:
        settings, who = stage.product.place.settings(0), granted(stage.plane, NAMESPACE, profile, profile)
        settings["kubernetes"]["kubeconfig"] = str(who)
        self._config = folder / f"{profile}.yaml"
        self._config.write_text(yaml.safe_dump(settings))
        self._name, self._plane = f"{NAMESPACE}:{profile}", stage.plane
        in_force(stage.plane, who)
        client, control = stage.plane.client(who), f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-rebalancer-control"
        client.wait(lambda: client.request("GET", control)[0] != 403, WITHIN, "the rights in the namespace")
        client.disconnect()
        self._before = len(stage.plane.audit(self._name))

    def types(self, *words: str, code: int = 0) -> Any:
        """What a command answers as JSON, if it ends with this code."""
        told = CliRunner().invoke(app, [*words, "--by", "grace", "--json", "--config", str(self._config)])
        assert told.exit_code == code, (words, told.exit_code, told.stdout, told.stderr)
        return json.loads(told.stdout)

    @property
    def refused(self) -> list[Any]:
        """What the API server did not let it do."""
        return [call for call in self._plane.audit(self._name)[self._before :] if call.code == 403]


@pytest.fixture
def operator(stage: Stage, tmp_path: Path) -> Operator:
    return Operator(stage, tmp_path)


def asks(stage: Stage, pool: Pool, gang: str) -> str:
    """A gang that fills a node waits for one of the pool; its namespace."""
    space = fleet.namespace(stage.plane, "leave")
    fleet.plain_job(stage.plane, space, gang, 2, stage.work(pool.model, 4))
    return space


def lent(stage: Stage, pool: Pool, space: str, *gangs: str) -> dict[str, str]:
    """The node of each gang, once all of them run."""
    stage.await_lent(pool.name, len(gangs))
    pods = {gang: stage.await_running(space, gang, 2, pool=pool.name) for gang in gangs}
    return {gang: found[0]["spec"]["nodeName"] for gang, found in pods.items()}


def end(stage: Stage, space: str, *gangs: str) -> None:
    """The gangs want nothing any more."""
    for gang in gangs:
        path = f"/apis/batch/v1/namespaces/{space}/jobs/{gang}"
        stage.plane.api.delete(path, propagationPolicy="Background")


def left(stage: Stage) -> list[str]:
    """Everything of ours in the cluster."""
    names = [item["metadata"]["name"] for path in OWN for item in stage.plane.api.items(path.format(NAMESPACE))]
    return [*ours(stage.plane), *(name for name in names if name.startswith("gpu-rebalancer"))]


def test_while_a_pool_is_paused_it_lends_nothing_and_the_others_go_on(stage: Stage, operator: Operator) -> None:
    pool = PAUSED
    assert operator.types("pause", "--pool", pool.name, "--why", "firmware")["control"]["paused_pools"] == [pool.name]
    space, elsewhere = asks(stage, pool, "train"), asks(stage, WITNESS, "train")
    lent(stage, WITNESS, elsewhere, "train")
    assert (stage.hearing.plans(pool.name), stage.watching.states(stage.nodes[pool.name][0])[-1].ours) == ([], [])
    operator.types("resume", "--pool", pool.name)
    lent(stage, pool, space, "train")
    for one in (pool, WITNESS):
        operator.types("recall", "--pool", one.name)
    for one, gang in ((pool, space), (WITNESS, elsewhere)):
        stage.await_home(one.name)
        end(stage, gang, "train")
    operator.types("resume")


def test_one_node_is_recalled_then_all_and_none_is_lent_again_before_it_is_resumed(
    stage: Stage, operator: Operator
) -> None:
    pool, gangs = RECALLED, ("first", "second")
    space = asks(stage, pool, "first")
    lent(stage, pool, space, "first")
    fleet.plain_job(stage.plane, space, "second", 2, stage.work(pool.model, 4))  # finds no room beside the first
    nodes = lent(stage, pool, space, *gangs)
    operator.types("recall", "--node", nodes["first"])
    stage.await_home(pool.name, [nodes["first"]])
    assert (stage.state(nodes["second"]).lent, stage.watching.evicted(space, "second")) == (True, [])
    operator.types("recall", "--all", "--why", "drill")
    stage.await_home(pool.name)
    assert [len(stage.watching.evicted(space, gang)) for gang in gangs] == [2, 2]
    reasons = {plan.because.reason for plan in stage.hearing.plans(pool.name) if plan.method.value == "return"}
    assert reasons == {Reason.OPERATOR_RECALL}
    end(stage, space, *gangs)
    operator.types("resume")
    assert operator.refused == []


def test_other_releases_in_mid_loan_lose_nothing_and_leave_nothing(stage: Stage, operator: Operator) -> None:
    """More replicas and other settings, then fewer and the old ones, over a mark with what a later release may say."""
    pool, product = CHANGED, stage.product
    space = asks(stage, pool, "train")
    node = lent(stage, pool, space, "train")["train"]
    gang = {pod["metadata"]["uid"] for pod in fleet.pods(stage.plane, space, "train")}
    (loan,) = stage.hearing.loans(pool.name)
    product.start("upgraded")
    assert product.replicas["one"].end() == 0
    later = json.loads(stage.state(node).annotations[LOAN])
    spelled = json.dumps({**later, "x-later-release": {"and": "its fields"}})
    stage.plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {LOAN: spelled}}})
    product.start("one")
    assert product.replicas["upgraded"].end() == 0
    (still,) = stage.hearing.loans(pool.name)
    assert (still.id, still.due, still.open, stage.state(node).lent) == (loan.id, loan.due, True, True)
    assert {pod["metadata"]["uid"] for pod in fleet.pods(stage.plane, space, "train")} == gang
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)
    assert {life.uid for life in stage.watching.evicted(space)} == gang
    assert [one.phase for one in stage.hearing.loans(pool.name)] == [LoanPhase.RETURNED]
    assert operator.refused == []


def test_retired_it_leaves_nothing_and_installed_again_it_lends_again(stage: Stage, tmp_path: Path) -> None:
    pool, one = RETIRED, stage.one()
    before = {name: stage.state(name)[2:] for name in stage.nodes[pool.name]}
    space = asks(stage, pool, "train")
    lent(stage, pool, space, "train")
    retiring = Operator(stage, tmp_path, "retire")
    running = retiring.types("retire", "--yes", "--timeout", str(RETIRES_WITHIN), code=3)
    assert running["result"] == "still-running", "it can tell the platform to end it, and here nobody said so"
    assert {name: stage.state(name)[2:] for name in stage.nodes[pool.name]} == before
    assert one.end() == 0
    assert retiring.types("retire", "--yes", "--timeout", str(RETIRES_WITHIN))["result"] == "retired"
    assert left(stage) == []
    assert {name: stage.state(name)[2:] for name in stage.nodes[pool.name]} == before
    assert retiring.types("retire", "--yes")["result"] == "nothing-there"
    assert retiring.refused == []
    end(stage, space, "train")
    one.part.start()
    one.await_ready()
    again = asks(stage, pool, "train")
    lent(stage, pool, again, "train")
    stage.serve(again, pool.model, 1)
    stage.await_running(again, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)
    assert left(stage) == ["gpu-rebalancer-act", "gpu-rebalancer-collect"]


def test_a_direct_recall_brings_a_node_home_while_the_broker_is_down(stage: Stage, operator: Operator) -> None:
    pool = DIRECT
    space = asks(stage, pool, "train")
    lent(stage, pool, space, "train")
    stage.broker.stop()
    try:
        operator.types("recall", "--pool", pool.name, "--direct")
        nodes = stage.nodes[pool.name]
        stage.await_("the node to be home", lambda: not any(stage.state(one).ours for one in nodes), pool=pool.name)
        assert len(stage.watching.evicted(space)) == 2
    finally:
        stage.broker.start()
    stage.await_("the ledger to know", lambda: not stage.open_loans(pool.name), WITHIN * 2, pool.name)
    assert {one.phase for one in stage.hearing.loans(pool.name)} == {LoanPhase.RETURNED}
    end(stage, space, "train")
    operator.types("resume")
