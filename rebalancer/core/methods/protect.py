"""Protect: say loudly what is unknown, overdue, lost, split or squatted. It moves nothing.

Every alert is a function of the state at a moment: it is raised while its cause holds and cleared when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from rebalancer.core.books import order
from rebalancer.core.facts import Node
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.loans import Loan
from rebalancer.core.look import Look
from rebalancer.core.methods.refusals import refuses, stray
from rebalancer.core.plan import stable_id
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import bare
from rebalancer.core.units import Activity, Number, OwnerClass, seconds

CRITICAL = frozenset({Reason.OVERDUE, Reason.GANG_SPLIT, Reason.LOAN_LOST})
LOST_SHOWN = 100
"""Lost loans told at once per pool: bounded, the ledger has all."""


def alerts(state: State, look: Look, now: datetime) -> list[RaiseAlert]:
    """All alerts that stand for a pool now."""
    found = [
        *_loans(state, look, now),
        *_barred(state, look),
        *_complaints(state, look),
        *_telemetry(state, look, now),
        *_labels(state, look, now),
        *_strays(state, look, now),
        *_paced(state, look),
    ]
    return [_alert(state, look.pool, target, because, now) for target, because in found]


def policy_alert(state: State, now: datetime) -> list[RaiseAlert]:
    """The alert that stands while the last policy offered was refused."""
    if not state.refused_policy:
        return []
    because = Because(Reason.INVALID_POLICY, {"why": state.refused_policy})
    return [_alert(state, "", state.cluster, because, now)]


def _alert(state: State, pool: str, target: str, because: Because, now: datetime) -> RaiseAlert:
    key = stable_id(state.cluster, because.reason, target)
    standing = state.alerts.get(key)
    since = standing.since if standing is not None else now
    severity: Literal["warning", "critical"] = "critical" if because.reason in CRITICAL else "warning"
    return RaiseAlert(key, severity, target, pool, because, since)


def _loans(state: State, look: Look, now: datetime) -> Iterator[tuple[str, Because]]:
    for loan in _suspects(state, look, now):
        if loan.virtual:
            continue
        if now > loan.due:
            numbers: dict[str, Number] = {"node": loan.node_name, "overdue_seconds": seconds(now - loan.due)}
            yield loan.node_name, Because(Reason.OVERDUE, numbers)
        node = state.inventory.nodes.get(loan.node)
        for pod in state.lent_pods(node) if node is not None and node.loan is not None else ():
            if not pod.reclaimable:
                name = f"{pod.namespace}/{pod.name}"
                yield name, Because(Reason.SQUATTER, {"pod": name, "node": loan.node_name})
    lost = [loan for uid in state.lost if (loan := state.loans[uid]).lender == look.pool]
    for loan in lost[:LOST_SHOWN]:
        yield loan.node_name, Because(Reason.LOAN_LOST, {"node": loan.node_name})


def _suspects(state: State, look: Look, now: datetime) -> list[Loan]:
    """Open loans of the pool that are overdue or whose node has a guest who may not be evicted, in due order."""
    squatted = [state.loan_of[uid] for uid in state.inventory.shares.squatted if uid in state.loan_of]
    found = {loan.id: loan for loan in state.books(look.pool).overdue(now)}
    found |= {uid: state.loans[uid] for uid in squatted if state.loans[uid].lender == look.pool}
    return sorted(found.values(), key=order)


def _barred(state: State, look: Look) -> Iterator[tuple[str, Because]]:
    """Lent nodes that somebody closed to their borrowers again: told, and never fought over."""
    for uid in state.inventory.shares.barred:
        node, loan = state.inventory.nodes[uid], state.loans.get(state.loan_of.get(uid, ""))
        if loan is not None and loan.lender == look.pool and not loan.virtual:
            why = "its owner's taint was put back while it is lent"
            yield node.name, Because(Reason.CONTENDED, {"node": node.name, "why": why})


def _paced(state: State, look: Look) -> Iterator[tuple[str, Because]]:
    """Waiting pods whose nodes come home fewer at a time than they need."""
    paced = state.watches[look.pool].paced
    if paced is not None:
        yield look.pool, paced


def _complaints(state: State, look: Look) -> Iterator[tuple[str, Because]]:
    for told in state.complaints.values():
        if told.pool == look.pool:
            node = state.inventory.nodes.get(told.target)  # people know nodes by name
            yield (node.name if node is not None else told.target), told.because


def _telemetry(state: State, look: Look, now: datetime) -> Iterator[tuple[str, Because]]:
    if look.policy.owner is not OwnerClass.INFERENCE or not look.demand.blind:
        return
    known = [uid for uid in state.inventory.members.get(look.pool, ()) if uid in state.verdicts]
    if known and all(state.activity(uid, now) is Activity.UNKNOWN for uid in known):
        last = max(state.verdicts[uid].at for uid in known)
        yield look.pool, Because(Reason.TELEMETRY_SILENT, {"node": look.pool, "seconds": seconds(now - last)})


def _strays(state: State, look: Look, now: datetime) -> Iterator[tuple[str, Because]]:
    for uid, since in state.strays.items():
        node = state.inventory.nodes.get(uid)
        if node is not None and node.pool == look.pool and state.quarantined(uid) and now >= since.telling:
            yield node.name, stray(node)


def _labels(state: State, look: Look, now: datetime) -> Iterator[tuple[str, Because]]:
    odd, without = state.inventory.odd.get(look.pool, {}), state.watches[look.pool].bare
    for uid in [uid for uid in without if uid not in odd or not bare(state.inventory.nodes[uid])]:
        del without[uid]
    for uid in odd:
        node = state.inventory.nodes[uid]
        if node.quarantine:
            because = refuses(state, node, now)
            if because is not None:
                yield node.name, because
        elif bare(node) and _for_long(state, node, now):
            why = f"{node.capacity} GPUs, none allocatable" if node.capacity else "labelled for GPUs, none registered"
            yield node.name, Because(Reason.NODE_NOT_USABLE, {"node": node.name, "why": why})


def _for_long(state: State, node: Node, now: datetime) -> bool:
    """Whether a node has been without its GPUs for longer than a driver or a plugin takes to come up."""
    since = state.watches[node.pool].bare.setdefault(node.uid, now)
    stands = stable_id(state.cluster, Reason.NODE_NOT_USABLE, node.name) in state.alerts  # it did before a restart
    return stands or now - since >= state.policy.acting.quarantine_ttl
