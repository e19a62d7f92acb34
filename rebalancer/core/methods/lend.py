"""Lend: give idle nodes to waiting gangs, for as long as the window lasts.

A node is lent when it has been idle by proof over the dwell, is above the floor, inside the window, and a named
gang that could be taken back would run on it for longer than its minimum run time and the return. A gang that
needs several nodes gets all of its loans or none. Why a node is not lent is kept per node.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rebalancer.core import borrowers
from rebalancer.core.facts import Node, Taint
from rebalancer.core.fit import Room, place
from rebalancer.core.gangs import Borrower
from rebalancer.core.look import Look
from rebalancer.core.methods import guards
from rebalancer.core.methods.refusals import refuses
from rebalancer.core.methods.search import Search, elsewhere_of
from rebalancer.core.plan import Alternative, LendNode, Method, stable_id
from rebalancer.core.policy import PoolPolicy
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.underway import Draft
from rebalancer.core.units import CLOSING, GangId, Number, OwnerClass, seconds
from rebalancer.core.windows import opening

TOLD = 8
"""Alternatives told per plan: enough to believe the choice, bounded."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What lending may take now: whole nodes and GPUs, and until when."""

    due: datetime
    nodes: int
    gpus: float


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes for one gang, on what terms, and when it was made."""

    nodes: tuple[Node, ...]
    terms: Terms
    now: datetime


def propose(state: State, look: Look, now: datetime) -> Iterator[Draft]:
    """One draft per gang that can be helped with nodes of this pool."""
    if not look.policy.lends_to:
        return
    terms = terms_of(state, look, now)
    if isinstance(terms, Because):
        state.watches[look.pool].refusal = terms
        return
    watch = state.watches[look.pool]
    watch.refusal = None
    search = Search(state, look, (terms.nodes, terms.gpus), now)
    if search.known_fruitless():
        return
    candidates = _candidates(search)
    found = 0
    for draft in _matches(search, terms, candidates) if candidates else ():
        found += 1
        yield draft
    if not found:
        search.remember()


def terms_of(state: State, look: Look, now: datetime) -> Terms | Because:
    """How much may be lent and until when, or the pool-wide reason why nothing may."""
    stopped = guards.stops_lend(state, look, now)
    if stopped is not None:
        return stopped
    due = due_time(state, look.policy, now)
    if isinstance(due, Because):
        return due
    if look.unmet_now:
        return Because(Reason.HEADROOM, {"pool": look.pool, "headroom_gpus": round(look.demand.headroom, 2)})
    away = len(state.books(look.pool).loans)
    floor = floor_nodes(state, look.policy)
    above = state.inventory.totals(look.pool).nodes - floor - away
    if above <= 0:
        return Because(Reason.FLOOR, {"pool": look.pool, "floor_nodes": floor})
    loans = len(state.loan_of)
    most = state.policy.pace.loans_limit(state.inventory.control.max_loans)
    if loans >= most:
        return Because(Reason.CAP, {"cap": most, "what": "open loans"})
    return Terms(due, min(above, state.room_in_caps(look.pool, now), most - loans), look.lendable)


def floor_nodes(state: State, policy: PoolPolicy) -> int:
    """Nodes never lent: the larger of the fixed number and the share, rounded up."""
    nodes = state.inventory.totals(policy.name).nodes
    return max(policy.floor_nodes, math.ceil(policy.floor_share * nodes - 1e-9))


def due_time(state: State, policy: PoolPolicy, now: datetime) -> datetime | Because:
    """When a loan opened now would be due, or why it would not last (half-open windows; `always` ends by maxLoan)."""
    opened = opening(policy.windows, now)
    if opened is None:
        return Because(Reason.WINDOW_CLOSED, {"pool": policy.name})
    limit = now + state.policy.borrowing.max_loan
    due = limit if opened.closes_at is None else opened.closes_at
    need = state.policy.borrowing.min_runtime + state.return_time(policy.name)
    if due - now <= need:
        return Because(Reason.WINDOW_CLOSING, {"remaining_minutes": seconds(due - now) // 60})
    return due


def _empty(state: State, pool: str) -> list[Node]:
    nodes = [state.inventory.nodes[uid] for uid in state.inventory.shares.empty.get(pool, ())]
    return sorted(nodes, key=lambda node: node.name)


def _candidates(search: Search) -> list[Node]:
    """Nodes that may be lent now, by name; the search holds until time alone makes another one ready."""
    state, now, found = search.state, search.now, []
    dwell = state.policy.activities.dwell
    for node in _empty(state, search.look.pool):
        if refuses(state, node, now) is None:
            found.append(node)
            continue
        verdict, rested = state.verdicts.get(node.uid), state.home_since.get(node.uid)
        search.wake(verdict.since + dwell if verdict is not None else None)
        search.wake(rested + dwell if rested is not None else None)
    return found


def _matches(search: Search, terms: Terms, candidates: Sequence[Node]) -> Iterator[Draft]:
    state, look, now = search.state, search.look, search.now
    elsewhere, promised = [*elsewhere_of(state), *_opening(state)], _promised(state)
    lent: list[Room] = []
    nodes_left, gpus_left = terms.nodes, terms.gpus
    passed: list[Alternative] = []
    free = list(candidates)
    for who in borrowers.waiting_gangs(state, look.policy.lends_to):
        if who.gang in promised:
            place(who.pods, elsewhere)  # whoever comes after it finds what it leaves
            continue
        if nodes_left <= 0 or not free:
            return
        why = search.refused(who) or _too_late(state, who, terms, now)
        if why is None and place(who.pods, [*elsewhere, *lent]) is not None:
            search.used_elsewhere = True
            continue
        found = why if why is not None else _rooms_for(look, who, free, lent, (nodes_left, gpus_left))
        if isinstance(found, Because):
            passed.append(Alternative(who.gang, found))
            state.watches[look.pool].borrower = found
            continue
        taken = {room.node.uid for room in found}
        free = [node for node in free if node.uid not in taken]
        nodes_left -= len(found)
        gpus_left -= sum(room.node.gpus for room in found)
        lent += found
        state.watches[look.pool].borrower = None
        offer = Offer(tuple(room.node for room in found), terms, now)
        yield _draft(look, who, offer, tuple(passed[-TOLD:]), state)


def _promised(state: State) -> set[GangId]:
    """Gangs with a loan whose node does not bear its mark, yet or in shadow ever: they are helped already."""
    nodes = state.inventory.nodes
    return {loan.gang for loan in state.open_loans() if loan.node in nodes and nodes[loan.node].loan is None}


def _opening(state: State) -> Iterator[Room]:
    """Nodes that are about to be lent.

    The scheduler gives an open node to any gang that fits, not to whom it was meant for: a gang whose room was taken
    so goes to where the other one's will be, instead of being lent to once more.
    """
    for loan in state.open_loans():
        node, policy = state.inventory.nodes.get(loan.node), state.pool_policy(loan.lender)
        if node is not None and policy is not None and node.loan is None and not loan.virtual:
            yield Room(node, node.gpus, lent_taints(node, policy, loan.borrower))


def _too_late(state: State, who: Borrower, terms: Terms, now: datetime) -> Because | None:
    """Whether this gang would have to begin leaving before its minimum run time is over."""
    if terms.due - now > state.policy.borrowing.min_runtime + who.leave:
        return None
    return Because(Reason.WINDOW_CLOSING, {"remaining_minutes": seconds(terms.due - now) // 60})


def _rooms_for(
    look: Look, who: Borrower, free: Sequence[Node], lent: list[Room], left: tuple[int, float]
) -> list[Room] | Because:
    """The nodes to lend for a gang (fewest first fit), or why there are none."""
    cls = who.pods[0].owner
    rooms: list[Room] = []
    last, (nodes, gpus) = Because(Reason.NO_ELIGIBLE_BORROWER, {"why": "no node"}), left
    for node in free:
        taints = lent_taints(node, look.policy, cls)
        why = borrowers.mismatch(who, node, taints)
        if why is not None:
            last = why
            continue
        rooms.append(Room(node, node.gpus, taints))
        if len(rooms) > nodes or sum(room.node.gpus for room in rooms) > gpus:
            break  # one more than may be lent says all that matters about the rest
    if not rooms:
        return last
    sums = itertools.accumulate(room.node.gpus for room in rooms)
    allowed = [room for room, total in zip(rooms, sums, strict=True) if total <= gpus][: max(0, nodes)]
    if place(who.pods, [*lent, *allowed]) is None:
        needed = math.ceil(who.gpus / max(1, rooms[0].node.gpus))
        if len(allowed) < min(len(rooms), nodes):  # GPUs ran out before nodes did; floor and caps count nodes
            return Because(Reason.HEADROOM, {"pool": look.pool, "headroom_gpus": round(look.demand.headroom, 2)})
        return Because(Reason.TOO_LARGE, {"gang": who.gang, "needed_nodes": needed, "spare_nodes": len(allowed)})
    used = [room for room in allowed if room.free < room.node.gpus]
    return used or Because(Reason.NOT_NEEDED)


def lent_taints(node: Node, policy: PoolPolicy, borrower: OwnerClass) -> tuple[Taint, ...]:
    """The node's taints once lent: the owner taint replaced."""
    rest = tuple(taint for taint in node.taints if taint != policy.owner_taint and taint.key != CLOSING)
    return (*rest, borrowers.on_loan_taint(borrower))


