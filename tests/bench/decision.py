"""From a record that makes a plan due to the plan on Kafka, on the real broker: ``decision_p99_ms``.

A worker of the decide role (Faust, one cluster) knows 40 nodes of 8 GPUs: 24 at home with two replicas each, 16 lent to
training gangs. Fifty records a second go on beside it, pods' status and verdicts in turn. A trial is an inference pod
that only one of the lent nodes can house: its fact is sent, and the reclaim plan that brings this node home is awaited
by a consumer at the end of the plan topic. Afterwards the outcomes are reported, the pod goes and the node is lent
anew, so that trials can go on round the lent nodes. All but the broker runs in this process: what the measuring
itself costs is part of the figure.

The reference beside it is what the same machine takes, under the same load and in turn with the trials, to send a
record of the same size by plain aiokafka (acknowledged by all) and to receive it.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.admin import apply
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.loader import consumer_at
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import (
    decode,
    encode_deleted,
    encode_fact,
    encode_outcome,
    encode_snapshot,
    encode_verdict,
)
from rebalancer.core.facts import Node, Pod, Requirement
from rebalancer.core.plan import Method, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import FactDeleted, FactKind, SnapshotBegan, SnapshotEnded
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.core import build
from tests.servers.kafka import KafkaServer

CLUSTER, PARTITIONS, POOL = "bench", 4, "infer-a100"
LENT_OF = 2 / 5  # share of the nodes that is lent
REFERENCE = "bench-reference"
WITHIN = 30.0  # seconds that one answer may take before the run fails
SETTLED = 0.2  # seconds between trials: decide has taken in what the last one left behind


class Fleet:
    """The nodes and pods, with the times of now; versions only grow."""

    def __init__(self, nodes: int) -> None:
        self.now = datetime.now(UTC)
        self._versions = itertools.count(1)
        away = max(1, int(nodes * LENT_OF))
        named = [replace(build.node(f"n{index:02}"), labels=self._labels(f"n{index:02}")) for index in range(nodes)]
        self.lent, self.home = named[:away], named[away:]
        self.replicas = [
            build.replica(f"r-{node.name}-{copy}", on=node.name, gpus=2, created_at=self.now, started_at=self.now)
            for node in self.home
            for copy in range(2)
        ]

    @staticmethod
    def _labels(name: str) -> dict[str, str]:
        return {"gpu-model": "A100", "node-pool": POOL, "kubernetes.io/hostname": name}

    def version(self) -> str:
        """A resource version above all others."""
        return str(next(self._versions))

    def lend(self, node: Node, turn: int) -> Node:
        """The node as it is lent for the ``turn``-th time."""
        now = datetime.now(UTC)
        due, loan = now + timedelta(hours=6), f"loan-{node.name}-{turn}"
        seen = build.lent(node, due=due, loan=loan, gang=f"ml/g-{node.name}", opened_at=now)
        return replace(seen, resource_version=self.version())

    def guests(self) -> list[Pod]:
        """The gangs on the lent nodes, a pod of 8 GPUs each."""
        return [build.gang(f"g-{node.name}", on=[node.name], started_at=self.now)[0] for node in self.lent]

    def wanting(self, node: Node, turn: int) -> Pod:
        """An inference pod that only this node can house."""
        terms = ((Requirement("kubernetes.io/hostname", "In", (node.name,)),),)
        now = datetime.now(UTC)
        return replace(build.replica(f"want-{node.name}-{turn}"), node_terms=terms, created_at=now)


class Bench:
    """Everything that a run needs while it is open."""

    def __init__(self, publisher: Publisher, plans: Any, reference: Any, fleet: Fleet) -> None:
        self._publisher, self._plans, self._reference, self._fleet = publisher, plans, reference, fleet

    async def tell(self, *records: Record) -> None:
        """Send and wait for the acknowledgements."""
        await self._publisher.send(records, CLUSTER)

    async def introduce(self) -> None:
        """A complete picture of nodes and pods."""
        nodes = [*self._fleet.home, *(self._fleet.lend(node, 0) for node in self._fleet.lent)]
        for of, facts in (("node", nodes), ("pod", [*self._fleet.replicas, *self._fleet.guests()])):
            await self._list(of, facts)  # type: ignore[arg-type]  # the two words are kinds

    async def _list(self, of: FactKind, facts: list[Node] | list[Pod]) -> None:
        at = datetime.now(UTC)
        said = [encode_fact(fact, CLUSTER, at) for fact in facts]
        begun, ended = SnapshotBegan(of, "1", at), SnapshotEnded(of, "1", len(said), at)
        await self.tell(encode_snapshot(begun, CLUSTER), *said, encode_snapshot(ended, CLUSTER))

    async def trial(self, turn: int) -> float:
        """Seconds from sending one pod's fact to reading its plan."""
        node = self._fleet.lent[turn % len(self._fleet.lent)]
        pod = self._fleet.wanting(node, turn)
        record = encode_fact(pod, CLUSTER, datetime.now(UTC))
        begun = time.perf_counter()
        await self._publisher.post(record, CLUSTER)
        plan = await self._plan_for(node)
        taken = time.perf_counter() - begun
        await self._undo(plan, pod, node, turn)
        return taken

    async def _plan_for(self, node: Node) -> Plan:
        async with asyncio.timeout(WITHIN):
            while True:
                record = await self._plans.getone()
                said = decode(record.topic, record.key, record.value, list(record.headers))
                if isinstance(said, Plan) and said.method is Method.RECLAIM and said.steps[0].node == node.uid:  # type: ignore[union-attr]  # a reclaim begins with a close
                    return said

    async def _undo(self, plan: Plan, pod: Pod, node: Node, turn: int) -> None:
        at = datetime.now(UTC)
        outcomes = [encode_outcome(one, CLUSTER) for one in _done(plan, at)]
        await self.tell(*outcomes, encode_deleted(FactDeleted("pod", pod.uid, at), CLUSTER))
        home = replace(node, resource_version=self._fleet.version())
        await self.tell(encode_fact(home, CLUSTER, at))
        await asyncio.sleep(SETTLED)
        lent = self._fleet.lend(node, turn + 1)
        await self.tell(encode_fact(lent, CLUSTER, datetime.now(UTC)))

    async def round_trip(self) -> float:
        """Seconds for a record of the same size, sent and received without us."""
        pod = self._fleet.wanting(self._fleet.lent[0], 0)
        value = encode_fact(pod, CLUSTER, datetime.now(UTC)).value
        begun = time.perf_counter()
        await self._publisher.post_to(Record(REFERENCE, b"r", value, []), 0)
        async with asyncio.timeout(WITHIN):
            await self._reference.getone()
        return time.perf_counter() - begun

    async def background(self, per_second: float) -> None:
        """Pods' status and verdicts at this rate, until cancelled."""
        started = time.perf_counter()
        for turn in itertools.count():
            pod = self._fleet.replicas[turn % len(self._fleet.replicas)]
            node = self._fleet.home[turn % len(self._fleet.home)]
            at = datetime.now(UTC)
            changed = replace(pod, ready=turn % 4 == 0, resource_version=self._fleet.version())
            verdict = Verdict(node.uid, Activity.BUSY, 2.0 + turn % 3 / 10, 8, self._fleet.now, at)
            record = encode_fact(changed, CLUSTER, at) if turn % 2 else encode_verdict(verdict, CLUSTER)
            await self._publisher.post(record, CLUSTER)
            await asyncio.sleep(max(0.0, started + (turn + 1) / per_second - time.perf_counter()))


