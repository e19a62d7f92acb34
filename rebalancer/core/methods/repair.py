"""Repair: a node that bears our taint and no mark of its own is made its owner's again, after a while.

The while is for whoever is at work there, and for marks that are still on their way. Nobody is evicted for it: a
node that somebody else uses keeps its alert until a person has looked.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rebalancer.core.facts import Node, Taint
from rebalancer.core.look import Look
from rebalancer.core.methods.refusals import stray
from rebalancer.core.plan import Method, RestoreNode
from rebalancer.core.state import State
from rebalancer.core.underway import Draft
from rebalancer.core.units import Mode


def propose(state: State, look: Look, now: datetime) -> Iterator[Draft]:
    """One draft for the strays of this pool whose time is over, as many as a plan may touch."""
    control = state.inventory.control
    held = control.paused or look.pool in control.paused_pools
    if held or not state.complete(now) or state.mode(look.pool) is not Mode.ACT:
        return
    nodes = [state.inventory.nodes[uid] for uid in state.strays if uid in state.inventory.nodes]
    found = sorted((node for node in nodes if _ripe(state, look, node, now)), key=lambda node: node.name)
    found = found[: state.policy.pace.nodes_per_pool]
    if found:
        steps = tuple(RestoreNode("", node.uid, node.name, now, _lacking(look, node)) for node in found)
        yield Draft(look.pool, Method.RETURN, stray(found[0]), steps)


def _ripe(state: State, look: Look, node: Node, now: datetime) -> bool:
    since = state.strays[node.uid].since
    over = now - since >= state.policy.acting.quarantine_ttl
    return node.pool == look.pool and over and state.quarantined(node.uid) and _its_owners(state, node)


def _its_owners(state: State, node: Node) -> bool:
    return all(pod.owner is node.owner for pod in state.lent_pods(node))


def _lacking(look: Look, node: Node) -> Taint | None:
    taint = look.policy.owner_taint
    known = {(item.key, item.effect) for item in node.taints}
    return None if taint is None or (taint.key, taint.effect) in known else taint
