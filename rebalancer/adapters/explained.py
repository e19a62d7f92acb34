"""What on the topics is not explained: a plan, eviction or loan whose reason, numbers or outcome is missing.

Reads a store as any subscriber could fill one, so that it finds what we forgot to publish and not what we meant
to. Plans that are still valid at the latest moment are open, not unexplained. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter

from rebalancer.adapters.store import Store
from rebalancer.core.loans import OPEN_PHASES
from rebalancer.core.plan import FINAL, EvictGang, Plan
from rebalancer.core.reasons import SENTENCES, Because
from rebalancer.core.units import Mode


def unexplained(store: Store) -> tuple[str, ...]:
    """One line for each thing that is not explained, in a stable order; empty is the only good answer."""
    found = [line for plan in store.recent() for line in _of_plan(store, plan)]
    found += [f"outcomes of plan {plan}, which is on no topic" for plan in sorted(store.outcomes.keys() - store.plans)]
    return tuple(found + list(_of_loans(store)))


def missing_numbers(because: Because) -> tuple[str, ...]:
    """Names that the sentence of a reason needs and its numbers do not have."""
    needed = {name for _, name, _, _ in Formatter().parse(SENTENCES[because.reason]) if name}
    return tuple(sorted(needed - set(because.numbers)))


def _of_plan(store: Store, plan: Plan) -> Iterator[str]:
    told = [("its reason", plan.because)]
    told += [(f"alternative {one.target}", one.because) for one in plan.alternatives]
    told += [(f"eviction of {step.gang}", step.because) for step in plan.steps if isinstance(step, EvictGang)]
    for what, because in told:
        lacks = missing_numbers(because)
        if lacks:
            yield f"plan {plan.id}: {what} ({because.reason}) lacks {', '.join(lacks)}"
    if plan.mode is Mode.ACT and not _open(store, plan):
        ended = {outcome.step for outcome in store.results(plan) if outcome.result in FINAL}
        for index in range(len(plan.steps)):
            if index not in ended and -1 not in ended:
                yield f"plan {plan.id}: step {index} ({plan.steps[index].kind}) has no outcome"
    for outcome in store.results(plan):
        lacks = missing_numbers(outcome.because)
        if lacks:
            yield f"plan {plan.id}: outcome of step {outcome.step} ({outcome.because.reason}) lacks {', '.join(lacks)}"


def _open(store: Store, plan: Plan) -> bool:
    return store.latest is None or plan.valid_until > store.latest


def _of_loans(store: Store) -> Iterator[str]:
    for loan in sorted(store.loans.values(), key=lambda one: one.id):
        if loan.plan not in store.plans:
            yield f"loan {loan.id}: its plan {loan.plan or '(none)'} is on no topic"
        lacks = missing_numbers(loan.because)
        if lacks:
            yield f"loan {loan.id}: its reason ({loan.because.reason}) lacks {', '.join(lacks)}"
        if loan.phase not in OPEN_PHASES and loan.closed_at is None:
            yield f"loan {loan.id}: is {loan.phase} and does not say since when"
