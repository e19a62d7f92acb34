"""The ledger's bookkeeping: plans adopted, outcomes and time turned into loans and records.

These handlers write the state and say what must be recorded; they decide nothing about who lends or leaves.
What nodes show is squared with it in ``marks``.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import replace
from datetime import datetime, timedelta

from rebalancer.core.books import order
from rebalancer.core.instructions import Instruction, RecordLoan, RecordWorkload, WorkloadRecord
from rebalancer.core.loans import TRANSITIONS, Loan, LoanEvent, LoanPhase, advance
from rebalancer.core.plan import FINAL, EvictGang, LendNode, Method, Outcome, Plan, RenewLoan, RestoreNode, Result, Step
from rebalancer.core.reasons import Reason
from rebalancer.core.state import RETURNS_KEPT, OpenPlan, State, Stray
from rebalancer.core.units import Mode

DAY = timedelta(days=1)
FINISHED_KEPT = 2000
BLOCK_RETRY = timedelta(seconds=60)
"""How long a gang that act could not evict is left out of new plans."""


def keep(state: State, loan: Loan) -> RecordLoan:
    """Put a loan's latest form into the ledger and its indexes."""
    before = state.loans.get(loan.id)
    state.loans[loan.id] = loan
    _index(state, loan)
    if loan.open:
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


def occupy(state: State, plan: Plan) -> None:
    """Nodes and gangs of the plan are busy with it from now; those that another plan has already stay that one's."""
    for step in plan.steps:
        if not isinstance(step, EvictGang):
            state.busy_nodes.setdefault(step.node, plan.id)
        if isinstance(step, EvictGang | LendNode):
            state.busy_gangs.setdefault(step.gang, plan.id)
    _hands_changed(state, plan)


def _hands_changed(state: State, plan: Plan) -> None:
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
    """Shadow: the plan is taken as done at once, in a ledger that touches nothing."""
    records: list[Instruction] = []
    for step in plan.steps:
        if isinstance(step, LendNode):
            loan = replace(_loan(plan, step, LoanPhase.ON_LOAN), lent_at=now)
            records.append(keep(state, loan))
        elif isinstance(step, RestoreNode) and step.loan in state.loans:
            records += move(state, state.loans[step.loan], LoanEvent.RESTORED, now)
        elif isinstance(step, RenewLoan) and step.loan in state.loans:
            records += put_off(state, state.loans[step.loan], step.due, step.recall_at, now)
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
        records += [record for step in open_plan.pending_steps() for record in _given_up(state, step, now)]
        finish(state, open_plan)
    return records


def _expired(state: State, now: datetime) -> list[OpenPlan]:
    """Open plans past their validity, in the order in which they were adopted."""
    passed = False
    while state.expiring and state.expiring[0][0] < now:
        passed = heapq.heappop(state.expiring)[1] in state.plans or passed
    return [item for item in state.plans.values() if now > item.plan.valid_until] if passed else []


def _given_up(state: State, step: Step, at: datetime) -> list[Instruction]:
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
    _hands_changed(state, plan)
    state.finished[plan.id] = open_plan
    if len(state.finished) > FINISHED_KEPT:
        del state.finished[next(iter(state.finished))]
    for key_ in [key for key in state.complaints if key[0] == plan.id]:
        del state.complaints[key_]


# -- outcomes ------------------------------------------------------------------------------------------------


def outcome(state: State, told: Outcome) -> list[Instruction]:
    """Take an outcome in. Repeated ones change nothing; unknown plans (fallback's) still move their loans."""
    open_plan = state.plans.get(told.plan) or state.finished.get(told.plan)
    if told.step < 0:
        return _whole_plan(state, told, open_plan)
    if open_plan is not None:
        if open_plan.results.get(told.step) in FINAL:
            return []
        open_plan.results[told.step] = told.result
    key = (told.plan, told.step)
    if told.result is Result.BLOCKED:
        state.complaints[key] = told
    else:
        state.complaints.pop(key, None)
    if told.result in FINAL and told.target in state.strays:  # what is known of the node is older than this
        state.strays[told.target] = Stray(told.at, told.at + state.policy.acting.retry_first)
    records = _by_kind(state, told, open_plan)
    if open_plan is not None and open_plan.finished and told.plan in state.plans:
        finish(state, open_plan)
    return records


