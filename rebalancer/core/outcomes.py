"""What comes back of plans, taken in: steps that ended move their loans, evictions count against workloads.

Outcomes may come twice, late, or of plans that nobody here made; none of that counts anything twice. Nothing here
decides who lends or leaves.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from rebalancer.core import ledger
from rebalancer.core.instructions import Instruction, RecordWorkload, WorkloadRecord
from rebalancer.core.loans import Loan, LoanEvent
from rebalancer.core.plan import FINAL, EvictGang, Outcome, RenewLoan, Result
from rebalancer.core.reasons import Reason
from rebalancer.core.state import RETURNS_KEPT, State, Stray
from rebalancer.core.underway import OpenPlan
from rebalancer.core.units import NodeUid

DAY = timedelta(days=1)
BLOCK_RETRY = timedelta(seconds=60)
"""How long a gang that act could not evict is left out of new plans."""


def take(state: State, told: Outcome) -> list[Instruction]:
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
        ledger.finish(state, open_plan)
    return records


def _whole_plan(state: State, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    if open_plan is None or told.plan not in state.plans or told.result not in FINAL:
        return []
    records: list[Instruction] = []
    for index, step in enumerate(open_plan.plan.steps):
        if open_plan.results.get(index) in FINAL:
            continue
        open_plan.results[index] = told.result
        records += ledger.given_up(state, step, told.at)
    ledger.finish(state, open_plan)
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
        return ledger.move(state, loan, LoanEvent.NODE_DELETED, told.at)
    if told.kind == "renew":
        return _renewed(state, loan, told, open_plan)
    event = _event(told)
    if event is LoanEvent.RESTORED:
        _learn(state, loan, told, open_plan)
        _let_go(state, loan.node, open_plan)
    return ledger.move(state, loan, event, told.at) if event is not None else []


def _repaired(state: State, told: Outcome) -> list[Instruction]:
    """A node without a mark is its owner's again: it rests, and a loan that was lost there is over."""
    if told.result is not Result.DONE:
        return []
    state.home_since[told.target] = told.at
    lost = [loan for uid in state.lost if (loan := state.loans[uid]).node == told.target]
    return [record for loan in lost for record in ledger.move(state, loan, LoanEvent.RESTORED, told.at)]


def _renewed(state: State, loan: Loan, told: Outcome, open_plan: OpenPlan | None) -> list[Instruction]:
    """The loan goes on, or falls due at once as it was going to: its node waits for no other step."""
    step = open_plan.plan.steps[told.step] if open_plan is not None else None
    if told.result not in FINAL or not isinstance(step, RenewLoan):
        return []
    _let_go(state, step.node, open_plan)
    if told.result is Result.DONE:
        return ledger.put_off(state, loan, step.due, step.recall_at, told.at)
    return ledger.given_up(state, step, told.at)


def _let_go(state: State, node: NodeUid, open_plan: OpenPlan | None) -> None:
    """A node that its plan is done with is busy no more, however long the plan's other nodes take."""
    if open_plan is not None and state.busy_nodes.get(node) == open_plan.plan.id:
        del state.busy_nodes[node]
        ledger.hands_changed(state, open_plan.plan)


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
    if known is not None and told.at < known:
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
    step = open_plan.plan.steps[told.step] if open_plan is not None else None
    state.usage.evicted(told, step.members if isinstance(step, EvictGang) else ())
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
