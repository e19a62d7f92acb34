"""The ledger squared with what nodes show: marks, and our taints without one. The cluster wins over the ledger.

A mark on a node is a loan; a loan without a mark is lost, or was restored by other hands. These handlers write the
state and say what must be recorded; they decide nothing about who lends or leaves.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rebalancer.core.facts import LoanMark, Node
from rebalancer.core.instructions import Instruction
from rebalancer.core.ledger import keep, move, put_off
from rebalancer.core.loans import Loan, LoanEvent, LoanPhase
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State, Stray
from rebalancer.core.units import CLOSING, Mode

EPSILON = timedelta(microseconds=1)
"""The least by which a later due time that an earlier fact tells of comes after what was known."""


def node_seen(state: State, node: Node, at: datetime) -> list[Instruction]:
    """Square the ledger with the mark that a node bears, or does not."""
    state.arrivals.seen(node)
    if node.stray:
        state.strays.setdefault(node.uid, Stray(at, at))
    else:
        state.strays.pop(node.uid, None)
    if node.mark is None:
        loan = state.loans.get(state.loan_of.get(node.uid, ""))
        if loan is not None and not loan.virtual and loan.lent_at is not None and at > loan.lent_at:
            state.unmarked.setdefault(node.uid, at)
        return []
    state.unmarked.pop(node.uid, None)
    known = state.loans.get(node.mark.loan)
    if known is None:
        return [*_give_way(state, node, at), keep(state, _from_mark(node))]
    if known.open and known.phase is not LoanPhase.OPENING:
        return _follow(state, known, node.mark, at)
    if known.closed_at is not None and at <= known.closed_at:
        return []
    return [*_give_way(state, node, at), *move(state, known, LoanEvent.MARK_FOUND, at)]


def _follow(state: State, loan: Loan, mark: LoanMark, at: datetime) -> list[Instruction]:
    """The mark's due time, if it is another: a later one always holds, an earlier one if it is surely newer."""
    if mark.due == loan.due:
        return []
    last = loan.renewed_at or loan.lent_at or loan.opened_at
    if mark.due < loan.due and at <= last + state.policy.activities.skew:
        return []
    return put_off(state, loan, mark.due, mark.recall_at, max(at, last + EPSILON))


def _give_way(state: State, node: Node, at: datetime) -> list[Instruction]:
    """End the loan that the ledger has on a node whose mark names another: the cluster wins."""
    loan = state.loans.get(state.loan_of.get(node.uid, ""))
    if loan is None or (node.loan is not None and loan.id == node.loan.loan):
        return []
    if loan.virtual:
        return move(state, loan, LoanEvent.RESTORED, at)
    return move(state, loan, LoanEvent.REFUSED, at) or move(state, loan, LoanEvent.MARK_MISSING, at)


def _from_mark(node: Node) -> Loan:
    mark = node.loan
    if mark is None:
        message = f"node {node.name} bears no mark"
        raise ValueError(message)
    recalling = mark.phase == LoanPhase.RECALLING.value or any(taint.key == CLOSING for taint in node.taints)
    return Loan(
        id=mark.loan, node=node.uid, node_name=node.name, lender=mark.lender, borrower=mark.borrower, gang=mark.gang,
        gpus=node.gpus, mode=Mode.ACT, phase=LoanPhase.RECALLING if recalling else LoanPhase.ON_LOAN, plan=mark.plan,
        because=Because(Reason.CONFIRMED), opened_at=mark.opened_at, due=mark.due, recall_at=mark.recall_at,
        owner_taint=mark.taint, lent_at=mark.opened_at,
    )  # fmt: skip


def node_gone(state: State, uid: str, at: datetime) -> list[Instruction]:
    """A node was deleted: its loan ends as node-gone, and its history with it."""
    state.verdicts.pop(uid, None)
    state.strays.pop(uid, None)
    state.arrivals.forget(uid)
    loan = state.loans.get(state.loan_of.get(uid, ""))
    records = move(state, loan, LoanEvent.NODE_DELETED, at) if loan is not None else []
    state.home_since.pop(uid, None)
    return records


def settle_unmarked(state: State, now: datetime) -> list[Instruction]:
    """Loans whose node has borne no mark for the freshness bound: restored by other hands, or lost."""
    records: list[Instruction] = []
    for uid, since in list(state.unmarked.items()):
        if now - since <= state.policy.activities.freshness or uid in state.busy_nodes:
            continue
        del state.unmarked[uid]
        loan, node = state.loans.get(state.loan_of.get(uid, "")), state.inventory.nodes.get(uid)
        if loan is None or node is None:
            continue
        home = not node.stray and (loan.owner_taint is None or loan.owner_taint in node.taints)
        records += move(state, loan, LoanEvent.RESTORED if home else LoanEvent.MARK_MISSING, now)
    return records
