"""One look at an inference pool: what it wants, what stands ready, who waits without room.

Methods decide from a look; taking it changes nothing but the pool's own short memory of spare GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge

from rebalancer.core.books import Books
from rebalancer.core.demand import Demand, Placing, measured_gpus, told_gpus
from rebalancer.core.facts import Node, Pod, Taint
from rebalancer.core.fit import Room, placing_order, settle, takes
from rebalancer.core.policy import PoolPolicy
from rebalancer.core.state import State
from rebalancer.core.units import CLOSING, ON_LOAN, NodeUid, PoolName, seconds


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


def _unmet(state: State, pool: PoolName, waiting: Sequence[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Who finds no room at home nor on nodes on their way there, and who finds none at home now."""
    watch, changed = state.watches[pool], state.inventory.rooms.pop(pool, {})
    if not waiting:
        watch.placing = None
        return (), ()
    books, known = state.books(pool), watch.placing
    key = (waiting, books, state.hands)
    if known is None or not _same(known.key, key) or not _stands(state, known, changed):
        known = watch.placing = _placed(state, pool, waiting, key)
    return known.unmet, known.left


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Whether two keys hold the same objects and equal counts (comparing pods by value would cost what it saves)."""
    return one[0] is other[0] and one[1] is other[1] and one[2:] == other[2:]


def _stands(state: State, known: Placing, changed: Mapping[NodeUid, bool]) -> bool:
    """Whether placing anew would end the same, though the rooms of these nodes changed (True: may have grown).

    A node that took nobody and did not grow still takes nobody. One that grew is not reached as long as all find
    room on nodes before it in the order of names.
    """
    for uid, grew in changed.items():
        if uid in known.used:
            return False
        node = state.inventory.nodes.get(uid)
        if grew and (known.left or node is None or node.name <= known.last):
            return False
    return True


def _placed(state: State, pool: PoolName, waiting: Sequence[Pod], key: tuple[object, ...]) -> Placing:
    used: dict[NodeUid, Room] = {}
    left = _without_room(state, pool, waiting, used)
    unmet = settle(left, _coming(state, state.books(pool))) if left else []
    last = max((room.node.name for room in used.values()), default="")
    return Placing(key, tuple(left), tuple(unmet), frozenset(used), last)


def _coming(state: State, books: Books) -> list[Room]:
    rooms = []
    for uid in books.coming:
        loan = state.arrivals.loan(uid) or state.loans[state.loan_of[uid]]
        rooms.append(empty_room(state.inventory.nodes[uid], loan.owner_taint))
    return rooms


def _without_room(state: State, pool: PoolName, waiting: Sequence[Pod], used: dict[NodeUid, Room]) -> list[Pod]:
    """Place each pod for itself, largest first, on the first node at home that takes it; who is left over."""
    shelves = state.inventory.shares.shelves.get(pool, {})
    left: list[Pod] = []
    before: Pod | None = None
    fitting: Iterator[tuple[str, NodeUid]] = iter(())
    at: tuple[str, NodeUid] | None = None
    for pod in placing_order(waiting):
        if before is None or not _alike(pod, before):
            fitting = merge(*(shelf for free, shelf in sorted(shelves.items()) if free >= (pod.gpus or 0)))
            at = next(fitting, None)
        before = pod
        # Rooms only fill up: what refused a pod refuses all that are like it, so that they go on where it stopped.
        while at is not None and not _takes(state, at[1], pod, used):
            at = next(fitting, None)
        if at is None:
            left.append(pod)
    return left


def _alike(one: Pod, other: Pod) -> bool:
    """Whether two pods fit into the same rooms."""
    return (
        one.gpus == other.gpus
        and one.node_terms == other.node_terms
        and one.tolerations == other.tolerations
        and one.anti_affinity == other.anti_affinity
        and one.namespace == other.namespace
        and one.labels == other.labels
    )


def _takes(state: State, uid: NodeUid, pod: Pod, used: dict[NodeUid, Room]) -> bool:
    room = used.get(uid)
    if room is None:
        node = state.inventory.nodes[uid]
        if not state.at_hand(node):
            return False
        room = home_room(state, node)
    if not takes(room, pod):
        return False
    room.free -= pod.gpus or 0
    room.guests.append(pod)
    used[uid] = room
    return True


def look(state: State, pool: PoolName, waiting: Sequence[Pod], now: datetime) -> Look | None:
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
    books = state.books(pool)
    ready, virtual = books.ready, books.virtual
    away = books.gpus + books.arriving - virtual
    if state.complete(now):  # a picture that fills teaches no rise, and half of one proves nothing spare
        watch.headroom.observe(demand.gpus, now)
        watch.spare.observe(ready + away - demand.gpus - demand.headroom, now)
    spare = watch.spare.minimum(now)
    lendable = (spare if spare is not None else 0.0) - books.gpus
    return Look(pool, policy, demand, ready - virtual, books.returning + books.arriving, unmet, unmet_now, lendable)
