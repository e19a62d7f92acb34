"""What a night left behind, in the form in which two nights are compared."""

from datetime import datetime
from typing import NamedTuple

from rebalancer.adapters.store import Store
from rebalancer.core.instructions import WorkloadRecord
from rebalancer.core.plan import FINAL, Plan


class Decision(NamedTuple):
    """One plan: when (the barrier it was made at), what, on whom, why."""

    at: datetime
    pool: str
    method: str
    mode: str
    targets: tuple[str, ...]
    reason: str


def decisions(store: Store) -> list[Decision]:
    """All plans in the order made."""
    plans = sorted(store.plans.values(), key=lambda plan: (plan.made_at, plan.pool, plan.id))
    return [decision(plan) for plan in plans]


def decision(plan: Plan) -> Decision:
    targets = tuple(f"{one.kind} {one.gang if one.kind == 'evict' else one.node_name}" for one in plan.steps)
    return Decision(plan.made_at, plan.pool, plan.method.value, plan.mode.value, targets, plan.because.reason.value)


def results(store: Store) -> list[tuple[str, int, str, str]]:
    """How each step of each plan ended: (plan, step, result, because)."""
    told = [outcome for plan in store.plans.values() for outcome in store.results(plan) if outcome.result in FINAL]
    return sorted((one.plan, one.step, one.result.value, one.because.reason.value) for one in told)


def memory(store: Store) -> list[WorkloadRecord]:
    """What is remembered of each workload: evictions, cooldowns."""
    return [record for _, record in sorted(store.workloads.items())]


def loans(store: Store) -> list[tuple[str, str, str]]:
    """The ledger: (loan, node, phase)."""
    return sorted((loan.id, loan.node_name, loan.phase.value) for loan in store.loans.values())