def _done(plan: Plan, at: datetime) -> list[Outcome]:
    """Act's word that all of a plan is done; the gang left by itself, so that no cooldown begins."""
    found = []
    for index, step in enumerate(plan.steps):
        target, loan = (step.gang, "") if step.kind == "evict" else (step.node, step.loan)
        numbers = {"members": 0} if step.kind == "evict" else {}
        because = Because(Reason.CONFIRMED)
        found.append(Outcome(plan.id, plan.pool, index, step.kind, target, Result.DONE, because, at, loan, 1, numbers))
    return found


@asynccontextmanager
async def _opened(kafka: KafkaSettings, folder: Path, fleet: Fleet) -> AsyncIterator[Bench]:
    await apply(kafka, partitions=PARTITIONS)
    admin = AIOKafkaAdminClient(**kafka.client_arguments())
    await admin.start()
    await admin.create_topics([NewTopic(REFERENCE, 1, 1)])
    await admin.close()
    async with AsyncExitStack() as stack:
        publisher, own = [await stack.enter_async_context(Publisher(kafka, PARTITIONS)) for _ in range(2)]
        settings = AppSettings(f"bench-{uuid.uuid4().hex[:8]}", kafka, data_dir=folder)
        role = Decide(settings, {CLUSTER: (build.policy(), "bench")}, own, Metrics(), name="bench")
        await role.start()
        stack.push_async_callback(role.stop)
        await role.ready()
        plans = await stack.enter_async_context(consumer_at(kafka))
        reference = await stack.enter_async_context(consumer_at(kafka))
        for consumer, place in (
            (plans, TopicPartition(v1.PLAN, publisher.partition(CLUSTER))),
            (reference, TopicPartition(REFERENCE, 0)),
        ):
            consumer.assign([place])
            await consumer.seek_to_end(place)
        bench = Bench(publisher, plans, reference, fleet)
        await bench.introduce()
        await _until(lambda: _knows(role, fleet))
        yield bench


