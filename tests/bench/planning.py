"""How long one plan takes for 500 nodes of 8 GPUs with 4,000 running and 4,000 pending pods: ``plan_500_nodes_s``.

The fleet is one lending pool. Every GPU is held by a pod of its own, on a tenth of the nodes (50, lent) by training
gangs of 8 that would have to go; 4,000 training pods wait in gangs of 8. Measured is the `TimePassed` at which an
operator's recall of the tenth becomes one plan and, on an engine of its own, the one at which 400 more inference pods,
one for each lent GPU, make the tenth be reclaimed. Caps are as large as the fleet, so that pace does not cut the work
short; telemetry is silent, so that load alone has not reclaimed anything before. Told are medians of a few runs; the
larger of the two is the headline.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from rebalancer.core.engine import Engine
from rebalancer.core.facts import Node, Pod
from rebalancer.core.instructions import PublishPlan
from rebalancer.core.plan import Method, Plan
from rebalancer.core.policy import Pace, Policy
from rebalancer.core.stimuli import (
    FactObserved,
    RecallRequested,
    SnapshotBegan,
    SnapshotEnded,
    TermBegan,
    TimePassed,
)
from tests.core import build

WATCHED = 25  # minutes before the measurement


def fleet(nodes: int) -> tuple[list[Node], list[Pod]]:
    """Nodes, a tenth of them lent; a pod for every GPU, and as many pending in gangs of 8."""
    homes = [build.node(f"n{index:04}") for index in range(nodes)]
    away = max(1, nodes // 10)
    seen = [build.lent(node, due=build.START + timedelta(hours=7)) for node in homes[:away]] + homes[away:]
    pods = [pod for index, node in enumerate(homes) for pod in _held(index, node, lent=index < away)]
    waiting = [pod for index in range(nodes) for pod in build.gang(f"w{index}", 8, gpus=1)]
    return seen, [*pods, *waiting]


def _held(index: int, node: Node, *, lent: bool) -> Iterator[Pod]:
    if lent:
        yield from build.gang(f"g{index}", 8, on=[node.name] * 8, gpus=1)
        return
    for copy in range(8):
        yield build.replica(f"r{index}-{copy}", on=node.name, gpus=1, started_at=build.START)


def engine_of(nodes: int) -> Engine:
    """An engine that has watched this fleet, with caps that do not cut its plans short."""
    pace = Pace(nodes_per_pool=nodes, nodes_per_cluster=nodes, circuit_share=1.0)
    chosen: Policy = build.policy(pace=pace)
    engine, now = Engine("bench", chosen), build.START
    engine.handle(TermBegan(1), now)
    homes, pods = fleet(nodes)
    engine.handle(SnapshotBegan("node", "s", now), now)
    for node in homes:
        engine.handle(FactObserved(node, now), now)
    engine.handle(SnapshotEnded("node", "s", len(homes), now), now)
    engine.handle(SnapshotBegan("pod", "s", now), now)
    for pod in pods:
        engine.handle(FactObserved(pod, now), now)
    engine.handle(SnapshotEnded("pod", "s", len(pods), now), now)
    for minute in range(0, WATCHED + 1, 5):
        engine.handle(TimePassed(), now + timedelta(minutes=minute))
    return engine


def recall(engine: Engine) -> tuple[float, Plan]:
    """Seconds until the recall of everything lent is a plan."""
    now = build.START + timedelta(minutes=WATCHED, seconds=30)
    engine.handle(RecallRequested("all", "", "bench", now), now)
    return _timed(engine, now, Method.RETURN)


def reclaim(engine: Engine) -> tuple[float, Plan]:
    """Seconds until inference pods that wait, one for each lent GPU, have a plan."""
    now = build.START + timedelta(minutes=WATCHED, seconds=30)
    lent = len(engine.state.loan_of) * 8
    for index in range(lent):
        pod = replace(build.replica(f"p{index}", gpus=1), created_at=now)
        engine.handle(FactObserved(pod, now), now)
    return _timed(engine, now, Method.RECLAIM)


def _timed(engine: Engine, now: datetime, method: Method) -> tuple[float, Plan]:
    begun = time.perf_counter()
    made = engine.handle(TimePassed(), now)
    taken = time.perf_counter() - begun
    plans = [item.plan for item in made if isinstance(item, PublishPlan) and item.plan.method is method]
    if len(plans) != 1:
        raise RuntimeError(f"one {method} plan was due, {len(plans)} were made")
    return taken, plans[0]


def run(*, nodes: int = 500, rounds: int = 3) -> dict[str, Any]:
    """The figures; the larger of the two is the headline."""
    recalls = [recall(engine_of(nodes)) for _ in range(rounds)]
    reclaims = [reclaim(engine_of(nodes)) for _ in range(rounds)]
    told = {
        name: {
            "seconds": round(statistics.median(taken for taken, _ in found), 4),
            "nodes": sum(step.kind == "restore" for step in found[0][1].steps),
            "gangs": sum(step.kind == "evict" for step in found[0][1].steps),
        }
        for name, found in (("recall", recalls), ("reclaim", reclaims))
    }
    return {"plan_500_nodes_s": max(item["seconds"] for item in told.values()), "plan": {"fleet_nodes": nodes, **told}}
