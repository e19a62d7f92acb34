"""Small phrases that several commands need: moments, what a plan does, how far it came, where a loan stands.

Only joins and counts; the words for reasons are `core.reasons`'. Times are UTC, to the minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from rebalancer.core.instructions import WorkloadRecord
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.plan import FINAL, Alternative, EvictGang, LendNode, Outcome, Plan, Result
from rebalancer.core.reasons import sentence
from rebalancer.core.units import Mode, later

SHOWN = 2
"""Alternatives told in full; the rest is counted."""


def moment(at: datetime) -> str:
    """``2026-11-29 05:40Z``."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def headline(plan: Plan) -> str:
    """``reclaim for infer-a100``, with what keeps it from being carried out."""
    shadow = " (shadow, nothing is touched)" if plan.mode is Mode.SHADOW else ""
    waits = " (waits for approval)" if plan.awaits_approval else ""
    return f"{plan.method} {'from' if plan.method == 'lend' else 'for'} {plan.pool}{shadow}{waits}"


def steps(plan: Plan) -> str:
    """``closes 2 nodes, evicts team/llm-7, restores 2 nodes``."""
    counts = Counter(step.kind for step in plan.steps)
    lent = [step for step in plan.steps if isinstance(step, LendNode)]
    gangs = [step.gang for step in plan.steps if isinstance(step, EvictGang)]
    told = [f"lends {_listed([step.node_name for step in lent])} to {lent[0].gang}"] if lent else []
    told += ["closes " + _count(counts["close"], "node")] if counts["close"] else []
    told += [f"evicts {_listed(gangs)}"] if gangs else []
    told += ["restores " + _count(counts["restore"], "node")] if counts["restore"] else []
    told += ["renews " + _count(counts["renew"], "loan")] if counts["renew"] else []
    return ", ".join(told)


def done_to_gang(plan: Plan, gang: str, outcomes: Sequence[Outcome]) -> str:
    """What a plan has done or has in mind for a gang, as the predicate of a sentence."""
    evicts = [step for step in plan.steps if isinstance(step, EvictGang) and step.gang == gang]
    when = moment(plan.made_at)
    would = _would(plan, outcomes)
    if evicts:
        pods = _count(sum(len(step.members) for step in evicts), "pod")
        part = "" if all(step.whole for step in evicts) else ", down to its minimum"
        return f"{would} evicted ({pods}{part}) at {when} for {plan.pool} ({plan.method})"
    lent = [step for step in plan.steps if isinstance(step, LendNode) and step.gang == gang]
    names = _listed([step.node_name for step in lent])
    return f"{would} lent {names} of {plan.pool} at {when}, due {moment(min(step.due for step in lent))}"


def done_to_node(plan: Plan, uid: str, outcomes: Sequence[Outcome]) -> str:
    """What a plan has done or has in mind for a node, as the predicate of a sentence."""
    kinds = [step.kind for step in plan.steps if getattr(step, "node", None) == uid]
    verbs = {"lend": "lent", "close": "closed", "restore": "brought home", "renew": "lent on"}
    gangs = {step.gang: None for step in plan.steps if isinstance(step, LendNode) and step.node == uid}
    would = _would(plan, outcomes)
    whom = f" to {_listed(list(gangs))}" if gangs else ""
    done = " and ".join(verbs[kind] for kind in kinds)
    return f"{would} {done}{whom} at {moment(plan.made_at)} ({headline(plan)})"


def passed_over(what: str, plan: Plan, refusal: Alternative) -> str:
    """``not lent at ...: why``."""
    return f"{what} at {moment(plan.made_at)} ({headline(plan)}): {sentence(refusal.because)}"


def rejections(alternatives: Sequence[Alternative]) -> str:
    """``rejected instead: a (why), b (why) and 3 more``; empty if nothing was."""
    told = [f"{one.target} ({sentence(one.because)})" for one in alternatives[:SHOWN]]
    if not told:
        return "nothing was rejected"
    more = len(alternatives) - len(told)
    return f"rejected: {', '.join(told)}" + (f" and {more} more" if more else "")


def progress(plan: Plan, outcomes: Sequence[Outcome], targets: Collection[str] = ()) -> str:
    """How far a plan, or its steps for these targets, came."""
    final = [told for told in outcomes if told.result in FINAL]
    if not final:
        blocked = [told for told in outcomes if told.result is Result.BLOCKED]
        return f"blocked: {sentence(blocked[-1].because)}" if blocked else "no outcome yet"
    counts = Counter(told.result for told in final)
    told = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    failed = [one for one in final if one.result is not Result.DONE]
    because = f" ({sentence(failed[0].because)})" if failed else ""
    return f"outcome: {told}{'' if targets else f' of {len(plan.steps)} steps'}{because}"


def again(record: WorkloadRecord, now: datetime | None) -> str:
    """When a workload may borrow again; what keeps it longer than its cooldown is said."""
    until = later(record.cooldown_until, record.protected_until)
    if until is None or (now is not None and until <= now):
        return "it may borrow again" + (f" since {moment(until)}" if until else "")
    often = "" if until == record.cooldown_until else f": {record.workload} was preempted too often in a day"
    return f"it may borrow again at {moment(until)}{often}"


def standing(loan: Loan) -> str:
    """Where a loan stands, of a node."""
    closed = f" at {moment(loan.closed_at)}" if loan.closed_at else ""
    told = {
        LoanPhase.OPENING: f"it is being lent to {loan.gang}",
        LoanPhase.ON_LOAN: f"it is on loan to {loan.gang} until {moment(loan.due)}",
        LoanPhase.RECALLING: f"it is being recalled from {loan.gang}, due {moment(loan.due)}",
        LoanPhase.RETURNED: f"it came home{closed}",
        LoanPhase.UNDONE: f"the loan to {loan.gang} was undone{closed}",
        LoanPhase.LOST: f"its loan to {loan.gang} is lost",
        LoanPhase.NODE_GONE: "the node is gone",
    }
    return told[loan.phase] + (" (in the shadow ledger only)" if loan.virtual else "")


def _would(plan: Plan, outcomes: Sequence[Outcome]) -> str:
    if plan.mode is Mode.SHADOW:
        return "would have been"
    final = [told.result for told in outcomes if told.result in FINAL]
    return "was" if final and all(result is Result.DONE for result in final) else "was to be"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
