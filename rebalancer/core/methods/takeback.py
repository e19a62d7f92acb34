"""How a set of homecomings becomes the steps of one plan: close, evict whole gangs, restore, in that order.

Shared by reclaim and return, which differ only in why and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rebalancer.core.plan import CloseNode, EvictGang, RestoreNode, Step
from rebalancer.core.reasons import Because
from rebalancer.core.state import State
from rebalancer.core.victims import Casualty, Homecoming, eviction, lost_work


def steps(
    state: State,
    comings: Sequence[Homecoming],
    because: Because,
    *,
    now: datetime,
    not_before: datetime,
    deadline: datetime,
) -> tuple[Step, ...]:
    """Steps for these nodes; a gang that stands in the way of several is evicted once, whole if any wants it whole."""
    closes: list[Step] = [CloseNode(item.loan.id, item.node.uid, item.node.name) for item in comings]
    restores: list[Step] = [RestoreNode(item.loan.id, item.node.uid, item.node.name, item.loan.due) for item in comings]
    evicts: list[EvictGang] = [
        eviction(state, victim, not_before, deadline, because) for victim in merged(state, comings, now)
    ]
    return (*closes, *evicts, *restores)


def merged(state: State, comings: Sequence[Homecoming], now: datetime) -> list[Casualty]:
    """One casualty a gang. Shrinkings of one gang on several nodes add up; below its minimum the whole gang goes."""
    found: dict[str, Casualty] = {}
    for victim in (victim for coming in comings for victim in coming.casualties):
        known = found.get(victim.gang)
        found[victim.gang] = victim if known is None else _joined(state, known, victim, now)
    return list(found.values())


def _joined(state: State, one: Casualty, other: Casualty, now: datetime) -> Casualty:
    if one.whole or other.whole:
        return one if one.whole else other
    members = tuple({pod.uid: pod for pod in (*one.members, *other.members)}.values())
    bound = [pod for pod in state.inventory.gang_pods(one.gang) if pod.node and not pod.terminal]
    live = [pod for pod in bound if pod.deleting_at is None]
    if len(live) - len(members) < state.least_members(one.gang, live):
        return Casualty(one.gang, tuple(live), whole=True, lost_gpu_seconds=lost_work(live, now), patience=one.patience)
    lost = lost_work(members, now)
    return Casualty(one.gang, members, whole=False, lost_gpu_seconds=lost, patience=one.patience)
