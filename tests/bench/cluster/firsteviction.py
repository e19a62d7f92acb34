"""Record that makes a plan due → first eviction accepted by the real API server: ``first_eviction_p99_ms``.

40 kwok nodes of 8 GPUs; inference holds four, the others are lent to gangs of eight one-GPU pods, every second gang
under a PDB that lets it go. Product, broker and control plane run on this machine; utilisation of all nodes is looked
at every 15 s meanwhile, as by default. Two triggers, neither with a debounce to wait for:

- ``pending``: the service is scaled up by one replica, which only a lent node can house. The record is the first fact
  of that pod on `gpu.fact.pod.v1`. The policy's `pending_debounce` (default 10 s: nodes are closed at once, nobody is
  evicted before) is 0 here, since it is a choice and not a cost.
- ``recall``: the record is somebody's request for one node on `gpu.control.v1`.

Start is the broker's append time of the record, end the API server's audit stamp of the answer 201: one machine, one
clock. The stages between are append times and audit stamps too. Gangs asked for no notice.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from rebalancer.adapters.translate import encode_request
from rebalancer.core.facts import Pod
from rebalancer.core.plan import CloseNode, Method, Plan
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import FactObserved, RecallRequested
from rebalancer.wire import v1
from rebalancer.wire.envelope import cluster_partition
from tests.bench.cluster import trial
from tests.bench.cluster.audited import AuditTail
from tests.bench.cluster.figures import spread
from tests.bench.cluster.stamped import Stamped
from tests.bench.cluster.trial import Way
from tests.cluster.stage import CLUSTER, Stage, staged
from tests.cluster.terms import Pool, policy
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

HOME, GANG = 4, 8
PARTITIONS = 4  # the settings' default
WITHIN = 30.0  # seconds that one trial may take before the run fails
SETTLED = 0.4  # seconds between trials: the last one's records are taken in
EVERY = 15.0  # seconds between two looks at the GPUs: the settings' default
SECTIONS: dict[str, dict[str, Any]] = {
    "activities": {"freshness": "40s", "dwell": "45s"},
    "signals": {"pending_debounce": "0s", "debounce": "10s"},  # no load-driven recall among the trials
    "borrowing": {"cooldown": "30m", "cooldown_max": "1h", "max_loan": "4h"},  # nor loans to those who just went
}


class Bench:
    """A run while its stage is open."""

    def __init__(self, stage: Stage, pool: Pool, heard: Stamped) -> None:
        self._stage, self._pool, self._heard = stage, pool, heard
        self._audit = AuditTail(stage.plane.plan.audit_log, ":gpu-rebalancer")
        self._producer = Producer({"bootstrap.servers": stage.broker.bootstrap, "linger.ms": 0, "log_level": 2})
        self._served = HOME
        self.taken: list[tuple[Way, dict[str, float]]] = []

    def round(self, recalls: int) -> None:
        """Lend all but inference's nodes, then bring each of them home, the last ``recalls`` by request."""
        away = self._pool.nodes - HOME
        self._borrow(away)
        for _ in range(away - recalls):
            self._take(self._pending, self._served_all)
        for node in sorted(one.node_name for one in self._stage.open_loans(self._pool.name)):
            self._take(partial(self._recall, node), partial(self._stage.await_home, self._pool.name, [node], WITHIN))
        self._served = HOME
        fleet.scale(self._stage.plane, self._stage.serving, "chat", HOME)
        self._stage.await_running(self._stage.serving, "chat", HOME, pool=self._pool.name)

    def _borrow(self, gangs: int) -> str:
        """As many gangs as nodes, each on a node of its own, all running; their namespace."""
        stage, space = self._stage, fleet.namespace(self._stage.plane, "train")

        def served() -> list[Any]:
            return fleet.pods(stage.plane, stage.serving, "chat")

        stage.await_("those that were scaled in to be gone", lambda: len(served()) == HOME, pool=self._pool.name)
        taken = {pod["spec"]["nodeName"] for pod in served()}
        for number, node in enumerate(name for name in stage.nodes[self._pool.name] if name not in taken):
            name = f"gang-{number:02}"
            if number % 2:
                fleet.pdb(stage.plane, space, name, minimum=0)
            template = manifests.training_template(name, stage.work(self._pool.model, 8 // GANG))
            template["spec"]["nodeSelector"]["kubernetes.io/hostname"] = node  # one gang's trial touches no other
            body = manifests.job(name, GANG, template)
            stage.plane.api.post(f"/apis/batch/v1/namespaces/{space}/jobs", body)
        stage.await_lent(self._pool.name, gangs, 120.0)
        stage.await_running(space, "", gangs * GANG, 60.0, self._pool.name)
        return space

    # -- triggers ----------------------------------------------------------------------------------------------------

    def _pending(self) -> Way:
        stage, before, called = self._stage, len(self._heard.heard), time.time()
        self._served += 1
        fleet.scale(stage.plane, stage.serving, "chat", self._served)

        def waits(seen: FactObserved) -> bool:
            return isinstance(seen.fact, Pod) and seen.fact.namespace == stage.serving and seen.fact.pending

        due, _ = self._heard.first(before, FactObserved, waits, WITHIN)
        planned, plan = self._heard.first(before, Plan, _of(Method.RECLAIM, Reason.INFERENCE_PENDING), WITHIN)
        return Way("pending", called, due, planned, plan)

    def _recall(self, node: str) -> Way:
        before, called = len(self._heard.heard), time.time()
        record = encode_request(RecallRequested("node", node, "bench", datetime.now(UTC)), CLUSTER)
        place = cluster_partition(CLUSTER, PARTITIONS, {})
        self._producer.produce(record.topic, record.value, record.key, place, headers=list(record.headers))
        self._producer.flush(WITHIN)
        due, _ = self._heard.first(before, RecallRequested, lambda one: one.target == node, WITHIN)
        wanted = _of(Method.RETURN, Reason.OPERATOR_RECALL)
        planned, plan = self._heard.first(before, Plan, lambda one: wanted(one) and _closes(one, node), WITHIN)
        return Way("recall", called, due, planned, plan)

    def _served_all(self) -> None:
        self._stage.await_running(self._stage.serving, "chat", self._served, WITHIN, self._pool.name)

    def _take(self, cause: Callable[[], Way], settled: Callable[[], object]) -> None:
        """One trial. The cluster is asked nothing before its evictions are in the log: that would be in their way."""
        way = cause()
        wanted = len(way.gang.members)
        self._stage.await_(
            f"{wanted} evictions in the audit log", lambda: len(trial.accepted(way, self._audit.read())) >= wanted
        )
        self.taken.append((way, dict(trial.stages(way, self._audit.requests))))
        self._audit.requests.clear()
        settled()
        self._forget(way)
        time.sleep(SETTLED)

    def _forget(self, way: Way) -> None:
        """Delete the job of the gang that went: its replacements would wait, be tried and told on in later trials."""
        space, job = way.gang.namespace, way.gang.gang.rpartition("/")[2]
        self._stage.plane.api.delete(f"/apis/batch/v1/namespaces/{space}/jobs/{job}", propagationPolicy="Background")
        gone = lambda: not fleet.pods(self._stage.plane, space, job)  # noqa: E731
        self._stage.await_(f"{job} to be gone", gone, WITHIN, self._pool.name)


def _of(method: Method, reason: Reason) -> Callable[[Plan], bool]:
    return lambda plan: plan.method is method and plan.because.reason is reason


def _closes(plan: Plan, node: str) -> bool:
    return any(isinstance(step, CloseNode) and step.node_name == node for step in plan.steps)


def told(taken: list[tuple[Way, dict[str, float]]], warm: int) -> dict[str, Any]:
    """The figures of all trials but the first ``warm`` of each trigger: connections open, code is compiled."""
    triggers: dict[str, Any] = {}
    for name in ("pending", "recall"):
        rows = [found for way, found in taken if way.trigger == name][warm:]
        if rows:
            found = {stage: spread([row[stage] for row in rows], 1000.0, 1) for stage in rows[0]}
            triggers[name] = {"trials": len(rows), "stages": found}
    every = [found for _, found in taken]
    first = triggers["pending"]["stages"][trial.FIRST]
    return {
        "first_eviction_p99_ms": first["p99"],
        "first_eviction": {
            "triggers": triggers,
            "last_of_the_gang": {"without a PDB": _last(taken, held=False), "with one": _last(taken, held=True)},
            "all_ms": [round(1000 * row[trial.FIRST], 1) for row in every],
        },
    }


def _last(taken: list[tuple[Way, dict[str, float]]], *, held: bool) -> dict[str, Any]:
    rows = [row for way, row in taken if bool(way.gang.members[0].budgets) is held]
    return spread([row[trial.LAST] for row in rows], 1000.0, 1)


def run(*, nodes: int = 40, rounds: int = 1, recalls: int = 12, warm: int = 3) -> dict[str, Any]:
    """The figures, on a control plane and a broker of the run's own.

    Args:
        nodes: of the pool; four of them stay inference's.
        rounds: how often all of them are lent and brought home. What a round lets demand rise by is learnt as headroom,
            so that the next one lends less: more than one needs a policy that forgets in between.
        recalls: how many of a round come home by request; the others because a replica waits.
        warm: trials of each trigger that do not count.
    """
    pool = Pool("infer-a100", "A100", nodes=nodes, floor_nodes=HOME)

    def serve(stage: Stage) -> None:
        stage.serving = fleet.namespace(stage.plane, "serve")
        work = Work(model=pool.model, gpus=8, grace=1, lendable=False)
        fleet.inference(stage.plane, stage.serving, "chat", HOME, work)
        fleet.await_pods(stage.plane, stage.serving, "chat", HOME)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(folder / "plane"))
        stage = stack.enter_context(
            staged(plane, folder, [pool], lease={}, proxied=False, start=False, prepare=serve, every=EVERY)
        )  # fmt: skip
        stage.product.adopt(policy([pool], **SECTIONS))
        topics = (v1.FACT_TOPICS["pod"], v1.CONTROL, v1.PLAN)
        heard = stack.enter_context(Stamped(stage.broker.bootstrap, topics))
        stage.product.start()
        bench = Bench(stage, pool, heard)
        for _ in range(rounds):
            bench.round(recalls)
    found = told(bench.taken, warm)
    return {**found, "first_eviction": {**found["first_eviction"], "nodes": nodes, "members": GANG}}
