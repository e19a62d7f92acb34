"""Checks one played table against its ``expect``, and says everything that is not as expected at once.

Both levels share plans, never, outcomes and alerts; ``end`` asks the engine, ``world`` asks the simulated cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from rebalancer.core import borrowers
from rebalancer.core.engine import Engine
from rebalancer.core.facts import Node
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.methods.refusals import refuses
from rebalancer.core.plan import Outcome, Plan
from tests.scenarios import patterns, terms
from tests.scenarios.memory import Played
from tests.scenarios.patterns import ALERT, OUTCOME, PLAN, line, matching, within
from tests.scenarios.terms import Plain, TableError

Complaints = Iterator[str]
KEYS = ("plans", "never", "outcomes", "alerts", "end", "flaws", "world", "same_as")


def complaints(expect: Plain, played: Played, engine: Engine, now: datetime) -> Complaints:
    """Everything that is not as expected; nothing if all is well."""
    unknown = sorted(set(expect) - set(KEYS))
    if unknown or not expect:
        raise TableError(f"expect knows {', '.join(KEYS)}, not {', '.join(unknown) or 'nothing'}")
    yield from _counted("plan", expect.get("plans", ()), played.plans, PLAN, played)
    yield from _counted("plan", [{**item, "count": 0} for item in expect.get("never", ())], played.plans, PLAN, played)
    yield from _counted("outcome", expect.get("outcomes", ()), played.outcomes, OUTCOME, played)
    yield from _counted("alert", expect.get("alerts", ()), played.alerts, ALERT, played)
    yield from _cleared(expect.get("alerts", ()), played)
    for text in expect.get("flaws", ()):
        if not any(text in flaw for flaw in played.flaws):
            yield f"no flaw says {text!r}: {played.flaws}"
    for key, wanted in expect.get("end", {}).items():
        if key not in END:
            raise TableError(f"end knows {', '.join(END)}, not {key}")
        yield from END[key](wanted, engine, now, played)


def _counted(what: str, rows: Any, found: Any, known: Mapping[str, patterns.Word], played: Played) -> Complaints:
    for pattern in rows:
        hits = matching(pattern, found, known, played.words)
        if not within(pattern.get("count", ">= 1"), len(hits)):
            yield f"{len(hits)} {what}s match {dict(pattern)}"


def _cleared(rows: Any, played: Played) -> Complaints:
    for pattern in rows:
        for _, alert in matching(pattern, played.alerts, ALERT, played.words):
            at = played.cleared.get(alert.id)
            if "cleared" in pattern and (at is not None) is not pattern["cleared"]:
                yield f"alert {alert.because.reason.value} of {alert.target} was cleared at {at}"
            if "cleared_by" in pattern and (at is None or at > played.words.moment(pattern["cleared_by"])):
                yield f"alert {alert.because.reason.value} of {alert.target} was cleared at {at}"


def story(played: Played, limit: int = 60) -> str:
    """What was played, line by line, for the message of a failed table."""
    entries: list[tuple[datetime, Plan | Outcome | RaiseAlert]] = [*played.plans, *played.outcomes, *played.alerts]
    entries.sort(key=lambda entry: entry[0])
    return "\n".join(line(at, item, played.words) for at, item in entries[:limit])


# -- the engine at the end -----------------------------------------------------------------------------------


def _named(engine: Engine, called: Any) -> list[Node]:
    inventory = engine.state.inventory
    found = [(name, inventory.node_named(name)) for name in terms.names(called)]
    missing = [name for name, node in found if node is None]
    if missing:
        raise TableError(f"no node is called {', '.join(missing)}")
    return [node for _, node in found if node is not None]


def _open_loans(wanted: Any, engine: Engine, _now: datetime, _played: Played) -> Complaints:
    count = len(engine.state.open_loans())
    if not within(wanted, count):
        yield f"{count} loans are open"


def _home(wanted: Any, engine: Engine, _now: datetime, _played: Played) -> Complaints:
    yield from (f"{node.name} is not home" for node in _named(engine, wanted) if not engine.state.at_home(node))


def _lent(wanted: Any, engine: Engine, _now: datetime, _played: Played) -> Complaints:
    yield from (f"{node.name} is not lent" for node in _named(engine, wanted) if node.loan is None)


def _refuses(wanted: Plain, engine: Engine, now: datetime, _played: Played) -> Complaints:
    for name, reason in wanted.items():
        because = refuses(engine.state, _named(engine, name)[0], now)
        if (because.reason.value if because else None) != reason:
            yield f"{name} is refused as {because}, not {reason}"


def _borrowers(wanted: Plain, engine: Engine, now: datetime, _played: Played) -> Complaints:
    classes = tuple(engine.state.inventory.pending)
    waiting = {who.gang: who for who in borrowers.waiting_gangs(engine.state, classes)}
    for gang, reason in wanted.items():
        because = borrowers.refused(engine.state, waiting[gang], now) if gang in waiting else "not waiting"
        if (because if isinstance(because, str) else because.reason.value if because else None) != reason:
            yield f"{gang} is refused as {because}, not {reason}"


def _totals(wanted: Plain, engine: Engine, _now: datetime, _played: Played) -> Complaints:
    for pool, sums in wanted.items():
        totals = engine.state.inventory.totals(pool)
        for key, bound in sums.items():
            if not within(bound, getattr(totals, key)):
                yield f"{pool}: {key} is {getattr(totals, key)}, not {bound}"


def _workloads(wanted: Plain, engine: Engine, now: datetime, _played: Played) -> Complaints:
    for name, row in wanted.items():
        record = engine.state.workloads.get(name)
        facts = {
            "evictions": len(record.evictions) if record else 0,
            "cooling": bool(record and record.cooldown_until and record.cooldown_until > now),
            "protected": bool(record and record.protected_until and record.protected_until > now),
        }
        yield from (f"{name}: {key} is {facts[key]}" for key, bound in row.items() if not within(bound, facts[key]))


def _pools(wanted: Plain, _engine: Engine, _now: datetime, played: Played) -> Complaints:
    for pool, row in wanted.items():
        state = played.pools[pool].state
        for key, bound in row.items():
            name, _, inner = key.partition(".")
            value = getattr(state, name)
            value = value.get(inner, 0) if inner else value
            if not within(bound, value):
                yield f"{pool}: {key} is {value}, not {bound}"


END: Mapping[str, Callable[[Any, Engine, datetime, Played], Complaints]] = {
    "open_loans": _open_loans, "home": _home, "lent": _lent, "refuses": _refuses, "borrowers": _borrowers,
    "totals": _totals, "workloads": _workloads, "pools": _pools,
}  # fmt: skip
