"""Full fleets with pods, made of equal blocks, as an engine sees them in the middle of a working night.

A block is 125 nodes of 8 GPUs (1,000 GPUs): 75 in a lending pool, 50 in a training pool, about 250 pods. Seven nodes
are lent, one of them on its way home under an open plan; nine stand empty and idle by proof; most of the rest is
taken. Gangs wait that may not borrow (too large, another model, not reclaimable), and inference pods that have room
at home. A fleet grows by blocks of its own pools, or by blocks that share one lending and one training pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from rebalancer.core.engine import Engine
from rebalancer.core.facts import Budget, Node, Pod, Requirement
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import (
    Fact,
    FactKind,
    FactObserved,
    HeartbeatHeard,
    Restored,
    SnapshotBegan,
    SnapshotEnded,
    TermBegan,
    TimePassed,
    VerdictGiven,
)
from rebalancer.core.telemetry import Heartbeat, Verdict
from rebalancer.core.units import Activity, Mode, OwnerClass
from tests.core import build

LENDING, TRAINING, LENT, EMPTY = 75, 50, 7, 9
NODES = LENDING + TRAINING
CLOSED_LOANS = 20
"""Loans of the last two days that are over, a block."""
HOUR = timedelta(hours=1)
WARM_UP = 25
"""Minutes watched before anything is measured: the dwell of spare GPUs is complete."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the fleet: its nodes and pods by what they do, as the events of the benchmark need them."""

    lending: str
    training: str
    busy: tuple[Node, ...]
    empty: tuple[Node, ...]
    lent: tuple[Node, ...]
    trainers: tuple[Node, ...]
    replicas: tuple[Pod, ...]
    gangs: tuple[Pod, ...]
    waiting: tuple[Pod, ...]
    budgets: tuple[Budget, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return (*self.busy, *self.empty, *self.lent, *self.trainers)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods."""
        return (*self.replicas, *self.gangs, *self.waiting)


def blocks(count: int, *, one_pool: bool = False) -> list[Block]:
    """The fleet in blocks of 125 nodes; ``one_pool``: all of them share one lending and one training pool."""
    return [_block(index, 0 if one_pool else index) for index in range(count)]


def policy(count: int, *, one_pool: bool = False) -> Policy:
    """The default policy for that many blocks; every lending pool acts and lends to training at any hour."""
    pools = range(1 if one_pool else count)
    lenders = [build.pool_policy(f"infer-{index}") for index in pools]
    trainers = [PoolPolicy(f"train-{index}", "A100", OwnerClass.TRAINING, Mode.ACT) for index in pools]
    return Policy({pool.name: pool for pool in (*lenders, *trainers)})


def warm(fleet: list[Block], chosen: Policy, minutes: int = WARM_UP) -> Engine:
    """An engine that knows the fleet, has watched it for a while, and published its first plans."""
    engine = Engine("bench", chosen)
    now = build.START
    engine.handle(TermBegan(1), now)
    engine.handle(Restored(tuple(_past(fleet)), (), (), (), (), synced=False, at=now), now)
    _snapshot(engine, "node", [node for part in fleet for node in part.nodes])
    _snapshot(engine, "pod", [pod for part in fleet for pod in part.pods])
    for part in fleet:
        for budget in part.budgets:
            engine.handle(FactObserved(budget, now), now)
    for verdict in _verdicts(fleet):
        engine.handle(VerdictGiven(verdict), now)
    for minute in range(minutes + 1):
        moment = now + timedelta(minutes=minute)
        engine.handle(HeartbeatHeard(Heartbeat("w", moment, (0,), len(fleet) * NODES, 0.0)), moment)
        engine.handle(TimePassed(), moment)
    return engine


def _snapshot(engine: Engine, of: FactKind, facts: list[Node] | list[Pod]) -> None:
    at = build.START
    engine.handle(SnapshotBegan(of, "s", at), at)
    for fact in facts:
        told: Fact = fact
        engine.handle(FactObserved(told, at), at)
    engine.handle(SnapshotEnded(of, "s", len(facts), at), at)


def _block(index: int, pool: int) -> Block:
    lending, training = f"infer-{pool}", f"train-{pool}"
    homes = [build.node(f"i{index:03}-{item:02}", lending) for item in range(LENDING)]
    trainers = [build.node(f"t{index:03}-{item:02}", training) for item in range(TRAINING)]
    # One loan of each block is due soon: it is on its way home under an open plan while events are measured.
    dues = [build.START + timedelta(minutes=WARM_UP + 10) + (item > 0) * 7 * HOUR for item in range(LENT)]
    lent = [
        build.lent(node, due=due, gang=f"ml-{index}/away-{node.name}") for node, due in zip(homes, dues, strict=False)
    ]
    busy = homes[LENT + EMPTY :]
    return Block(
        lending,
        training,
        tuple(busy),
        tuple(homes[LENT : LENT + EMPTY]),
        tuple(lent),
        tuple(trainers),
        tuple(_replicas(index, busy)),
        tuple(_gangs(index, lent, trainers)),
        tuple(_waiting(index, lending)),
        tuple(_budgets(index)),
    )


def _replicas(index: int, nodes: list[Node]) -> Iterator[Pod]:
    """Three replicas of 2 GPUs on most nodes, four on every third: some room is left at home."""
    for place, node in enumerate(nodes):
        for copy in range(4 if place % 3 == 0 else 3):
            name = f"chat-{index}-{place}-{copy}"
            pod = build.replica(name, on=node.name, gpus=2, started_at=build.START - HOUR, resource_version="1")
            yield replace(pod, node_terms=_at(node.pool))


def _at(pool: str) -> tuple[tuple[Requirement, ...], ...]:
    return ((Requirement("node-pool", "In", (pool,)),),)


def _gangs(index: int, lent: list[Node], trainers: list[Node]) -> Iterator[Pod]:
    space = f"ml-{index}"
    for node in lent:
        yield from _gang(space, f"away-{node.name}", [node])
    for first in range(0, len(trainers) - 2, 4):
        yield from _gang(space, f"home-{first}", trainers[first : first + 4])
    for node in trainers[-2:]:  # half taken: room that the scheduler can use without us
        yield from _gang(space, f"half-{node.name}", [node], gpus=4)


def _gang(space: str, name: str, nodes: list[Node], gpus: int = 8) -> Iterator[Pod]:
    pods = build.gang(f"{space}-{name}", len(nodes), on=[node.name for node in nodes], gpus=gpus)
    return (replace(pod, namespace=space, gang=f"{space}/{name}", workload=f"{space}/{name}") for pod in pods)


def _waiting(index: int, lending: str) -> Iterator[Pod]:
    space = f"ml-{index}"
    other = ((Requirement("gpu-model", "In", ("H100",)),),)
    yield build.replica(f"chat-{index}-next", gpus=2, node_terms=_at(lending))
    yield from build.gang(f"large-{index}", 32, namespace=space, gang=f"{space}/large")
    yield from build.gang(f"other-{index}", 2, namespace=space, gang=f"{space}/other", node_terms=other)
    yield from build.gang(f"fixed-{index}", 2, namespace=space, gang=f"{space}/fixed", reclaimable=False)


def _budgets(index: int) -> Iterator[Budget]:
    for name in ("large", "other"):
        yield build.budget(f"{name}-{index}", f"{name}-{index}", 32, namespace=f"ml-{index}")


def _verdicts(fleet: list[Block]) -> Iterator[Verdict]:
    since = build.START - HOUR
    for part in fleet:
        for node in part.nodes:
            idle = node in part.empty
            activity, level = (Activity.IDLE, 0.0) if idle else (Activity.BUSY, 3.0)
            yield Verdict(node.uid, activity, level, 8, since, build.START)


def _past(fleet: list[Block]) -> Iterator[Loan]:
    for number, part in enumerate(fleet):
        for item in range(CLOSED_LOANS):
            node = part.busy[item]
            closed = build.START - timedelta(hours=1 + item)
            yield Loan(
                f"past-{number}-{item}", node.uid, node.name, node.pool, OwnerClass.TRAINING, "ml/past", 8, Mode.ACT,
                LoanPhase.RETURNED, "plan-past", Because(Reason.CONFIRMED), closed - 2 * HOUR, closed, closed,
                build.OWNER_TAINT, closed - 2 * HOUR, closed, closed, 120.0,
            )  # fmt: skip
