"""The policy that fits a scenario: its pools and windows, and the numbers that the scenario overrides.

A run may bring another policy; this one is what the shipped scenarios mean. Zones are built here, at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window
from rebalancer.simulate.fleet import owner_taint
from rebalancer.simulate.loading import ScenarioError
from rebalancer.simulate.scenario import PoolSpec, Scenario, WindowSpec

_SECTIONS = ("activities", "pace", "borrowing", "signals", "acting")


def policy_of(scenario: Scenario, mode: Mode = Mode.ACT) -> Policy:
    """The scenario's policy; raises :class:`ScenarioError` for an override that does not exist."""
    zone = ZoneInfo(scenario.zone)
    pools = {pool.name: _pool(pool, zone, mode) for pool in scenario.pools}
    known = Policy(pools).models
    models = tuple(dict.fromkeys((*known, *(pool.model for pool in scenario.pools if pool.model))))
    policy = Policy(pools, models=models)
    for section, values in scenario.policy.items():
        if section not in _SECTIONS or not isinstance(values, Mapping):
            raise ScenarioError(f"policy.{section}", f"must be a mapping in one of {', '.join(_SECTIONS)}")
        changed = _overridden(getattr(policy, section), values, f"policy.{section}")
        policy = replace(policy, **{section: changed})
    return policy


def _overridden(section: Any, values: Mapping[str, Any], path: str) -> Any:
    known = {item.name: getattr(section, item.name) for item in fields(section)}
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ScenarioError(f"{path}.{key}", "unknown key")
        if isinstance(value, bool) is not isinstance(known[key], bool) or not isinstance(value, int | float):
            raise ScenarioError(f"{path}.{key}", f"has no place for {value!r}")
        changes[key] = timedelta(seconds=value) if isinstance(known[key], timedelta) else value
    return replace(section, **changes)


def _pool(spec: PoolSpec, zone: ZoneInfo, mode: Mode) -> PoolPolicy:
    return PoolPolicy(
        name=spec.name,
        model=spec.model,
        owner=OwnerClass(spec.owner),
        mode=mode,
        windows=tuple(_window(window, zone) for window in spec.windows),
        lends_to=tuple(OwnerClass(name) for name in spec.lends_to),
        owner_taint=owner_taint(spec),
        floor_nodes=spec.floor_nodes,
        floor_share=spec.floor_share,
        cold_start=timedelta(seconds=spec.cold_start_seconds),
    )


def _window(spec: WindowSpec, zone: ZoneInfo) -> Window:
    if spec.always:
        return Window(spec.name, zone, always=True)
    start, end = time.fromisoformat(spec.start), time.fromisoformat(spec.end)
    return Window(spec.name, zone, start, end, frozenset(spec.days), end_days=0 if start < end else 1)
