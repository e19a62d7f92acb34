"""The API server, its history, or the broker is away for a while: nothing is done in error, all is caught up with.

Loans come home by their due time whatever is away, as long as the API server is there.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import Method
from rebalancer.core.reasons import Reason
from tests.cluster.stage import WITHIN, Stage, staged
from tests.cluster.terms import Pool, policy
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

AWAY, COMPACTED, SILENT = Pool("infer-a100", "A100"), Pool("infer-a40", "A40"), Pool("infer-l20", "L20")
POOLS = (AWAY, COMPACTED, SILENT)
DOWN = 60.0
"""Seconds without an API server: many times every Lease and time-out of these stories."""
STAYS = 5.0
"""Seconds for which nothing must happen: some looks of decide and several of act."""
SHORT_LOAN = timedelta(seconds=100)
"""Its return starts 66 s before its end: time for its gang to run and for Kafka to have been silent long enough."""
RECOVERED = 90.0
"""Seconds from a broker's return until all streams flow again: group sessions of 10 s, and rebalances after them."""
LOST = "gpu_rebalancer_watches_lost_total"


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(control_plane, tmp_path_factory.mktemp("outages"), POOLS, proxied=False) as running:
        yield running


def lent(stage: Stage, pool: Pool, space: str) -> str:
    """A node lent to a gang of two that runs on it."""
    fleet.plain_job(stage.plane, space, "train", 2, stage.work(pool.model, 4))
    (node,) = stage.await_lent(pool.name, 1)
    stage.await_running(space, "train", 2, pool=pool.name)
    return node


def back(stage: Stage) -> None:
    """The API server again, and the parts of the control plane that would take their time to find it."""
    stage.plane.start("apiserver")
    for part in ("controller-manager", "scheduler", "kwok"):
        stage.plane.restart(part)


def uids(stage: Stage, space: str) -> set[str]:
    """Pods of the gang as the API server has them."""
    return {pod["metadata"]["uid"] for pod in fleet.pods(stage.plane, space, "train")}


def counted(stage: Stage, metric: str) -> float:
    """The sum of a counter over its labels."""
    lines = stage.one().page("/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))


def test_an_api_server_away_for_a_minute_is_waited_for_and_caught_up_with(stage: Stage) -> None:
    pool, space = AWAY, fleet.namespace(stage.plane, "away")
    node = lent(stage, pool, space)
    before, gang, pid = stage.state(node), uids(stage, space), stage.one().part.pid
    plans = stage.hearing.plans(pool.name)
    stage.plane.stop("apiserver")
    try:
        time.sleep(DOWN)
    finally:
        back(stage)
    fleet.await_nodes(stage.plane, [node])
    time.sleep(STAYS)
    assert (stage.one().part.runs, stage.one().part.pid) == (True, pid)
    assert stage.state(node)[2:] == before[2:], "a node was touched because nobody could be asked"
    assert (uids(stage, space), stage.watching.evicted(space)) == (gang, [])
    assert [plan for plan in stage.hearing.plans(pool.name) if plan not in plans] == []
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)
    assert len(stage.watching.evicted(space)) == 2
    assert stage.hearing.evicted(pool.name) == [f"{space}/job/train"]


def test_after_a_compaction_the_truth_is_known_again_and_acted_upon(stage: Stage) -> None:
    pool, space = COMPACTED, fleet.namespace(stage.plane, "compacted")
    lent(stage, pool, space)
    lost = counted(stage, LOST)
    stage.plane.compact()
    stage.serve(space, pool.model, 1)
    stage.await_running(space, "chat", 1, pool=pool.name)
    stage.await_home(pool.name)
    assert counted(stage, LOST) > lost, "no watch was told that its history is gone"
    assert len(stage.watching.evicted(space)) == 2


def test_with_the_broker_gone_from_before_the_due_time_until_after_it_the_loan_is_home_by_due(stage: Stage) -> None:
    pool, space = SILENT, fleet.namespace(stage.plane, "silent")
    stage.product.adopt(policy(POOLS, borrowing={"max_loan": f"{SHORT_LOAN.total_seconds():g}s"}))
    stage.await_("the policy to be adopted", lambda: "policy adopted" in stage.one().log())
    node = lent(stage, pool, space)
    mark = due_of(stage, node)
    stage.broker.kill()
    try:
        left = (mark - datetime.now(UTC)).total_seconds()
        stage.await_("the node to be home", lambda: not stage.state(node).ours, left)
        assert datetime.now(UTC) < mark
        home, gone = stage.state(node), {life.uid for life in stage.watching.evicted(space)}
        time.sleep(max(0.0, (mark - datetime.now(UTC)).total_seconds()))
        assert (stage.state(node)[2:], len(gone)) == (home[2:], 2)
    finally:
        stage.broker.start()
    stage.await_("what was done to be told", lambda: returned(stage, pool), WITHIN * 2, pool.name)
    (loan,) = stage.hearing.loans(pool.name)
    assert (loan.phase, loan.closed_at is not None and loan.closed_at <= mark) == (LoanPhase.RETURNED, True)
    alone = [plan for plan in stage.hearing.plans(pool.name) if plan.method is Method.RETURN]
    assert {plan.because.reason for plan in alone} == {Reason.LOAN_DUE}
    stage.await_("no alert to stand", lambda: not stage.hearing.standing(pool.name), RECOVERED, pool.name)
    assert len(stage.watching.evicted(space)) == 2
    assert stage.one().part.runs


def due_of(stage: Stage, node: str) -> datetime:
    """When a node is due, as its own mark says."""
    said: Any = orjson.loads(stage.state(node).annotations["gpu-rebalancer.io/loan"])["due"]
    return datetime.fromisoformat(said)


def returned(stage: Stage, pool: Pool) -> bool:
    """Whether the ledger has every loan of the pool as closed."""
    loans = stage.hearing.loans(pool.name)
    return bool(loans) and not any(one.open for one in loans)
