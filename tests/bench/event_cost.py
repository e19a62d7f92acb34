"""What one event costs an engine at 1,000 and at 100,000 GPUs: ``event_cost_ratio_100k_1k``.

Measured is `Engine.handle` of an event together with the `TimePassed` that follows it, on the fleets of ``fleet``:
loans open, one node a block on its way home, gangs waiting, idle nodes to lend, pods pending. Kinds of events: a
bound pod's status, a replica gone, a replica come, a node's labels, a verdict, an outcome. The clock stands still, so
that only what the event touched is looked at. Batches of the small and the large fleets take turns; the ratio of
each turn is one sample, told are medians. The large fleet is built twice: of many pools of constant size, and of one
lending and one training pool a hundred times as large. The headline is the larger of the two.

Beside it: what is due anyway, whatever the events (all pools looked at, once a second; with pictures, once a minute).
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from rebalancer.core.engine import Engine
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    FactDeleted,
    FactObserved,
    HeartbeatHeard,
    OutcomeReported,
    Stimulus,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import Heartbeat, Verdict
from rebalancer.core.units import Activity
from tests.bench.fleet import HOUR, NODES, WARM_UP, Block, blocks, policy, warm
from tests.core import build

NOW = build.START + timedelta(minutes=WARM_UP)
TIME = TimePassed()
KINDS = ("pod-status", "pod-gone", "pod-come", "node", "verdict", "outcome")


@dataclass(slots=True)
class Subject:
    """An engine and the endless events that happen to its fleet."""

    name: str
    engine: Engine
    events: Iterator[tuple[str, Stimulus]]
    nodes: int


def subject(name: str, count: int, *, one_pool: bool) -> Subject:
    """A warm engine over that many blocks."""
    fleet = blocks(count, one_pool=one_pool)
    engine = warm(fleet, policy(count, one_pool=one_pool))
    return Subject(name, engine, _events(engine, fleet), count * NODES)


def _events(engine: Engine, fleet: list[Block]) -> Iterator[tuple[str, Stimulus]]:
    """One event of each kind in turn, going round the blocks and their nodes."""
    for turn in itertools.count():
        part, version = fleet[turn % len(fleet)], str(turn + 2)
        step = turn // len(fleet)
        pod = part.replicas[step % len(part.replicas)]
        other = part.replicas[(step + 7) % len(part.replicas)]
        node = part.busy[step % len(part.busy)]
        reborn = replace(other, uid=f"{other.uid}.{turn}", name=f"{other.name}.{turn}", resource_version=version)
        yield "pod-status", FactObserved(replace(pod, ready=turn % 2 == 0, resource_version=version), NOW)
        yield "pod-come", FactObserved(reborn, NOW)
        yield "pod-gone", FactDeleted("pod", reborn.uid, NOW)
        labels = {**node.labels, "turn": str(turn % 2)}
        yield "node", FactObserved(replace(node, labels=labels, resource_version=version), NOW)
        yield "verdict", VerdictGiven(Verdict(node.uid, Activity.BUSY, 3.0 + turn % 2, 8, NOW - HOUR, NOW))
        yield "outcome", OutcomeReported(_outcome(engine, part, turn))


def _outcome(engine: Engine, part: Block, turn: int) -> Outcome:
    """Act says again that it works on the node that is on its way home, or on its gang."""
    node = part.lent[0]
    plan = engine.state.busy_nodes[node.uid]
    step, kind, target = ((0, "close", node.uid), (1, "evict", f"ml/{node.name}"))[turn % 2]
    loan = engine.state.loan_of[node.uid] if kind == "close" else ""
    return Outcome(plan, part.lending, step, kind, target, Result.STARTED, Because(Reason.CONFIRMED), NOW, loan, 1)


def one_batch(found: Subject, events: int) -> dict[str, tuple[float, float]]:
    """Mean seconds of (event, the planning after it) by kind, over this many events."""
    spent: dict[str, list[tuple[float, float]]] = {}
    handle, clock = found.engine.handle, time.perf_counter
    for kind, stimulus in itertools.islice(found.events, events):
        begun = clock()
        handle(stimulus, NOW)
        applied = clock()
        handle(TIME, NOW)
        spent.setdefault(kind, []).append((applied - begun, clock() - applied))
    return {
        kind: (statistics.fmean(one for one, _ in pairs), statistics.fmean(two for _, two in pairs))
        for kind, pairs in spent.items()
    }


def _whole(batch: dict[str, tuple[float, float]]) -> float:
    return statistics.fmean(one + two for one, two in batch.values())


def due_anyway(found: Subject, seconds: float) -> float:
    """Median seconds of a `TimePassed` that long after the last one, nothing having happened but a heartbeat."""
    taken = []
    for turn in range(1, 4):
        moment = NOW + timedelta(seconds=seconds * turn)
        found.engine.handle(HeartbeatHeard(Heartbeat("w", moment, (0,), found.nodes, 0.0)), moment)
        begun = time.perf_counter()
        found.engine.handle(TIME, moment)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def run(*, large: int = 100, rounds: int = 15, events: int = 60) -> dict[str, Any]:
    """The figures; ``large``: blocks of the large fleets (100: 100,000 GPUs), against one block."""
    small = subject("1 block", 1, one_pool=False)
    others = [subject("many pools", large, one_pool=False), subject("one pool", large, one_pool=True)]
    found = [small, *others]
    for each in found:
        one_batch(each, events)
    taken: dict[str, list[dict[str, tuple[float, float]]]] = {each.name: [] for each in found}
    for _ in range(rounds):
        for each in found:
            taken[each.name].append(one_batch(each, events))
    base = taken[small.name]
    told = {each.name: _compared(base, taken[each.name]) for each in others}
    return {
        "event_cost_ratio_100k_1k": max(item["ratio"] for item in told.values()),
        "event_cost": {
            "blocks": large,
            "small": _costs(base),
            **told,
            "due_anyway_seconds": {
                each.name: {"second": round(due_anyway(each, 1.0), 4), "minute": round(due_anyway(each, 61.0), 4)}
                for each in found
            },
        },
    }


def _compared(
    base: list[dict[str, tuple[float, float]]], large: list[dict[str, tuple[float, float]]]
) -> dict[str, Any]:
    pairs = list(zip(base, large, strict=True))
    by_kind = {kind: statistics.median(sum(two[kind]) / sum(one[kind]) for one, two in pairs) for kind in KINDS}
    applied = statistics.median(_applied(two) / _applied(one) for one, two in pairs)
    return {
        "ratio": round(statistics.median(_whole(two) / _whole(one) for one, two in pairs), 2),
        "ratio_applying_alone": round(applied, 2),
        "ratio_by_kind": {kind: round(value, 2) for kind, value in by_kind.items()},
        **_costs(large),
    }


def _applied(batch: dict[str, tuple[float, float]]) -> float:
    return statistics.fmean(one for one, _ in batch.values())


def _costs(batches: list[dict[str, tuple[float, float]]]) -> dict[str, Any]:
    return {
        "event_us": round(1e6 * statistics.median(map(_whole, batches)), 1),
        "event_us_by_kind": {
            kind: round(1e6 * statistics.median(sum(batch[kind]) for batch in batches), 1) for kind in KINDS
        },
    }
