"""The public picture of a pool: GPUs by state, and idle GPUs by what keeps them from being lent.

Derived from the state whenever it is published; nothing here decides or is decided upon.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from rebalancer.core.facts import Node
from rebalancer.core.instructions import PoolMemory, PoolState
from rebalancer.core.look import Look
from rebalancer.core.methods.lend import due_time, floor_nodes, terms_of
from rebalancer.core.methods.refusals import refuses
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import usable
from rebalancer.core.units import Activity, OwnerClass, seconds

HOUR = 3600.0
LONGEST_STEP = timedelta(minutes=5)
"""Accumulated hours never credit more than this for one gap between two looks."""


def picture(state: State, look: Look, now: datetime) -> PoolState:
    """The pool now; accumulates idle GPU-hours by blocker since the last picture of the same UTC day."""
    pool, watch, totals = look.pool, state.watches[look.pool], state.inventory.totals(look.pool)
    nodes = [state.inventory.nodes[uid] for uid in state.inventory.members.get(pool, ())]
    sums = dict.fromkeys(Activity, 0)
    for node in nodes:
        if node.loan is None and usable(node):
            sums[state.activity(node.uid, now)] += node.gpus
    blockers = _blockers(state, look, nodes, now)
    _accumulate(state, look, blockers, now)
    watch.occupancy.observe(totals.held / totals.owned if totals.owned else 0.0, now)
    loans = state.open_loans(pool)
    return PoolState(
        pool=pool,
        at=now,
        owned=totals.owned,
        busy=sums[Activity.BUSY],
        idle=sums[Activity.IDLE],
        unknown=sums[Activity.UNKNOWN],
        unhealthy=totals.unusable,
        held=totals.held,
        free=sum(state.inventory.free(node) for node in nodes if node.loan is None and usable(node)),
        pending=look.demand.pending,
        releasing=totals.releasing,
        lent=sum(loan.gpus for loan in loans if not loan.virtual),
        borrowed=totals.borrowed,
        demand=round(look.demand.gpus, 3),
        headroom=round(look.demand.headroom, 3),
        nodes=totals.nodes,
        lent_nodes=sum(not loan.virtual for loan in loans),
        floor_nodes=floor_nodes(state, look.policy),
        mode=state.mode(pool).value,
        window_open=bool(look.policy.windows) and not isinstance(due_time(state, look.policy, now), Because),
        idle_blockers=blockers,
        idle_gpu_hours={key: round(value, 4) for key, value in sorted(watch.idle_hours.items())},
        occupancy={name: round(value, 4) for name, value in _occupancy(state, look, now).items()},
        shadow={
            "gpu_hours_lent": round(watch.shadow_lent, 4),
            "gpu_hours_missed": round(watch.shadow_missed, 4),
        },
    )


def _occupancy(state: State, look: Look, now: datetime) -> dict[str, float]:
    rolling = state.watches[look.pool].occupancy
    spans = {"1m": timedelta(minutes=1), "10m": timedelta(minutes=10), "1h": timedelta(hours=1)}
    means = {name: rolling.mean(span, now) for name, span in spans.items()}
    return {name: value for name, value in means.items() if value is not None}


def _blockers(state: State, look: Look, nodes: list[Node], now: datetime) -> dict[str, int]:
    found: dict[str, int] = {}
    pool_wide = _pool_wide(state, look, now)
    for node in nodes:
        free = state.inventory.free(node)
        if node.loan is None and usable(node) and free > 0:
            reason = pool_wide or _of_node(state, look, node, now)
            found[reason.value] = found.get(reason.value, 0) + free
    return dict(sorted(found.items()))


def _pool_wide(state: State, look: Look, now: datetime) -> Reason | None:
    if not look.policy.lends_to:
        return Reason.NOT_LENDING_POOL
    terms = terms_of(state, look, now)
    return terms.reason if isinstance(terms, Because) else None


def _of_node(state: State, look: Look, node: Node, now: datetime) -> Reason:
    refusal = refuses(state, node, now)
    if refusal is not None:
        return refusal.reason
    if look.lendable < node.gpus:
        return Reason.HEADROOM
    borrower = state.watches[look.pool].borrower
    return borrower.reason if borrower is not None else Reason.NO_ELIGIBLE_BORROWER


def _accumulate(state: State, look: Look, blockers: dict[str, int], now: datetime) -> None:
    watch, day = state.watches[look.pool], now.date().isoformat()
    if watch.idle_day != day:
        watch.idle_day, watch.idle_hours = day, {}
    if watch.last_published is not None:
        hours = seconds(min(now - watch.last_published, LONGEST_STEP)) / HOUR
        for reason, gpus in blockers.items():
            watch.idle_hours[reason] = watch.idle_hours.get(reason, 0.0) + gpus * hours


def account(state: State, look: Look, now: datetime) -> None:
    """Charge shortage to the headroom's integral loop and hindsight to the shadow ledger since the last look."""
    watch, before = state.watches[look.pool], state.watches[look.pool].accounted
    watch.accounted = now
    if before is None or now <= before or look.policy.owner is not OwnerClass.INFERENCE:
        return
    span = seconds(min(now - before, LONGEST_STEP))
    virtual = state.virtually_away(look.pool)
    missing = sum(pod.gpus or 0 for pod in look.unmet_now)
    away = state.away_gpus(look.pool) - virtual
    shortage = float(min(missing, away)) * span
    watch.headroom.account(shortage, look.demand.gpus * span, budget_of(state, look))
    watch.shadow_lent += virtual * span / HOUR
    watch.shadow_missed += min(float(virtual), max(0.0, look.demand.gpus - look.ready)) * span / HOUR


def budget_of(state: State, look: Look) -> float:
    """The shortage budget in force: the policy's, else 0.01 % for returns up to 3 minutes and 0.1 % beyond."""
    if look.policy.shortage_budget is not None:
        return look.policy.shortage_budget
    return 1e-4 if state.return_time(look.pool) <= timedelta(minutes=3) else 1e-3


def memory(state: State, pool: str, now: datetime) -> PoolMemory:
    """What headroom has learnt, for the forecast topic and the next restart."""
    watch = state.watches[pool]
    learnt = watch.headroom.memory(pool, now, tuple(state.returns.get(pool, ())))
    return replace(learnt, rising_since=watch.rising_since, usage=state.usage.memory(pool))
