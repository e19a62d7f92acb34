"""What others do to nodes and pods while we change them: bind, squat, delete, recreate, put taints back."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any, Self

import pytest

from rebalancer.core.loans import LoanPhase
from rebalancer.core.reasons import Reason
from tests.cluster.stage import Stage, staged
from tests.cluster.terms import DWELL, Pool
from tests.cluster.watching import OURS
from tests.servers import fleet
from tests.servers.adminclient import MERGE
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

BOUND, SQUATTED = Pool("infer-a100", "A100"), Pool("infer-a40", "A40")
DELETED, STRIPPED = Pool("infer-l20", "L20"), Pool("infer-l40", "L40")
RETAINTED, RECREATED = Pool("infer-t4", "T4"), Pool("infer-h100", "H100")
POOLS = (BOUND, SQUATTED, DELETED, STRIPPED, RETAINTED, RECREATED)


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(control_plane, tmp_path_factory.mktemp("races"), POOLS) as running:
        yield running


def test_a_pod_bound_between_the_decision_to_lend_and_the_taint_undoes_the_loan(stage: Stage) -> None:
    pool, space = BOUND, fleet.namespace(stage.plane, "bound")
    (node,) = stage.nodes[pool.name]
    before = stage.state(node)
    hanging = stage.proxy.fault("PATCH", f"/api/v1/nodes/{node}", times=1)
    fleet.plain_job(stage.plane, space, "train", 2, stage.work(pool.model, 4))
    stage.await_("the decision to lend", lambda: hanging.met, DWELL + 40.0, pool.name)
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.proxy.heal(hanging)
    undone = lambda: any(one.phase is LoanPhase.UNDONE for one in stage.hearing.loans(pool.name))  # noqa: E731
    stage.await_("the loan to be undone", undone, pool=pool.name)
    stage.await_home(pool.name)
    assert not any(state.lent for state in stage.watching.states(node))
    assert stage.state(node)[2:] == before[2:]
    assert [life.name for life in stage.watching.lives(space, "train") if life.bound is not None] == []
    reasons = {one.because.reason for one in stage.hearing.outcomes(pool.name)}
    assert reasons & {Reason.NODE_TAKEN, Reason.NODE_CHANGED}


def test_who_never_opted_in_cannot_land_on_a_lent_node_and_if_forced_there_is_a_squatter(stage: Stage) -> None:
    pool, space = SQUATTED, fleet.namespace(stage.plane, "squat")
    (node,) = stage.nodes[pool.name]
    fleet.plain_job(stage.plane, space, "train", 1, stage.work(pool.model, 4))
    stage.await_lent(pool.name, 1)
    stage.await_running(space, "train", 1, pool=pool.name)
    fleet.plain_job(stage.plane, space, "other", 1, stage.work(pool.model, 1, lendable=False))
    stage.await_("the scheduler to have tried", lambda: _unschedulable(fleet.pods(stage.plane, space, "other")))
    forced = fleet.bound_pod(stage.plane, space, "forced", node, Work(pool.model, 1, lendable=False, grace=1))
    raised = lambda: stage.hearing.alerts(Reason.SQUATTER, f"{space}/forced")  # noqa: E731
    stage.await_("the squatter to be told", raised, pool=pool.name)
    assert [life.bound for life in stage.watching.lives(space, "other")] == [None]
    stage.plane.api.delete(fleet.pod_path(forced))
    stage.await_("the alert to clear", lambda: not stage.hearing.standing(pool.name), pool=pool.name)
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)


def test_a_node_deleted_on_loan_closes_it_as_node_gone_and_its_successor_has_no_history(stage: Stage) -> None:
    pool, space = DELETED, fleet.namespace(stage.plane, "deleted")
    (node,) = stage.nodes[pool.name]
    fleet.plain_job(stage.plane, space, "train", 2, stage.work(pool.model, 4))
    stage.await_lent(pool.name, 1)
    stage.await_running(space, "train", 2, pool=pool.name)
    old = stage.state(node)
    stage.plane.api.delete(f"/api/v1/nodes/{node}")
    for pod in fleet.pods(stage.plane, space, "train"):
        stage.plane.api.request("DELETE", fleet.pod_path(pod), gracePeriodSeconds=0)
    gone = lambda: [one.node for one in stage.hearing.loans(pool.name) if one.phase is LoanPhase.NODE_GONE]  # noqa: E731
    assert stage.await_("the loan to be closed", gone, pool=pool.name) == [old.uid]
    born = datetime.now(UTC)
    fleet.gpu_nodes(stage.plane, pool.name, pool.model, 1)
    new = stage.state(node)
    assert (new.uid != old.uid, new.ours) == (True, [])
    stage.await_lent(pool.name, 1)  # the gang still waits, and the new node proves its idleness anew
    later = [one for one in stage.hearing.loans(pool.name) if one.node == new.uid]
    assert [one.opened_at - born >= timedelta(seconds=DWELL) for one in later] == [True]
    states = [state for state in stage.watching.states(node) if state.uid == new.uid]
    assert not any(f"{OURS}loan" in state.annotations and not state.lent for state in states)


class Outsider:
    """Somebody who thinks a node's taints are his: whenever they are others, he makes them what he wants."""

    def __init__(self, stage: Stage, node: str, *, strips: bool) -> None:
        self._stage, self._node, self._strips = stage, node, strips
        self._taints = list(stage.state(node).taints)
        self.times = 0
        self._ending = Event()
        self._thread = Thread(target=self._insist, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(10.0)

    def _wanted(self, now: Any) -> list[Any]:
        if self._strips:
            return self._taints
        kept = [one for one in now if one not in self._taints]
        return [*self._taints, *kept]

    def _insist(self) -> None:
        try:
            self._watch()
        finally:
            self._stage.plane.api.disconnect()  # this thread's own connection

    def _watch(self) -> None:
        path = f"/api/v1/nodes/{self._node}"
        while not self._ending.is_set():
            raw = self._stage.plane.api.get(path)
            taints = raw["spec"].get("taints") or []
            lacks = any(one not in taints for one in self._taints)
            if lacks or (self._strips and taints != self._taints):
                patch = {
                    "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
                    "spec": {"taints": self._wanted(taints)},
                }
                status, _ = self._stage.plane.api.request("PATCH", path, patch, MERGE)
                self.times += status == 200
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("pool", "strips"),
    [
        pytest.param(STRIPPED, True, id="takes ours off"),
        pytest.param(RETAINTED, False, id="puts the owner's taint back"),
    ],
)
def test_an_outsider_who_insists_on_a_nodes_taints_is_not_fought_but_told(
    stage: Stage, pool: Pool, strips: bool
) -> None:
    space = fleet.namespace(stage.plane, "outsider")
    (node,) = stage.nodes[pool.name]
    before = stage.proxy.count("PATCH", f"/api/v1/nodes/{node}")
    with Outsider(stage, node, strips=strips) as outsider:
        fleet.plain_job(stage.plane, space, "train", 2, stage.work(pool.model, 4))
        contended = lambda: [  # noqa: E731
            *stage.hearing.alerts(Reason.CONTENDED),
            *(one for one in stage.hearing.outcomes(pool.name) if one.because.reason is Reason.CONTENDED),
        ]
        stage.await_("the contention to be told", contended, DWELL + 40.0, pool.name)
        after = stage.proxy.count("PATCH", f"/api/v1/nodes/{node}")
        time.sleep(5.0)  # nothing to await: that nothing more happens is the point
        assert stage.proxy.count("PATCH", f"/api/v1/nodes/{node}") - before <= 12
        assert stage.proxy.count("PATCH", f"/api/v1/nodes/{node}") - after <= 4
        assert outsider.times >= 1
    stage.plane.api.delete(f"/apis/batch/v1/namespaces/{space}/jobs/train", propagationPolicy="Background")


