"""Answers `why`: one sentence for a plan, pod, gang, node or loan, from what lies on the topics.

Why me, for whom, what was rejected instead, when I may borrow again. The words for reasons are the core's
own; this room only joins them. It reads a store and nothing else, so that it answers after any restart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rebalancer.adapters import words
from rebalancer.core.instructions import RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Alternative, EvictGang, Outcome, Plan, Step
from rebalancer.core.reasons import sentence
from rebalancer.core.units import later

if TYPE_CHECKING:
    from rebalancer.adapters.store import Store

LEAST_PREFIX = 4
"""Letters of an id that may stand for the whole, if only one id begins so."""
NEAREST = 5
COMPARED = 128
"""Names before and after an unknown one that it is compared with: that costs some 0.1 ms each, and nobody may wait."""


class UnknownTarget(LookupError):  # noqa: N818 - says what happened
    """Nothing of that name is known; ``nearest`` are names like it."""

    def __init__(self, target: str, nearest: tuple[str, ...]) -> None:
        hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(f"no decision, pod, gang, node, loan or alert is called {target!r}{hint}")
        self.nearest = nearest


@dataclass(frozen=True, slots=True)
class Story:
    """An answer: the sentence, and all that it was made from."""

    target: str
    kind: str
    sentence: str
    plan: Plan | None
    outcomes: tuple[Outcome, ...]
    loans: tuple[Loan, ...]
    workload: WorkloadRecord | None
    rejected: tuple[Alternative, ...]
    may_borrow_again: datetime | None


def why(store: Store, target: str) -> Story:
    """The story of a target.

    Raises:
        UnknownTarget: with the nearest names.
    """
    plan = store.plans.get(target)
    if plan is not None:
        return of_plan(store, plan)
    loan = store.loans.get(target)
    if loan is not None:
        return of_node(store, loan.node, loan.node_name, "loan", target)
    node = next(((uid, name) for uid, name in _nodes(store) if target in (uid, name)), None)
    if node is not None:
        return of_node(store, *node, "node", node[1])
    alert = store.alerts.get(target) or store.past_alerts.get(target)
    if alert is not None:
        return of_alert(store, alert)
    gang = _gang_of(store, target)
    if gang is not None:
        return of_gang(store, gang, "gang" if gang == target else "pod", target)
    return _less_exact(store, target)


def of_alert(store: Store, alert: RaiseAlert) -> Story:
    """What an alert says, since when, and the story of what it is about, if there is one."""
    over = "" if alert.id in store.alerts else ", over by now"
    told = f"{alert.severity} since {words.moment(alert.since)}{over}: {sentence(alert.because)}"
    try:
        about = why(store, alert.target)
    except UnknownTarget:
        return Story(alert.id, "alert", told, None, (), (), None, (), None)
    return replace(about, target=alert.id, kind="alert", sentence=f"{told}; {about.sentence}")


def of_plan(store: Store, plan: Plan) -> Story:
    """Why a decision was made, what it does, what it rejected and what became of it."""
    outcomes = tuple(store.results(plan))
    told = [f"{words.moment(plan.made_at)} {words.headline(plan)}: {sentence(plan.because)}"]
    told += [words.steps(plan)] if plan.steps else []
    told += [f"it calls off {plan.cancels}"] if plan.cancels else []
    told += [words.rejections(plan.alternatives), words.progress(plan, outcomes)]
    loans = tuple(loan for loan in store.loans.values() if loan.plan == plan.id)
    return Story(plan.id, "decision", _joined(told), plan, outcomes, loans, None, plan.alternatives, None)


def of_gang(store: Store, gang: str, kind: str, target: str) -> Story:
    """Why a gang was evicted, lent to, or not chosen, for whom, and when it may borrow again."""
    plan, step = _last(store, lambda step: getattr(step, "gang", None) == gang)
    if plan is None or step is None:
        return _undecided_gang(store, gang, kind, target)
    outcomes = _of_target(store, plan, {gang, getattr(step, "node", "")})
    record = store.workloads.get(step.workload) if isinstance(step, EvictGang) else _record(store, gang)
    again = later(record.cooldown_until, record.protected_until) if record else None
    name = gang if kind == "gang" else f"{target} of {gang}"
    told = [f"{name} {words.done_to_gang(plan, gang, outcomes)}: {sentence(plan.because)}"]
    if isinstance(step, EvictGang) and step.because != plan.because:
        told.append(f"it was chosen because {sentence(step.because)}")
    told += [words.rejections(plan.alternatives), words.progress(plan, outcomes, {gang})]
    told += [words.again(record, store.latest)] if record else []
    loans = tuple(loan for loan in store.loans.values() if loan.gang == gang)
    return Story(target, kind, _joined(told), plan, outcomes, loans, record, plan.alternatives, again)


def of_node(store: Store, uid: str, name: str, kind: str, target: str) -> Story:
    """Why a node was lent, closed or restored, or why it stays where it is."""
    plan, _ = _last(store, lambda step: getattr(step, "node", None) == uid)
    loans = _loans_of(store, uid)
    about = {uid, name}
    kept, refusal = _last_rejection(store, about)
    now = words.standing(loans[-1]) if loans else "it is at home"
    if plan is None:
        why_not = words.passed_over("not lent", kept, refusal) if kept and refusal else _blockers(store, uid)
        told = [f"{name}: no decision has touched it", now, why_not]
        return Story(target, kind, _joined(told), kept, (), loans, None, (refusal,) if refusal else (), None)
    outcomes = _of_target(store, plan, about)
    told = [f"{name} {words.done_to_node(plan, uid, outcomes)}: {sentence(plan.because)}", now]
    if kept is not None and refusal is not None and kept.made_at > plan.made_at:
        told.append(words.passed_over("not lent again", kept, refusal))
    told += [words.rejections(plan.alternatives), words.progress(plan, outcomes, about)]
    return Story(target, kind, _joined(told), plan, outcomes, loans, None, plan.alternatives, None)


def _undecided_gang(store: Store, gang: str, kind: str, target: str) -> Story:
    plan, refusal = _last_rejection(store, {gang})
    record = _record(store, gang)
    again = later(record.cooldown_until, record.protected_until) if record else None
    waiting = sum(pod.gpus or 0 for pod in store.pods.values() if pod.gang == gang and pod.pending)
    told = [f"{gang} was neither lent to nor evicted"]
    if plan is not None and refusal is not None:
        told.append(words.passed_over("passed over", plan, refusal))
    told += [f"it waits for {waiting} GPUs"] if waiting else []
    told += [words.again(record, store.latest)] if record else []
    rejected = (refusal,) if refusal else ()
    return Story(target, kind, _joined(told), plan, (), (), record, rejected, again)


def _loans_of(store: Store, uid: str) -> tuple[Loan, ...]:
    return tuple(sorted((one for one in store.loans.values() if one.node == uid), key=lambda one: one.opened_at))


def _blockers(store: Store, uid: str) -> str:
    node = store.nodes.get(uid)
    pool = store.pools.get(node.pool) if node else None
    if pool is None or not pool.idle_blockers:
        return ""
    listed = sorted(pool.idle_blockers.items(), key=lambda item: (-item[1], item[0]))
    return f"idle GPUs of {pool.pool} stay because of " + ", ".join(f"{why} ({gpus})" for why, gpus in listed)


def _joined(told: Iterable[str]) -> str:
    return "; ".join(part for part in told if part)


def _last(store: Store, concerns: Callable[[Step], bool]) -> tuple[Plan | None, Step | None]:
    for plan in store.recent():
        for step in plan.steps:
            if concerns(step):
                return plan, step
    return None, None


def _last_rejection(store: Store, names: set[str]) -> tuple[Plan | None, Alternative | None]:
    for plan in store.recent():
        for alternative in plan.alternatives:
            if alternative.target in names:
                return plan, alternative
    return None, None


def _of_target(store: Store, plan: Plan, names: set[str]) -> tuple[Outcome, ...]:
    return tuple(told for told in store.results(plan) if told.target in names or told.step < 0)


def _record(store: Store, gang: str) -> WorkloadRecord | None:
    workloads = sorted({pod.workload for pod in store.pods.values() if pod.gang == gang})
    workloads += [step.workload for _, step in store.evictions(gang)]
    return next((store.workloads[name] for name in workloads if name in store.workloads), None)


def _gang_of(store: Store, target: str) -> str | None:
    for gang, names in _pods(store):
        if target == gang or target in names:
            return gang
    return target if target in _gangs(store) else None


def _nodes(store: Store) -> Iterator[tuple[str, str]]:
    yield from ((node.uid, node.name) for node in store.nodes.values())
    yield from ((loan.node, loan.node_name) for loan in store.loans.values())
    for plan in store.recent():
        yield from ((step.node, step.node_name) for step in plan.steps if not isinstance(step, EvictGang))


def _pods(store: Store) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for pod in store.pods.values():
        yield pod.gang, _names(pod.uid, pod.namespace, pod.name)
    for plan in store.recent():
        for step in plan.steps:
            if isinstance(step, EvictGang):
                for member in step.members:
                    yield step.gang, _names(member.uid, member.namespace, member.name)


def _names(uid: str, namespace: str, name: str) -> tuple[str, str, str]:
    return uid, f"{namespace}/{name}", name


def _gangs(store: Store) -> set[str]:
    plans = store.plans.values()
    chosen = {getattr(step, "gang", "") for plan in plans for step in plan.steps}
    rejected = {one.target for plan in plans for one in plan.alternatives}
    return (chosen | rejected | {loan.gang for loan in store.loans.values()}) - {""}


def _less_exact(store: Store, target: str) -> Story:
    called = sorted(gang for gang in _every_gang(store) if target in _short(gang))
    if len(called) == 1:
        return of_gang(store, called[0], "gang", called[0])
    ordered = sorted(set(_known(store)))
    begins = called or [name for name in ordered if len(target) >= LEAST_PREFIX and name.startswith(target)]
    if len(begins) == 1:
        return why(store, begins[0])
    place = bisect_left(ordered, target)
    around = ordered[max(0, place - COMPARED) : place + COMPARED]
    nearest = begins or get_close_matches(target, around, n=NEAREST, cutoff=0.5)
    raise UnknownTarget(target, tuple(nearest[:NEAREST]))


def _every_gang(store: Store) -> set[str]:
    return _gangs(store) | {gang for gang, _ in _pods(store)}


def _short(gang: str) -> tuple[str, str]:
    """What people call a gang: its own name, with or without the namespace."""
    parts = gang.split("/")
    return parts[-1], f"{parts[0]}/{parts[-1]}"


def _known(store: Store) -> Iterator[str]:
    yield from store.plans
    yield from store.loans
    yield from store.alerts
    yield from _every_gang(store)
    yield from (name for _, name in _nodes(store))
    yield from (names[1] for _, names in _pods(store))
