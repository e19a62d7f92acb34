"""From the plain words of a table to objects of the core: moments, nodes, pods, budgets, policies.

Every value is converted by the type of the field it is meant for, so that a table can set whatever the core knows
and a word that does not exist is refused. Nothing here knows a scenario.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo

from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod, Requirement, Taint, Toleration
from rebalancer.core.policy import Policy
from rebalancer.core.stimuli import Fact
from rebalancer.core.windows import Window
from tests.core import build

T = TypeVar("T")
Plain = Mapping[str, Any]
SECTIONS = ("activities", "pace", "borrowing", "signals", "acting")


class TableError(ValueError):
    """A table that says something the runner does not understand."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a table's words are meant: when it starts, and in which zone its clock times are."""

    start: datetime
    zone: ZoneInfo

    def moment(self, value: float | str | datetime) -> datetime:
        """Minutes since the start, local "HH:MM" (its first occurrence from the start on), or an ISO time."""
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=self.zone)
        if isinstance(value, int | float):
            return self.start + timedelta(minutes=value)
        if len(value) > len("HH:MM"):
            return self.moment(datetime.fromisoformat(value))
        local = self.start.astimezone(self.zone)
        found = datetime.combine(local.date(), time.fromisoformat(value), tzinfo=self.zone)
        if found < local:
            found = datetime.combine(local.date() + timedelta(days=1), found.time(), tzinfo=self.zone)
        return found.astimezone(self.start.tzinfo)

    def minutes(self, value: float | str | datetime) -> float:
        """The same as minutes since the start."""
        return (self.moment(value) - self.start) / timedelta(minutes=1)

    def changed(self, base: T, changes: Plain) -> T:
        """A dataclass with fields set from plain values."""
        hints = get_type_hints(type(base))
        known = {item.name for item in fields(base)}  # type: ignore[arg-type]  # callers pass dataclasses only
        unknown = sorted(set(changes) - known)
        if unknown:
            raise TableError(f"{type(base).__name__} has no {', '.join(unknown)}")
        values = {key: self._value(hints[key], value) for key, value in changes.items()}
        return replace(base, **values)  # type: ignore[type-var]  # as above

    def _value(self, hint: Any, value: Any) -> Any:
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            chosen = [item for item in get_args(hint) if item is not type(None)]
            return None if value is None else self._value(chosen[0], value)
        if hint == tuple[Requirement, ...] and isinstance(value, Mapping):
            return tuple(Requirement(key, "In", tuple(wanted)) for key, wanted in value.items())
        if origin is tuple:
            return tuple(self._value(get_args(hint)[0], item) for item in value)
        if origin is frozenset:
            return frozenset(value)
        return self._single(hint, value)

    def _single(self, hint: Any, value: Any) -> Any:
        if hint in _READERS:
            return _READERS[hint](self, value)
        return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value

    def window(self, value: Plain) -> Window:
        """A lending window: Window's fields, times as "HH:MM"; the zone is the table's unless one is given."""
        given = dict(value)
        base = Window(given.pop("name", "window"), ZoneInfo(given.pop("zone", self.zone.key)))
        for key in ("start", "end"):
            if key in given:
                given[key] = time.fromisoformat(given[key])
        given["except_dates"] = [date.fromisoformat(str(day)) for day in given.get("except_dates", ())]
        made = self.changed(base, given)
        implied = 1 if "end_days" not in given and made.end < made.start else made.end_days
        return replace(made, end_days=implied)


def _taint(_words: Words, value: str) -> Taint:
    key, _, rest = value.partition("=")
    text, _, effect = rest.partition(":")
    return Taint(key, text, effect or "NoSchedule")


def _toleration(_words: Words, value: str) -> Toleration:
    key, equals, text = value.partition("=")
    return Toleration(key, "Equal" if equals else "Exists", text)


_READERS: Mapping[Any, Any] = {
    datetime: Words.moment,
    timedelta: lambda _words, value: timedelta(seconds=value),
    Window: Words.window,
    Taint: _taint,
    Toleration: _toleration,
}


def merged(base: Plain, over: Plain) -> dict[str, Any]:
    """A mapping with another laid over it, level by level; lists are replaced."""
    both = {key for key in base if isinstance(base[key], Mapping) and isinstance(over.get(key), Mapping)}
    return {**base, **over, **{key: merged(base[key], over[key]) for key in both}}


