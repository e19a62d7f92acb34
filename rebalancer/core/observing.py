"""How objects that are seen, gone or listed change the state, and which pools deserve a new look because of it.

Handlers answer with those pools (None: all of them) and the instructions that follow at once. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rebalancer.core import ledger, marks
from rebalancer.core.demand import Homes
from rebalancer.core.facts import Control, Node, Pod
from rebalancer.core.instructions import AskSnapshot, Instruction
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.stimuli import (
    FactDeleted,
    FactObserved,
    SnapshotBegan,
    SnapshotEnded,
    kind_of,
)
from rebalancer.core.units import OwnerClass, PoolName

Touched = Iterable[PoolName] | None
Effect = tuple[Touched, list[Instruction]]


def observed(state: State, stimulus: FactObserved, homes: Homes) -> Effect:
    """An object was added or changed."""
    fact = stimulus.fact
    state.seen(kind_of(fact), fact.uid)
    before = state.inventory.pods.get(fact.uid) if isinstance(fact, Pod) else None
    namesake = state.inventory.node_named(fact.name) if isinstance(fact, Node) else None
    if not state.inventory.observe(fact, stimulus.at):
        return (), []
    if isinstance(fact, Pod):
        return _pools_of(state, fact, before, homes), []
    if isinstance(fact, Node):
        replaced = namesake if namesake is not None and namesake.uid != fact.uid else None
        records = _gone(state, replaced, stimulus.at)[1] + marks.node_seen(state, fact, stimulus.at)
        count(state, fact)
        watch = state.watches.get(fact.pool)
        if watch is not None:
            watch.headroom.capacity = state.inventory.totals(fact.pool).owned
        return (fact.pool,), records
    approved = fact.approved if isinstance(fact, Control) else ()
    return None, [published for plan_id in approved for published in ledger.approve(state, plan_id)]


def _pools_of(state: State, pod: Pod, before: Pod | None, homes: Homes) -> set[PoolName]:
    pools: set[PoolName] = set()
    for version in (pod, before):
        if version is None:
            continue
        node = state.inventory.node_named(version.node) if version.node else None
        if node is not None:
            pools.add(node.pool)
        elif version.owner is OwnerClass.INFERENCE:
            home = homes.of(version, state.inventory, state.policy)
            pools |= {home} if home is not None else set()
        elif version.pending:
            pools |= {name for name, pool in state.policy.pools.items() if version.owner in pool.lends_to}
    return pools


def count(state: State, node: Node) -> None:
    """Let the node's verdict count towards its owner's measured demand while it is at home."""
    watch = state.watches.get(node.pool)
    if watch is not None:
        home = node.loan is None and node.uid not in state.loan_of
        watch.count(node.uid, state.verdicts.get(node.uid) if home else None)


def deleted(state: State, stimulus: FactDeleted, now: datetime) -> Effect:
    """An object is gone."""
    del now
    return _gone(state, state.inventory.delete(stimulus.of, stimulus.uid), stimulus.at)


def _gone(state: State, fact: object, at: datetime) -> Effect:
    if isinstance(fact, Node):
        watch = state.watches.get(fact.pool)
        if watch is not None:
            watch.count(fact.uid, None)
            watch.headroom.capacity = state.inventory.totals(fact.pool).owned
        return (fact.pool,), marks.node_gone(state, fact.uid, at)
    if isinstance(fact, Pod):
        node = state.inventory.node_named(fact.node) if fact.node else None
        return ((node.pool,) if node is not None else None), []
    return (None if fact is not None else ()), []


def snapshot_began(state: State, stimulus: SnapshotBegan, now: datetime) -> Effect:
    """A full listing of a kind begins: what it does not name by its end is gone."""
    del now
    state.snapshots[stimulus.of] = (stimulus.snapshot, {})
    state.listing_since.setdefault(stimulus.of, stimulus.at)
    return (), []


def snapshot_ended(state: State, stimulus: SnapshotEnded, now: datetime) -> Effect:
    """A listing is over; one of which a part was missed is asked for again."""
    del now
    snapshot, seen = state.snapshots.pop(stimulus.of, ("", {}))
    if snapshot != stimulus.snapshot or len(seen) < stimulus.count:
        why = Because(Reason.CATCHING_UP, {"lag_seconds": state.lag_seconds})
        return (), [AskSnapshot(stimulus.of, why)]
    records: list[Instruction] = []
    for uid in [uid for uid in state.inventory.uids(stimulus.of) if uid not in seen]:
        records += _gone(state, state.inventory.delete(stimulus.of, uid), stimulus.at)[1]
    state.synced[stimulus.of] = True
    state.listing_since.pop(stimulus.of, None)
    return None, records
