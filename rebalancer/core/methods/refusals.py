"""Why a node may not be lent, whoever would borrow it: the first of its own reasons, in a fixed order.

Asked for every empty node and told per node; what a pool or a borrower has against a loan is told elsewhere.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.facts import Node
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import usable
from rebalancer.core.units import Activity, Number, seconds


def refuses(state: State, node: Node, now: datetime) -> Because | None:
    """Why this node may not be lent now, whoever would borrow it; None if it may."""
    return (
        _unusable(state, node)
        or _occupied(state, node)
        or _telemetry_refuses(state, node, now)
        or _resting(state, node, now)
    )


def _unusable(state: State, node: Node) -> Because | None:
    name: dict[str, Number] = {"node": node.name}
    if node.quarantine:
        return Because(Reason.LABEL_CONFLICT, {**name, "why": node.quarantine})
    if node.stray:
        return stray(node) if state.quarantined(node.uid) else Because(Reason.IN_TRANSIT, name)
    if not usable(node):
        return Because(Reason.NODE_NOT_USABLE, {**name, "why": "not ready, cordoned or starting"})
    if node.divided:
        return Because(Reason.NODE_NOT_USABLE, {**name, "why": "its GPUs are divided"})
    return _withheld(state, node) or (None if state.at_home(node) else Because(Reason.IN_TRANSIT, name))


def _withheld(state: State, node: Node) -> Because | None:
    """Whether people keep the node out of it: by the node's own mark, or by a recall that stands."""
    if node.opted_out:
        return Because(Reason.OPTED_OUT, {"target": node.name})
    control = state.inventory.control
    if node.name not in control.recall_nodes:
        return None
    return Because(Reason.OPERATOR_RECALL, {"by": control.by or "control", "target": node.name})


def stray(node: Node) -> Because:
    """What is wrong with a node that bears something of ours without a mark of its own."""
    why = "no loan is marked on it" if node.loan is None else "its mark belongs to another node"
    return Because(Reason.NODE_QUARANTINED, {"node": node.name, "why": why})


def _occupied(state: State, node: Node) -> Because | None:
    if state.inventory.nominated.get(node.name):
        return Because(Reason.NOMINATED, {"node": node.name})
    if state.inventory.held(node) > 0:
        return Because(Reason.HELD, {"held_gpus": state.inventory.held(node)})
    unread = sorted(f"{pod.namespace}/{pod.name}" for pod in state.inventory.guests(node.name) if pod.gpus is None)
    return Because(Reason.GPU_COUNT_UNKNOWN, {"pod": unread[0]}) if unread else None


def _telemetry_refuses(state: State, node: Node, now: datetime) -> Because | None:
    verdict = state.verdicts.get(node.uid)
    activity = state.activity(node.uid, now)
    if verdict is None or activity is Activity.UNKNOWN:
        why = (verdict.why or "stale") if verdict is not None else "no sample yet"
        return Because(Reason.TELEMETRY_UNKNOWN, {"node": node.name, "why": why})
    if verdict.unhealthy:
        return Because(Reason.NODE_NOT_USABLE, {"node": node.name, "why": f"XID {verdict.unhealthy[0]}"})
    if activity is Activity.BUSY:
        return Because(Reason.BUSY)
    dwell = state.policy.activities.dwell
    if now - verdict.since < dwell:
        idle: dict[str, Number] = {
            "idle_minutes": seconds(now - verdict.since) // 60,
            "dwell_minutes": seconds(dwell) // 60,
        }
        return Because(Reason.NOT_IDLE_LONG_ENOUGH, idle)
    return None


def _resting(state: State, node: Node, now: datetime) -> Because | None:
    since, dwell = state.home_since.get(node.uid), state.policy.activities.dwell
    if since is None or now - since >= dwell:
        return None
    numbers: dict[str, Number] = {
        "node": node.name,
        "minutes": seconds(now - since) // 60,
        "dwell_minutes": seconds(dwell) // 60,
    }
    return Because(Reason.RESTING, numbers)