def names(value: str | Sequence[str]) -> list[str]:
    """A name, a range such as n0..n3, or a list of names."""
    if not isinstance(value, str):
        return list(value)
    first, dots, last = value.partition("..")
    if not dots:
        return [value]
    stem = first.rstrip("0123456789")
    return [f"{stem}{index}" for index in range(int(first[len(stem) :]), int(last[len(stem) :]) + 1)]


def policy(words: Words, pools: Iterable[Plain], sections: Plain) -> Policy:
    """The builders' policy, without floors, with pools and sections changed; durations in seconds."""
    made = [
        words.changed(
            build.pool_policy(item["name"], floor_nodes=0, floor_share=0.0),
            {key: value for key, value in item.items() if key != "name"},
        )
        for item in pools
    ]
    found = build.policy(*made)
    for key, changes in sections.items():
        if key not in SECTIONS:
            raise TableError(f"policy has no section {key}")
        found = replace(found, **{key: words.changed(getattr(found, key), changes)})
    return found


def nodes(words: Words, rows: Iterable[Plain]) -> list[Node]:
    """Rows of nodes: ``names``, ``pool``, Node's fields, and ``lent`` with the fields of its mark."""
    found: list[Node] = []
    for row in rows:
        given = dict(row)
        mark = given.pop("lent", None)
        pool = given.pop("pool", "infer-a100")
        if "model" in given:
            given.setdefault("labels", {"gpu-model": given["model"], "node-pool": pool})
        for name in names(given.pop("names")):
            item = words.changed(build.node(name, pool), given)
            found.append(item if mark is None else _lent(words, item, mark))
    return found


def _lent(words: Words, item: Node, mark: Plain) -> Node:
    lent = build.lent(item)
    assert lent.loan is not None
    changed = words.changed(lent.loan, mark)
    if "due" in mark and "recall_at" not in mark:
        changed = replace(changed, recall_at=changed.due - timedelta(minutes=20))
    return replace(lent, loan=changed)


def gangs(words: Words, rows: Iterable[Plain]) -> list[Pod]:
    """Rows of gangs: ``name``, ``pods``, ``bound`` (one node a pod, or one for all), and Pod's fields."""
    found: list[Pod] = []
    for row in rows:
        given = dict(row)
        count = given.pop("pods", 1)
        on = names(given.pop("bound", []))
        spread = on * count if len(on) == 1 else on
        built = build.gang(given.pop("name"), count, spread, created_at=words.start - timedelta(hours=2))
        found += [words.changed(pod, given) for pod in built]
    return found


def replicas(words: Words, rows: Iterable[Plain]) -> list[Pod]:
    """Rows of inference replicas: ``names``, ``bound``, and Pod's fields."""
    found: list[Pod] = []
    for row in rows:
        given = dict(row)
        called, on = names(given.pop("names")), names(given.pop("bound", []))
        for index, name in enumerate(called):
            placed = on[index] if len(on) == len(called) else "".join(on[:1])
            found.append(words.changed(build.replica(name, placed), given))
    return found


def budgets(words: Words, rows: Iterable[Plain]) -> list[Budget]:
    """Rows of budgets over one job: ``name``, ``job``, ``allowed``, and Budget's fields."""
    found = []
    for row in rows:
        given = dict(row)
        made = build.budget(given.pop("name"), given.pop("job"), given.pop("allowed"))
        found.append(words.changed(made, given))
    return found


def facts(words: Words, table: Plain) -> list[Fact]:
    """All objects that a table or an event names."""
    spaces = [words.changed(Namespace(f"uid-{row['name']}", row["name"]), row) for row in table.get("namespaces", ())]
    rows = table.get("groups", ())
    specs = [words.changed(GangSpec(f"uid-{row['gang']}", row["gang"], "ml", 1, 1), row) for row in rows]
    control = [words.changed(Control(), table["control"])] if "control" in table else []
    return [
        *nodes(words, table.get("nodes", ())),
        *gangs(words, table.get("gangs", ())),
        *replicas(words, table.get("replicas", ())),
        *budgets(words, table.get("budgets", ())),
        *spaces, *specs, *control,
    ]  # fmt: skip
