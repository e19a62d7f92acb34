"""What a table expects, matched against what was played: plans, outcomes, alerts, with times and counts.

A pattern is a mapping; each of its words is one comparison, and all must hold. Words are the same on both levels.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.plan import EvictGang, LendNode, Outcome, Plan
from tests.scenarios.terms import Plain, TableError, Words, names

BOUND = re.compile(r"(<=|>=|<|>|==)\s*(-?[\d.]+)")
SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
Word = Callable[[Any, Any, Words], bool]


def within(bound: Any, value: Any) -> bool:
    """Whether a value keeps a bound: "<= 3", ">= 1 <= 4", or a plain value to equal."""
    if not isinstance(bound, str):
        return bool(value == bound)
    parts = BOUND.findall(bound)
    if not parts:
        return bool(value == bound)
    return all(SIGNS[sign](value, float(number)) for sign, number in parts)


def targets(plan: Plan, kind: str) -> set[str]:
    """Node names of the plan's steps of a kind, gangs for ``evict``."""
    return {step.gang if isinstance(step, EvictGang) else step.node_name for step in plan.steps if step.kind == kind}


def _alternatives(wanted: Plain, plan: Plan, _words: Words) -> bool:
    told = {item.target: item.because.reason.value for item in plan.alternatives}
    return all(told.get(target) == reason for target, reason in wanted.items())


def _numbers(wanted: Plain, item: Any, _words: Words) -> bool:
    return all(within(bound, item.because.numbers.get(key)) for key, bound in wanted.items())


def _to(wanted: Any, plan: Plan, _words: Words) -> bool:
    return {step.gang for step in plan.steps if isinstance(step, LendNode)} == set(names(wanted))


def _exactly(kind: str) -> Word:
    return lambda wanted, plan, _words: targets(plan, kind) == set(names(wanted))


def _contains(kind: str) -> Word:
    return lambda wanted, plan, _words: set(names(wanted)) <= targets(plan, kind)


def _members(wanted: Any, plan: Plan, _words: Words) -> bool:
    return within(wanted, sum(len(step.members) for step in plan.steps if isinstance(step, EvictGang)))


def _due(wanted: Any, plan: Plan, words: Words) -> bool:
    dues = {step.due for step in plan.steps if isinstance(step, LendNode)}
    return dues == {words.moment(wanted)}


def _attribute(name: str) -> Word:
    return lambda wanted, item, _words: bool(getattr(item, name) == wanted)


PLAN: Mapping[str, Word] = {
    "method": _attribute("method"), "pool": _attribute("pool"), "mode": _attribute("mode"),
    "pressing": _attribute("pressing"), "awaits_approval": _attribute("awaits_approval"),
    "reason": lambda wanted, plan, _words: bool(plan.because.reason == wanted),
    "evicts": _exactly("evict"), "closes": _exactly("close"), "lends": _exactly("lend"),
    "evicting": _contains("evict"), "closing": _contains("close"), "lending": _contains("lend"),
    "to": _to, "due": _due, "members": _members, "numbers": _numbers, "alternatives": _alternatives,
    "nodes": lambda wanted, plan, _words: within(wanted, sum(step.kind in ("close", "lend") for step in plan.steps)),
    "gangs": lambda wanted, plan, _words: within(wanted, len(targets(plan, "evict"))),
}  # fmt: skip
OUTCOME: Mapping[str, Word] = {
    "kind": _attribute("kind"), "result": _attribute("result"), "target": _attribute("target"), "numbers": _numbers,
    "reason": lambda wanted, outcome, _words: bool(outcome.because.reason == wanted),
}  # fmt: skip
ALERT: Mapping[str, Word] = {
    "target": _attribute("target"), "pool": _attribute("pool"), "severity": _attribute("severity"),
    "reason": lambda wanted, alert, _words: bool(alert.because.reason == wanted),
}  # fmt: skip
TIMES = ("at", "between", "after", "before")


def in_time(pattern: Plain, at: datetime, words: Words) -> bool:
    """Whether a moment keeps ``at``, ``between: [first, last]`` (both included), ``after`` and ``before``."""
    first, last = pattern.get("between", (None, None))
    return (
        ("at" not in pattern or at == words.moment(pattern["at"]))
        and (first is None or words.moment(first) <= at <= words.moment(last))
        and ("after" not in pattern or at > words.moment(pattern["after"]))
        and ("before" not in pattern or at < words.moment(pattern["before"]))
    )


def matching(
    pattern: Plain, found: Iterable[tuple[datetime, Any]], known: Mapping[str, Word], words: Words
) -> list[tuple[datetime, Any]]:
    """The entries that a pattern describes."""
    asked = {key: value for key, value in pattern.items() if key not in (*TIMES, "count", "cleared", "cleared_by")}
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise TableError(f"no pattern knows {', '.join(unknown)}")
    return [
        (at, item)
        for at, item in found
        if in_time(pattern, at, words) and all(known[key](value, item, words) for key, value in asked.items())
    ]


def line(at: datetime, item: Plan | Outcome | RaiseAlert, words: Words) -> str:
    """One entry in one line, for the message of a failed table."""
    clock = f"{at.astimezone(words.zone):%H:%M:%S} (+{words.minutes(at):g})"
    if isinstance(item, Plan):
        parts = [f"{kind} {sorted(targets(item, kind))}" for kind in ("lend", "close", "evict") if targets(item, kind)]
        passed = {other.target: other.because.reason.value for other in item.alternatives}
        wait = " awaits approval" if item.awaits_approval else ""
        return f"{clock} {item.method.value} {item.because.reason.value} {', '.join(parts)} passed {passed}{wait}"
    if isinstance(item, Outcome):
        return f"{clock} {item.kind} {item.target} {item.result.value} {item.because.reason.value}"
    return f"{clock} alert {item.because.reason.value} {item.target}"