def _draft(look: Look, who: Borrower, found: Offer, passed: tuple[Alternative, ...], state: State) -> Draft:
    numbers: dict[str, Number] = {
        "gpus": sum(node.gpus for node in found.nodes),
        "node": ", ".join(node.name for node in found.nodes),
        "idle_minutes": min(seconds(found.now - state.verdicts[node.uid].since) for node in found.nodes) // 60,
        "headroom_gpus": round(look.demand.headroom, 2),
        "spare_nodes": int(found.terms.gpus // max(1, found.nodes[0].gpus)),
        "gang": who.gang,
        "due": found.terms.due.isoformat(timespec="minutes"),
    }
    steps = tuple(_step(state, look, who, node, found) for node in found.nodes)
    return Draft(look.pool, Method.LEND, Because(Reason.IDLE_PROVEN, numbers), steps, passed)


def _step(state: State, look: Look, who: Borrower, node: Node, found: Offer) -> LendNode:
    return LendNode(
        loan=stable_id(state.cluster, node.uid, who.gang, found.now.isoformat()),
        node=node.uid,
        node_name=node.name,
        lender=look.pool,
        borrower=who.pods[0].owner,
        gang=who.gang,
        gpus=node.gpus,
        due=found.terms.due,
        recall_at=found.terms.due - max(state.return_time(look.pool), who.leave),
        owner_taint=look.policy.owner_taint if look.policy.owner_taint in node.taints else None,
    )
