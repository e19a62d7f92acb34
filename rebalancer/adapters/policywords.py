"""Every value of a policy in words: what is in force, its default, its unit.

For `policy explain` and the pages that show a policy. It reads the core's own fields, so that a new setting
appears here by itself; it must never hold a default of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from typing import Any

from rebalancer.adapters.policyfile import LISTS, SECTIONS
from rebalancer.adapters.scalars import spoken
from rebalancer.core.facts import Taint
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.windows import Window

UNITS: Mapping[str, str] = {
    "floor_nodes": "nodes",
    "floor_share": "share of the pool's nodes",
    "target_utilisation": "share of a GPU",
    "shortage_budget": "share of demand",
    "idle_below": "share of a GPU",
    "busy_from": "share of a GPU",
    "frozen_scrapes": "scrapes",
    "evictions_per_second": "evictions/s",
    "eviction_burst": "evictions",
    "nodes_per_pool": "nodes in `per`",
    "nodes_per_cluster": "nodes in `per`",
    "circuit_share": "share of the pool's nodes",
    "max_loans": "loans",
    "preemptions_per_day": "preemptions/day",
    "namespace_preemptions_per_day": "preemptions/day",
    "gang_cost_gpu_seconds": "GPU-seconds",
    "debounce_samples": "samples",
    "headroom_prior_share": "share of the pool's GPUs",
    "contended_tries": "tries",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One setting: ``default`` is "" where the file must say it; ``changed`` tells it from its default."""

    path: str
    value: str
    default: str
    unit: str
    changed: bool


def explain(policy: Policy) -> tuple[Line, ...]:
    """Every value in force, in the order of the policy's fields."""
    return tuple(_lines(policy))


def _lines(policy: Policy) -> Iterator[Line]:
    for name, pool in policy.pools.items():
        yield from _fields(f"pools.{name}", PoolPolicy, pool)
    for section, kind in SECTIONS.items():
        yield from _fields(section, kind, getattr(policy, section))
    defaults = {field.name: field.default for field in fields(Policy)}
    for name in LISTS:
        yield _line(name, getattr(policy, name), defaults[name], "names")


def _fields(path: str, kind: type[Any], held: object) -> Iterator[Line]:
    for field in fields(kind):
        if field.name == "name":
            continue
        value = getattr(held, field.name)
        unit = "duration" if isinstance(value, timedelta) else UNITS.get(field.name, "")
        yield _line(f"{path}.{field.name}", value, field.default, unit)


def _line(path: str, value: object, default: object, unit: str) -> Line:
    told = "" if default is MISSING else written(default)
    return Line(path, written(value), told, unit, changed=default is MISSING or value != default)


def written(value: object) -> str:
    """A value as the policy file would have it."""
    if isinstance(value, tuple):
        return ", ".join(written(item) for item in value) or "none"
    for kind, spell in SPELLINGS.items():
        if isinstance(value, kind):
            return spell(value)
    return str(value)


def _taint(taint: Taint) -> str:
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _window(window: Window) -> str:
    if window.always:
        return "always"
    days = " ".join(DAYS[day] for day in sorted(window.days)) if len(window.days) < len(DAYS) else "daily"
    later = f" +{window.end_days}d" if window.end_days else ""
    gaps = "".join(f" -{day}" for day in sorted(window.except_dates))
    return f"{days} {window.start:%H:%M}-{window.end:%H:%M}{later} {window.zone.key}{gaps}"


SPELLINGS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    float: lambda value: f"{value:g}",
    timedelta: spoken,
    Taint: _taint,
    Window: _window,
}
