"""The ledger's bookkeeping: plans adopted and let go, and the loans that they open.

These handlers write the state and say what must be recorded; they decide nothing about who lends or leaves.
What comes back of plans is taken in by ``outcomes``; what nodes show is squared with it in ``marks``.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from datetime import datetime

from rebalancer.core.books import order
from rebalancer.core.instructions import Instruction, PublishPlan, RecordLoan
from rebalancer.core.loans import TRANSITIONS, Loan, LoanEvent, LoanPhase, advance
from rebalancer.core.plan import EvictGang, LendNode, Method, Plan, RenewLoan, RestoreNode, Step
from rebalancer.core.state import State
from rebalancer.core.underway import OpenPlan
from rebalancer.core.units import Mode, PlanId

FINISHED_KEPT = 2000


def keep(state: State, loan: Loan) -> RecordLoan:
    """Put a loan's latest form into the ledger and its indexes."""
    before = state.loans.get(loan.id)
    state.loans[loan.id] = loan
    _index(state, loan)
    state.usage.loan_changed(loan)
    if loan.open:
        state.arrivals.forget(loan.node)
        state.keeping.loan_opened(loan.id)
        state.loan_of[loan.node] = loan.id
        state.away.setdefault(loan.lender, {})[loan.id] = None
        return RecordLoan(loan)
    if state.loan_of.get(loan.node) == loan.id:
        del state.loan_of[loan.node]
    state.away.get(loan.lender, {}).pop(loan.id, None)
    state.unmarked.pop(loan.node, None)
    state.unrenewed.pop(loan.id, None)
    state.recalls.pop(loan.node, None)
    if loan.closed_at is not None:
        state.keeping.loan_closed(loan.id, loan.closed_at)
    if loan.closed_at is not None and (before is None or before.open):
        state.home_since[loan.node] = max(loan.closed_at, state.home_since.get(loan.node, loan.closed_at))
    if loan.phase is LoanPhase.RETURNED and not loan.virtual and (before is None or before.open):
        state.arrivals.handed_back(loan, state.inventory.nodes.get(loan.node))
    return RecordLoan(loan)


def _index(state: State, loan: Loan) -> None:
    state.turned(loan.lender)
    if loan.virtual and loan.open:
        state.virtual.setdefault(loan.lender, {})[loan.id] = None
    elif loan.virtual:
        state.virtual.get(loan.lender, {}).pop(loan.id, None)
    if loan.phase is LoanPhase.LOST:
        state.lost[loan.id] = None
    else:
        state.lost.pop(loan.id, None)


def move(state: State, loan: Loan, event: LoanEvent, at: datetime) -> list[Instruction]:
    """Advance a loan if its phase knows the event; events that come twice or late change nothing."""
    if (loan.phase, event) not in TRANSITIONS:
        return []
    return [keep(state, advance(loan, event, at))]


def put_off(state: State, loan: Loan, due: datetime, recall_at: datetime, at: datetime) -> list[Instruction]:
    """A loan's due time moved at some moment; what is older than its last move changes nothing."""
    if not loan.open or (loan.renewed_at is not None and at <= loan.renewed_at):
        return []
    return [keep(state, replace(loan, due=due, recall_at=recall_at, renewed_at=at))]


# -- plans ---------------------------------------------------------------------------------------------------


def adopt(state: State, plan: Plan, now: datetime) -> list[Instruction]:
    """Register a plan that is being published: who is busy with it, and the loans it opens.

    A plan that waits for a person keeps nobody busy: pods that wait and loans that fall due need the same nodes.
    """
    if plan.mode is Mode.SHADOW:
        return _pretend(state, plan, now)
    if plan.method is Method.CANCEL:
        return []
    state.plans[plan.id] = OpenPlan(plan)
    heapq.heappush(state.expiring, (plan.valid_until, plan.id))
    state.turned(plan.pool)
    if not plan.awaits_approval:
        occupy(state, plan)
    opens = [step for step in plan.steps if isinstance(step, LendNode) and step.loan not in state.loans]
    return [keep(state, _loan(plan, step, LoanPhase.OPENING)) for step in opens]


def approve(state: State, plan_id: PlanId) -> list[PublishPlan]:
    """The plan is to be carried out from now, if it still waits; by the control topic or by the brakes."""
    open_plan = state.plans.get(plan_id)
    if open_plan is None or not open_plan.plan.awaits_approval:
        return []
    open_plan.plan = open_plan.plan.approved(state.term)
    state.turned(open_plan.plan.pool)
    occupy(state, open_plan.plan)
    state.touch(open_plan.plan)
    return [PublishPlan(open_plan.plan)]


