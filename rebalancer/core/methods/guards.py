"""The guard table of DESIGN 5: what may stop which action, and with which reason.

Lend and load-driven reclaim are stopped by anything that is unknown, incomplete, capped or braked; reclaim for
pending inference pods and scheduled returns are only paced, so that doubt always falls on inference's side.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.look import Look
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.units import PoolName


def _incomplete(state: State, now: datetime) -> Because | None:
    if state.complete(now):
        return None
    return Because(Reason.CATCHING_UP, {"lag_seconds": round(state.lag_seconds, 1)})


def _braked(state: State, pool: PoolName) -> Because | None:
    return Because(Reason.PAUSED, {"by": state.inventory.control.by or "policy"}) if state.paused(pool) else None


def _capped(state: State, pool: PoolName, now: datetime) -> Because | None:
    if state.room_in_caps(pool, now) > 0:
        return None
    pace = state.policy.pace
    if sum(count for _, name, count in state.touched if name == pool) >= pace.nodes_per_pool:
        return Because(Reason.CAP, {"cap": pace.nodes_per_pool, "what": f"nodes of {pool}"})
    return Because(Reason.CAP, {"cap": pace.nodes_per_cluster, "what": "nodes of the cluster"})


def _recalled(state: State, pool: PoolName) -> Because | None:
    """A recall that stands: what is lent now would be called home at once."""
    control = state.inventory.control
    if not control.recall_all and pool not in control.recall_pools:
        return None
    target = "all" if control.recall_all else pool
    return Because(Reason.OPERATOR_RECALL, {"by": control.by or "control", "target": target})


def stops_lend(state: State, look: Look, now: datetime) -> Because | None:
    """Why nothing of this pool may be lent now, or None (telemetry is judged per node)."""
    braked = _braked(state, look.pool) or _recalled(state, look.pool)
    return _incomplete(state, now) or braked or _capped(state, look.pool, now)


def stops_load_reclaim(state: State, look: Look, now: datetime) -> Because | None:
    """Why a rising load alone may not bring nodes home now, or None."""
    if look.demand.blind:
        return Because(Reason.TELEMETRY_UNKNOWN, {"node": look.pool, "why": "no fresh verdict"})
    return _incomplete(state, now) or _braked(state, look.pool) or _capped(state, look.pool, now)


def stops_pending_reclaim(state: State, look: Look, now: datetime) -> Because | None:
    """Why waiting inference pods may not bring nodes home now, or None. Caps only pace (see the method)."""
    held_back = None if state.policy.pace.recall_while_paused else _braked(state, look.pool)
    return _incomplete(state, now) or held_back


def stops_return(state: State, look: Look, now: datetime) -> Because | None:
    """Why a loan that falls due may not come home now, or None: only a pause that says so; act verifies live."""
    del now
    return None if state.policy.pace.recall_while_paused else _braked(state, look.pool)
