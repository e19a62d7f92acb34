"""What a day left on the topics, judged: is every plan, eviction and loan explained; and the list of decisions.

Read from the records alone, as a subscriber would. A plan in shadow mode has no outcomes to wait for.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Any

from rebalancer.adapters.store import Store
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import FINAL, EvictGang, Method, Plan
from rebalancer.core.reasons import SENTENCES, Because, sentence
from rebalancer.core.units import Mode


def unexplained(store: Store) -> list[str]:
    """One line for each plan, eviction or loan of which reason, numbers, alternatives or outcome are missing."""
    return [*_plans(store), *_outcomes(store), *_loans(store)]


def _plans(store: Store) -> Iterator[str]:
    for plan in reversed(store.recent()):
        if not says_all(plan.because):
            yield f"plan {plan.id}: its numbers do not fill its sentence"
        for other in plan.alternatives:
            if not says_all(other.because):
                yield f"plan {plan.id}: why {other.target} was rejected is not said"
        if plan.mode is Mode.ACT and plan.method is not Method.CANCEL:
            yield from _steps(store, plan)


def _steps(store: Store, plan: Plan) -> Iterator[str]:
    told = store.results(plan)
    whole = any(outcome.step < 0 and outcome.result in FINAL for outcome in told)
    ended = {outcome.step for outcome in told if outcome.result in FINAL}
    under_way = store.latest is not None and store.latest <= plan.valid_until
    for index, step in enumerate(plan.steps):
        if index not in ended and not whole and not under_way:
            yield f"plan {plan.id}: what became of step {index} ({step.kind}) is not told"
        if isinstance(step, EvictGang) and not says_all(step.because):
            yield f"plan {plan.id}: why {step.gang} is evicted is not said"


def _outcomes(store: Store) -> Iterator[str]:
    for plan_id, told in store.outcomes.items():
        if plan_id not in store.plans:
            yield f"outcomes of plan {plan_id}, which is not on the topics"
        for outcome in told.values():
            if not says_all(outcome.because):
                yield f"plan {plan_id}: why step {outcome.step} was {outcome.result} is not said"


def _loans(store: Store) -> Iterator[str]:
    for loan in store.loans.values():
        if loan.virtual:
            continue
        if loan.plan not in store.plans:
            yield f"loan {loan.id}: the plan that opened it is not on the topics"
        if loan.phase is LoanPhase.LOST:
            yield f"loan {loan.id}: lost"


def says_all(because: Because) -> bool:
    """Whether every number that the sentence of the reason asks for is there."""
    wanted = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[because.reason]) if name}
    return wanted <= set(because.numbers)


def decisions(store: Store) -> tuple[Mapping[str, Any], ...]:
    """All plans in the order made, as plain mappings without what differs from run to run (terms)."""
    ordered = sorted(store.plans.values(), key=lambda plan: (plan.made_at, plan.pool, plan.id))
    return tuple(_decision(store, plan) for plan in ordered)


def _decision(store: Store, plan: Plan) -> Mapping[str, Any]:
    return {
        "id": plan.id,
        "at": plan.made_at.isoformat(),
        "pool": plan.pool,
        "method": plan.method.value,
        "mode": plan.mode.value,
        "reason": plan.because.reason.value,
        "numbers": dict(plan.because.numbers),
        "sentence": sentence(plan.because),
        "steps": [
            {"kind": step.kind, "target": step.gang if step.kind == "evict" else step.node_name} for step in plan.steps
        ],
        "alternatives": [{"target": one.target, "sentence": sentence(one.because)} for one in plan.alternatives],
        "cancels": plan.cancels,
        "outcomes": sorted(
            f"{told.step} {told.kind} {told.result.value} {told.because.reason.value}"
            for told in store.results(plan)
            if told.result in FINAL
        ),
    }