def occupy(state: State, plan: Plan) -> None:
    """Nodes and gangs of the plan are busy with it from now; those that another plan has already stay that one's."""
    for step in plan.steps:
        if not isinstance(step, EvictGang):
            state.busy_nodes.setdefault(step.node, plan.id)
        if isinstance(step, EvictGang | LendNode):
            state.busy_gangs.setdefault(step.gang, plan.id)
    hands_changed(state, plan)


def hands_changed(state: State, plan: Plan) -> None:
    """Who is busy changed: for the plan's pool, and for whatever pool its nodes belong to by now."""
    nodes = (state.inventory.nodes.get(step.node) for step in plan.steps if not isinstance(step, EvictGang))
    state.turned(plan.pool, *{node.pool: None for node in nodes if node is not None and node.pool != plan.pool})
    state.hands += 1


def _loan(plan: Plan, step: LendNode, phase: LoanPhase) -> Loan:
    return Loan(
        id=step.loan, node=step.node, node_name=step.node_name, lender=step.lender, borrower=step.borrower,
        gang=step.gang, gpus=step.gpus, mode=plan.mode, phase=phase, plan=plan.id, because=plan.because,
        opened_at=plan.made_at, due=step.due, recall_at=step.recall_at, owner_taint=step.owner_taint,
    )  # fmt: skip


def _pretend(state: State, plan: Plan, now: datetime) -> list[Instruction]:
    """Shadow: the plan is taken as done at once, in a ledger that touches nothing; real loans are not its own."""
    records: list[Instruction] = []
    for step in plan.steps:
        held = None if isinstance(step, EvictGang) else state.loans.get(step.loan)
        if isinstance(step, LendNode):
            loan = replace(_loan(plan, step, LoanPhase.ON_LOAN), lent_at=now)
            records.append(keep(state, loan))
        elif isinstance(step, RestoreNode) and held is not None and held.virtual:
            records += move(state, held, LoanEvent.RESTORED, now)
        elif isinstance(step, RenewLoan) and held is not None and held.virtual:
            records += put_off(state, held, step.due, step.recall_at, now)
    return records


def close_virtual(state: State, now: datetime) -> list[Instruction]:
    """End shadow loans of pools that act now."""
    ids = [uid for pool, found in state.virtual.items() if found and state.mode(pool) is Mode.ACT for uid in found]
    found = sorted((state.loans[uid] for uid in ids), key=order)
    return [record for loan in found for record in move(state, loan, LoanEvent.RESTORED, now)]


def called_off(state: State, plan: str) -> None:
    """A cancel was published: the plan it names is not called off twice."""
    open_plan = state.plans.get(plan)
    if open_plan is not None:
        open_plan.called_off = True


def expire(state: State, now: datetime) -> list[Instruction]:
    """Let go of plans whose validity is over and of which nothing more came; their loans are planned anew."""
    records: list[Instruction] = []
    for open_plan in _expired(state, now):
        records += [record for step in open_plan.pending_steps() for record in given_up(state, step, now)]
        finish(state, open_plan)
    return records


def _expired(state: State, now: datetime) -> list[OpenPlan]:
    """Open plans past their validity, in the order in which they were adopted."""
    passed = False
    while state.expiring and state.expiring[0][0] < now:
        passed = heapq.heappop(state.expiring)[1] in state.plans or passed
    return [item for item in state.plans.values() if now > item.plan.valid_until] if passed else []


def given_up(state: State, step: Step, at: datetime) -> list[Instruction]:
    """Nothing more comes of a step: a loan is not opened, or falls due as it was going to."""
    loan = state.loans.get("" if isinstance(step, EvictGang) else step.loan)
    if loan is not None and isinstance(step, RenewLoan):
        state.unrenewed[loan.id] = loan.due
    return move(state, loan, LoanEvent.REFUSED, at) if loan is not None and isinstance(step, LendNode) else []


def finish(state: State, open_plan: OpenPlan) -> None:
    """Take a plan off the open ones; a bounded number stays for stories and repeated outcomes."""
    plan = open_plan.plan
    state.plans.pop(plan.id, None)
    for step in plan.steps:
        if not isinstance(step, EvictGang) and state.busy_nodes.get(step.node) == plan.id:
            del state.busy_nodes[step.node]
        if isinstance(step, EvictGang | LendNode) and state.busy_gangs.get(step.gang) == plan.id:
            del state.busy_gangs[step.gang]
    hands_changed(state, plan)
    state.finished[plan.id] = open_plan
    if len(state.finished) > FINISHED_KEPT:
        del state.finished[next(iter(state.finished))]
    for key_ in [key for key in state.complaints if key[0] == plan.id]:
        del state.complaints[key_]