def _knows(role: Decide, fleet: Fleet) -> bool:
    decider = role.decider(CLUSTER)
    if decider is None or not decider.engine.state.complete(datetime.now(UTC)):
        return False
    return len(decider.engine.state.loan_of) == len(fleet.lent)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():  # noqa: ASYNC110 - nobody tells when an engine knows something
            await asyncio.sleep(0.02)


async def _measured(bench: Bench, trials: int, per_second: float) -> tuple[list[float], list[float]]:
    load = asyncio.create_task(bench.background(per_second))
    try:
        taken, reference = [], []
        for turn in range(trials + WARM):
            one, other = await bench.trial(turn), await bench.round_trip()
            if turn >= WARM:
                taken.append(one)
                reference.append(other)
    finally:
        load.cancel()
        await _ended(load)
    return taken, reference


async def _ended(load: Awaitable[None]) -> None:
    await asyncio.gather(load, return_exceptions=True)


WARM = 5
"""Trials that do not count: connections open, code is compiled."""


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of them do not exceed, in ms."""
    ordered = sorted(values)
    return round(1000 * ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 2)


async def _run(bootstrap: str, folder: Path, nodes: int, trials: int, per_second: float) -> dict[str, Any]:
    fleet = Fleet(nodes)
    async with _opened(KafkaSettings(bootstrap=bootstrap), folder, fleet) as bench:
        taken, reference = await _measured(bench, trials, per_second)
    told = {
        name: {"p50_ms": quantile(values, 0.5), "p99_ms": quantile(values, 0.99), "max_ms": quantile(values, 1.0)}
        for name, values in (("decision", taken), ("reference", reference))
    }
    told["decision"] |= {"trials": trials, "nodes": nodes, "background_per_second": per_second}
    return {
        "decision_p99_ms": told["decision"]["p99_ms"],
        "decision": {**told["decision"], "reference": told["reference"]},
    }


def run(*, nodes: int = 40, trials: int = 200, per_second: float = 50.0, bootstrap: str = "") -> dict[str, Any]:
    """The figures; on a broker of the run's own unless one is named."""
    with tempfile.TemporaryDirectory() as folder:
        if bootstrap:
            return asyncio.run(_run(bootstrap, Path(folder), nodes, trials, per_second))
        with KafkaServer(Path(folder) / "kafka") as server:
            return asyncio.run(_run(server.bootstrap, Path(folder), nodes, trials, per_second))