def test_the_pod_that_a_statefulset_made_anew_under_the_same_name_survives(stage: Stage) -> None:
    pool, space = RECREATED, fleet.namespace(stage.plane, "sts")
    fleet.statefulset(stage.plane, space, "train", 2, stage.work(pool.model, 4))
    stage.await_lent(pool.name, 1)
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"]
           for pod in stage.await_running(space, "train", 2, pool=pool.name)}  # fmt: skip
    path = rf"/namespaces/{space}/pods/train-0/eviction"
    late = stage.proxy.fault("POST", path, dry=False, times=1)
    stage.serve(space, pool.model, 1)
    stage.await_("the eviction to be on its way", lambda: late.met, pool=pool.name)
    stage.plane.api.request("DELETE", f"/api/v1/namespaces/{space}/pods/train-0", gracePeriodSeconds=0)

    def anew() -> Any:
        found = [pod for pod in fleet.pods(stage.plane, space, "train") if pod["metadata"]["name"] == "train-0"]
        return [pod["metadata"]["uid"] for pod in found if pod["metadata"]["uid"] != old["train-0"]]

    (new,) = stage.await_("the pod to be made anew", anew, pool=pool.name)
    stage.proxy.heal(late)  # the eviction that was decided on for the old one arrives
    stage.await_running(space, "chat", 1, pool=pool.name)
    real = lambda: [one.status for one in stage.proxy.requests("POST", path) if "dryRun" not in one.path]  # noqa: E731
    answers = stage.await_("it to be answered", real, pool=pool.name)  # the API server takes ten seconds for this
    assert set(answers) <= {404, 409}
    assert [life.left for life in stage.watching.lives(space) if life.uid == new] == [None]


def _unschedulable(pods: list[Any]) -> bool:
    conditions = [one for pod in pods for one in pod["status"].get("conditions", [])]
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)
