"""One look at an inference pool: what it wants, what stands ready, who waits without room.

Methods decide from a look; taking it changes nothing but the pool's own short memory of spare GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rebalancer.core.demand import Demand, measured_gpus, ready_gpus, told_gpus
from rebalancer.core.facts import Node, Pod, Taint
from rebalancer.core.fit import Room, settle
from rebalancer.core.inventory import usable
from rebalancer.core.policy import PoolPolicy
from rebalancer.core.state import State
from rebalancer.core.units import CLOSING, ON_LOAN, PoolName, seconds


@dataclass(frozen=True, slots=True)
class Look:
    """A pool at one moment, in GPUs. ``unmet`` pods find no room at home nor on nodes already coming home.

    ``unmet_now`` are those that have no room at home, whatever is on its way.
    """

    pool: PoolName
    policy: PoolPolicy
    demand: Demand
    ready: int
    returning: int
    unmet: tuple[Pod, ...]
    unmet_now: tuple[Pod, ...]
    lendable: float
    """Spare GPUs, minimum over the dwell, less what is away already."""


def owner_taints(node: Node, taint: Taint | None) -> tuple[Taint, ...]:
    """The node's taints as they will be at home: ours off, the owner's on."""
    foreign = [item for item in node.taints if item.key not in (CLOSING, ON_LOAN) and item != taint]
    return (*foreign, taint) if taint is not None else tuple(foreign)


def home_room(state: State, node: Node) -> Room:
    """The room of a node at home as it is now."""
    return Room(node, state.inventory.free(node), node.taints, list(state.inventory.guests(node.name)))


def empty_room(node: Node, taint: Taint | None) -> Room:
    """The room of a node once it is home and empty."""
    return Room(node, node.gpus, owner_taints(node, taint))


def _unmet(state: State, pool: PoolName, waiting: list[Pod]) -> tuple[list[Pod], list[Pod]]:
    if not waiting:
        return [], []
    members = [state.inventory.nodes[uid] for uid in state.inventory.members.get(pool, ())]
    members.sort(key=lambda node: node.name)
    home = [home_room(state, node) for node in members if usable(node) and state.at_hand(node)]
    without_room = settle(waiting, home)
    coming = [
        empty_room(node, state.loans[state.loan_of[node.uid]].owner_taint)
        for node in members
        if node.uid in state.loan_of and state.in_return(node.uid)
    ]
    return settle(without_room, coming), without_room


def look(state: State, pool: PoolName, waiting: list[Pod], now: datetime) -> Look | None:
    """Look at a pool; None for pools that the policy does not know."""
    policy = state.pool_policy(pool)
    if policy is None:
        return None
    watch = state.watches[pool]
    totals = state.inventory.totals(pool)
    freshness = state.policy.activities.freshness
    measured = measured_gpus(watch, state.heartbeats, now, freshness)
    pending = sum(pod.gpus or 0 for pod in waiting)
    horizon = seconds(state.return_time(pool) + policy.cold_start)
    demand = Demand(
        requested=float(totals.held_by_owner + pending),
        measured=(measured or 0.0) / policy.target_utilisation,
        told=told_gpus(watch, now, freshness),
        pending=pending,
        held=totals.held_by_owner,
        headroom=watch.headroom.rise(horizon),
        blind=measured is None,
    )
    unmet, unmet_now = _unmet(state, pool, waiting)
    taken = {uid for uid in state.busy_nodes if uid not in state.loan_of} | {
        loan.node for loan in state.open_loans(pool) if not loan.virtual
    }
    ready = ready_gpus(state.inventory, pool, taken)
    virtual = state.virtually_away(pool)
    away = state.away_gpus(pool) - virtual
    watch.headroom.observe(demand.gpus, now)
    watch.spare.observe(ready + away - demand.gpus - demand.headroom, now)
    spare = watch.spare.minimum(now)
    lendable = (spare if spare is not None else 0.0) - state.away_gpus(pool)
    returning = state.returning_gpus(pool)
    return Look(pool, policy, demand, ready - virtual, returning, tuple(unmet), tuple(unmet_now), lendable)
