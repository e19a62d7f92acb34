"""Makes the picture of a step from what an engine knows: nodes, pods, verdicts, pools, new plans.

Pure and cheap (one pass over nodes and the pods on them). Nothing of terminals, nothing that a decision reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from rebalancer.core.facts import Node, Pod
from rebalancer.core.instructions import PoolState
from rebalancer.core.inventory import Inventory
from rebalancer.core.plan import Plan
from rebalancer.core.reasons import sentence
from rebalancer.core.supply import in_order
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import CLOSING, ON_LOAN, Activity, NodeUid, OwnerClass, PoolName
from rebalancer.simulate.stepview import NodeSquare, RibbonSample, Standing, StepView, Told


def view_of(
    inventory: Inventory,
    verdicts: Mapping[NodeUid, Verdict],
    pools: Mapping[PoolName, PoolState],
    plans: Iterable[Plan],
    *,
    step: int,
    steps: int,
    started: datetime,
    moment: datetime,
) -> StepView:
    """The picture after a step; ``pools`` are the latest states by name, ``plans`` those made in this step."""
    ordered = tuple(pools[name] for name in sorted(pools, key=lambda name: (-pools[name].owned, name)))
    nodes = sorted(inventory.nodes.values(), key=lambda node: (node.pool, node.name))
    squares = tuple(square_of(node, pods_on(inventory, node), verdicts.get(node.uid)) for node in nodes)
    lending = [pool for pool in ordered if lends(pool)] or list(ordered)
    ribbon = RibbonSample(
        moment,
        owned=sum(pool.owned for pool in lending),
        lent=sum(pool.lent for pool in lending),
        demand=sum(pool.demand for pool in lending),
    )
    told = tuple(told_of(plan) for plan in plans)
    return StepView(step, steps, started, moment, ordered, squares, ribbon, told)


def lends(pool: PoolState) -> bool:
    """Whether a pool is one of those that lend: its picture says what keeps idle GPUs, or that some are lent."""
    return (
        pool.window_open or pool.lent > 0 or (bool(pool.idle_blockers) and "not-lending-pool" not in pool.idle_blockers)
    )


def pods_on(inventory: Inventory, node: Node) -> list[Pod]:
    """The pods bound to a node."""
    return [inventory.pods[uid] for uid in inventory.pods_on.get(node.name, {}) if uid in inventory.pods]


def square_of(node: Node, pods: Iterable[Pod], verdict: Verdict | None) -> NodeSquare:
    """A node's GPUs: held ones are busy; the rest is idle, or unknown while telemetry does not know."""
    held: Counter[OwnerClass] = Counter()
    for pod in pods:
        held[pod.owner] += pod.held
    size = node.gpus or node.capacity
    busy = min(sum(held.values()), size)
    dark = verdict is None or verdict.activity is Activity.UNKNOWN
    standing = standing_of(node)
    user = held.most_common(1)[0][0] if busy else _borrower(node) if standing is Standing.LENT else node.owner
    return NodeSquare(
        node.name, node.pool, user, standing, busy, 0 if dark else size - busy, size - busy if dark else 0
    )


def standing_of(node: Node) -> Standing:
    """Where a node stands, by its own taints and conditions."""
    keys = {taint.key for taint in node.taints}
    if not in_order(node):
        return Standing.AWAY
    if CLOSING in keys:
        return Standing.CLOSING
    return Standing.LENT if ON_LOAN in keys or node.loan is not None else Standing.HOME


def told_of(plan: Plan) -> Told:
    """A plan as people read it."""
    return Told(plan.id, plan.made_at, plan.pool, plan.method, sentence(plan.because))


def _borrower(node: Node) -> OwnerClass:
    return node.loan.borrower if node.loan is not None else OwnerClass.TRAINING
