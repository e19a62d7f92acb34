"""Renew: let a loan that would have to come home now go on, where the window allows it and nobody misses the node.

It is lent once more, in effect: whatever stops lending stops renewing, and a gang that could not be taken back, a
node that nobody uses, or a recall ends it. What is not renewed falls due as it was going to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from rebalancer.core.budgets import never_evictable
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.look import Look
from rebalancer.core.methods import guards, return_
from rebalancer.core.plan import Method, RenewLoan
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import usable
from rebalancer.core.underway import Draft
from rebalancer.core.units import Number
from rebalancer.core.victims import Casualty, homecoming
from rebalancer.core.windows import opening


def propose(state: State, look: Look, now: datetime) -> Iterator[Draft]:
    """Drafts for the loans of this pool that go on, as many nodes each as a plan may touch."""
    until = _until(state, look, now)
    if until is None or look.demand.blind or look.unmet_now or look.lendable < 0:
        return
    if guards.stops_lend(state, look, now) is not None:
        return
    ending = return_.startable(state, look, now)
    lasting = [loan for loan in ending if _lasts(state, look, loan, until, now)]
    chosen = _without(state, lasting, [loan for loan in ending if loan not in lasting])
    most = state.policy.pace.nodes_per_pool
    for first in range(0, len(chosen), most):
        yield _draft(state, look, chosen[first : first + most], until)


def _until(state: State, look: Look, now: datetime) -> datetime | None:
    """When a loan renewed now would be due; None while no window is open."""
    opened = opening(look.policy.windows, now)
    if opened is None:
        return None
    limit = now + state.policy.borrowing.max_loan
    return limit if opened.closes_at is None else min(opened.closes_at, limit)


def _lasts(state: State, look: Look, loan: Loan, until: datetime, now: datetime) -> bool:
    """Whether this loan may go on, and for long enough to be worth it."""
    node = state.inventory.nodes[loan.node]
    return (
        loan.phase is LoanPhase.ON_LOAN
        and loan.mode is state.mode(look.pool)
        and loan.borrower in look.policy.lends_to
        and until - loan.due >= state.policy.borrowing.min_runtime
        and state.unrenewed.get(loan.id) != loan.due
        and return_.recalled(state, loan) is None
        and usable(node)
        and not node.opted_out
        and (loan.virtual or _in_use(state, loan, now))
    )


def _in_use(state: State, loan: Loan, now: datetime) -> bool:
    """Whether gangs use the node, all of which could still be taken back from it."""
    coming = homecoming(state, loan, now)
    return not isinstance(coming, Because) and bool(coming.casualties) and all(
        _evictable(state, victim) for victim in coming.casualties
    )  # fmt: skip


def _evictable(state: State, victim: Casualty) -> bool:
    policy = state.policy.borrowing
    grace = max(pod.grace_seconds for pod in victim.members)
    leave = max(pod.grace_seconds + pod.notice_seconds for pod in victim.members)
    soon = timedelta(seconds=leave) <= policy.lead_time and timedelta(seconds=grace) <= policy.max_grace
    return soon and never_evictable(state.inventory, victim.gang, victim.members) is None


def _without(state: State, lasting: Sequence[Loan], others: Sequence[Loan]) -> list[Loan]:
    """Those whose gangs are not sent away for another loan that ends now: they would be left without."""
    doomed = {pod.gang for loan in others for pod in state.lent_pods(state.inventory.nodes[loan.node])}
    kept: list[Loan] = []
    for loan in lasting:
        gangs = {pod.gang for pod in state.lent_pods(state.inventory.nodes[loan.node])}
        if loan.virtual or not gangs & doomed:
            kept.append(loan)
    return kept


def _draft(state: State, look: Look, loans: Sequence[Loan], until: datetime) -> Draft:
    numbers: dict[str, Number] = {
        "node": loans[0].node_name if len(loans) == 1 else f"{len(loans)} nodes",
        "due": until.isoformat(timespec="minutes"),
        "spare_gpus": int(look.lendable),
    }
    recall_at = until - state.return_time(look.pool)
    steps = tuple(RenewLoan(loan.id, loan.node, loan.node_name, until, recall_at) for loan in loans)
    return Draft(look.pool, Method.RENEW, Because(Reason.LOAN_RENEWED, numbers), steps)