def _whole_plan(state: State, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    if open_plan is None or told.plan not in state.plans or told.result not in FINAL:
        return []
    records: list[Instruction] = []
    for index, step in enumerate(open_plan.plan.steps):
        if open_plan.results.get(index) in FINAL:
            continue
        open_plan.results[index] = told.result
        records += _given_up(state, step, told.at)
    finish(state, open_plan)
    return records


def _by_kind(state: State, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    if told.kind == "evict":
        return _evicted(state, told, open_plan)
    if told.kind == "restore" and not told.loan:
        return _repaired(state, told)
    loan = state.loans.get(told.loan)
    if loan is None:
        return []
    if told.because.reason is Reason.NODE_GONE and told.result in FINAL:
        return move(state, loan, LoanEvent.NODE_DELETED, told.at)
    if told.kind == "renew":
        return _renewed(state, loan, told, open_plan)
    event = _event(told)
    if event is LoanEvent.RESTORED:
        _learn(state, loan, told, open_plan)
    return move(state, loan, event, told.at) if event is not None else []


def _repaired(state: State, told: Outcome) -> list[Instruction]:
    """A node without a mark is its owner's again: it rests, and a loan that was lost there is over."""
    if told.result is not Result.DONE:
        return []
    state.home_since[told.target] = told.at
    lost = [loan for uid in state.lost if (loan := state.loans[uid]).node == told.target]
    return [record for loan in lost for record in move(state, loan, LoanEvent.RESTORED, told.at)]


def _renewed(state: State, loan: Loan, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    """The loan goes on, or falls due at once as it was going to: its node waits for no other step."""
    step = open_plan.plan.steps[told.step] if open_plan is not None else None
    if told.result not in FINAL or not isinstance(step, RenewLoan):
        return []
    if open_plan is not None and state.busy_nodes.get(step.node) == told.plan:
        del state.busy_nodes[step.node]
        _hands_changed(state, open_plan.plan)
    if told.result is Result.DONE:
        return put_off(state, loan, step.due, step.recall_at, told.at)
    return _given_up(state, step, told.at)


def _event(told: Outcome) -> LoanEvent | None:
    """What an outcome means for its loan; steps that did not end, or ended without a trace, mean nothing."""
    if told.result is Result.DONE:
        return {"lend": LoanEvent.LENT, "close": LoanEvent.CLOSED, "restore": LoanEvent.RESTORED}[told.kind]
    if told.kind == "lend":
        return LoanEvent.REFUSED if told.result in FINAL else None
    return LoanEvent.REOPENED if told.result is Result.CANCELLED else None


def _learn(state: State, loan: Loan, told: Outcome, open_plan: OpenPlan | None) -> None:
    """Remember how long a return took, if somebody had to leave for it: an empty node's tells nothing of the next."""
    known = state.learnt_until.get(loan.lender)
    if known is not None and told.at <= known:
        return  # read again after a restart: the memory restored beside it contains it
    took = told.numbers.get("return_seconds")
    steps = open_plan.plan.steps if open_plan is not None else ()
    left = (member.node for step in steps if isinstance(step, EvictGang) for member in step.members)
    if isinstance(took, int | float) and loan.node_name in left:
        state.returns.setdefault(loan.lender, deque(maxlen=RETURNS_KEPT)).append(float(took))


def _evicted(state: State, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    if told.result is Result.REFUSED:
        state.blocked_gangs[told.target] = (told.at + BLOCK_RETRY, told.because)
        return []
    if told.result is not Result.DONE or told.numbers.get("members") == 0:
        return []  # nobody was evicted by us: it left by itself
    workload, namespace = _whose(told, open_plan)
    if not workload:
        return []
    known = state.workloads.get(workload) or WorkloadRecord(workload, namespace)
    if told.at in known.evictions:  # the record may be newer than this outcome: after a restart both come again
        return []
    space = state.namespace_evictions.setdefault(namespace, deque(maxlen=10_000))
    space.append(told.at)
    record = evicted_again(state, known, told.plan, told.at)
    state.workloads[workload] = record
    state.records += 1
    return [RecordWorkload(record)]


def _whose(told: Outcome, open_plan: OpenPlan | None) -> tuple[str, str]:
    """Workload and namespace of an evicted gang: by its plan, or by the outcome when act planned it alone."""
    step = open_plan.plan.steps[told.step] if open_plan is not None else None
    if isinstance(step, EvictGang):
        return step.workload, step.namespace
    return str(told.numbers.get("workload", "")), str(told.numbers.get("namespace", ""))


def evicted_again(state: State, record: WorkloadRecord, plan: str, at: datetime) -> WorkloadRecord:
    """A workload's record after one more eviction: cooldown doubles up to its maximum, too many in a day protect."""
    policy = state.policy.borrowing
    recent = (*(moment for moment in record.evictions if at - moment < DAY), at)
    pause = min(policy.cooldown * 2 ** min(len(recent) - 1, 10), policy.cooldown_max)
    often = len(recent) >= policy.preemptions_per_day
    protected = recent[-policy.preemptions_per_day] + DAY if often else record.protected_until
    return WorkloadRecord(record.workload, record.namespace, recent, at + pause, protected, plan)
