"""From a plain mapping to a :class:`Scenario`, with errors that say where and what.

Format (YAML or JSON, parsed at the edge): the keys of the dataclasses in ``scenario``, nested as they are::

    name: night                       # required, as are start and pools
    start: 2026-03-10T17:00:00        # local time in `zone` unless it carries an offset
    zone: Europe/Berlin
    pools:
      - {name: infer-a100, owner: inference, model: A100, nodes: 4, lends_to: [training],
         windows: [{name: night, start: "20:00", end: "06:45"}]}
    curves: {evening: {"07:00": 0.3, "09:00": 1.0, "20:00": 1.0, "22:00": 0.3}}
    services: [{name: chat, pool: infer-a100, gpus: 8, minimum: 1, maximum: 3, peak_gpus: 24, curve: evening}]
    spikes: [{service: chat, at: "03:00", seconds: 1800, gpus: 8}]
    streams: [{name: tune, shapes: [[2, 8, 1]], hours: [1, 4], keep_waiting: 4,
               template: {models: [A100]}}]         # name, pods, gpus, seconds of the template are drawn
    jobs: [{name: one, at: 600, pods: 1, gpus: 8, seconds: 3600, models: [A100]}]
    faults: [{kind: exporter-silent, at: "01:00", seconds: 1800}]
    policy: {activities: {dwell: 600}}              # durations in seconds

Unknown keys, wrong types and dangling names are refused. No file is opened here.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, time, timedelta
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rebalancer.core.protocol.calls import AnswerKind
from rebalancer.simulate.scenario import Clock, JobSpec, PoolSpec, Scenario, StreamSpec

_ANSWERS = tuple(AnswerKind)
_DRAWN = {"name": "", "pods": 1, "gpus": 1, "seconds": 0.0}


class ScenarioError(ValueError):
    """A scenario that cannot be played: ``path`` is dotted, as in the file."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or '.'}: {message}")
        self.path = path
        self.message = message


def load(data: Mapping[str, Any]) -> Scenario:
    """A scenario from a mapping; raises :class:`ScenarioError` for the first thing that is wrong."""
    scenario: Scenario = _record(Scenario, data, "")
    zone = _zone(scenario.zone)
    start = scenario.start if scenario.start.tzinfo else scenario.start.replace(tzinfo=zone)
    values = {item.name: getattr(scenario, item.name) for item in fields(Scenario)} | {"start": start}
    scenario = Scenario(**values)
    _check(scenario)
    return scenario


def seconds_of(clock: Clock, scenario: Scenario) -> float:
    """Seconds since the start of a clock value."""
    if not isinstance(clock, str):
        return float(clock)
    local = scenario.start.astimezone(_zone(scenario.zone))
    moment = datetime.combine(local.date(), time.fromisoformat(clock), tzinfo=local.tzinfo)
    if moment < local:
        moment = datetime.combine(local.date() + timedelta(days=1), moment.time(), tzinfo=local.tzinfo)
    return moment.timestamp() - local.timestamp()


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ScenarioError("zone", f"unknown zone {name!r}") from None


def _record(of: type[Any], data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ScenarioError(path, f"must be a mapping, is {type(data).__name__}")
    hints = get_type_hints(of)
    values: dict[str, Any] = {}
    known = {item.name: item for item in fields(of)}
    for key, value in data.items():
        if key not in known:
            raise ScenarioError(_join(path, str(key)), f"unknown key; known are {', '.join(sorted(known))}")
        values[key] = _value(hints[key], _drawn(of, key, value, path), _join(path, key))
    for name, item in known.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ScenarioError(_join(path, name), "is missing")
    return of(**values)


def _drawn(of: type[Any], key: str, value: Any, path: str) -> Any:
    """What a stream draws need not be written in its template, and writing it would be a mistake."""
    if of is not StreamSpec or key != "template" or not isinstance(value, Mapping):
        return value
    for name in _DRAWN:
        if name in value:
            raise ScenarioError(_join(path, f"template.{name}"), "is drawn by the stream")
    return {**_DRAWN, **value}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _value(hint: Any, value: Any, path: str) -> Any:
    origin = get_origin(hint)
    if is_dataclass(hint):
        return _record(hint, value, path)  # type: ignore[arg-type]  # a dataclass hint is a class, not an instance
    if origin in (Union, types.UnionType):
        return _union(get_args(hint), value, path)
    if origin is Literal:
        if value not in get_args(hint):
            raise ScenarioError(path, f"must be one of {', '.join(map(str, get_args(hint)))}, is {value!r}")
        return value
    if origin is tuple:
        return _tuple(get_args(hint), value, path)
    if origin is not None:
        return _mapping(get_args(hint), value, path)
    return _scalar(hint, value, path)


def _union(hints: Sequence[Any], value: Any, path: str) -> Any:
    if value is None and type(None) in hints:
        return None
    trouble = ScenarioError(path, f"has no place for {value!r}")
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return _value(hint, value, path)
        except ScenarioError as error:
            trouble = error
    raise trouble


def _tuple(hints: Sequence[Any], value: Any, path: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ScenarioError(path, f"must be a list, is {type(value).__name__}")
    many = len(hints) == 2 and hints[1] is Ellipsis
    if not many and len(value) != len(hints):
        raise ScenarioError(path, f"must have {len(hints)} entries, has {len(value)}")
    return tuple(_value(hints[0] if many else hints[i], item, f"{path}[{i}]") for i, item in enumerate(value))


def _mapping(hints: Sequence[Any], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ScenarioError(path, f"must be a mapping, is {type(value).__name__}")
    return {str(key): _value(hints[1], item, _join(path, str(key))) for key, item in value.items()}


def _scalar(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    if hint is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            raise ScenarioError(path, f"is no ISO 8601 time: {value!r}") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ScenarioError(path, f"must be {hint.__name__}, is {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ScenarioError(path, f"must be finite, is {value!r}")
    return value


def _check(scenario: Scenario) -> None:
    pools = {pool.name for pool in scenario.pools}
    services = {service.name for service in scenario.services}
    _require(bool(pools), "pools", "at least one is needed")
    _require(len(pools) == len(scenario.pools), "pools", "two have the same name")
    _require(len(services) == len(scenario.services), "services", "two have the same name")
    _require(scenario.step_seconds > 0, "step_seconds", "must be positive")
    _require(scenario.steps > 0, "hours", "must hold at least one step")
    for i, pool in enumerate(scenario.pools):
        _check_pool(pool, f"pools[{i}]")
    for name, points in scenario.curves.items():
        _require(bool(points), f"curves.{name}", "at least one point is needed")
        for clock in points:
            _check_clock(clock, f"curves.{name}")
    for i, service in enumerate(scenario.services):
        path = f"services[{i}]"
        _require(service.gpus >= 1, f"{path}.gpus", "must be at least 1")
        _require(service.pool in pools, f"{path}.pool", f"no pool {service.pool!r}")
        curved = bool(service.trace) or service.curve in scenario.curves
        _require(curved, f"{path}.curve", f"no curve {service.curve!r}")
        _require(0 <= service.minimum <= service.maximum, f"{path}.minimum", "must lie between 0 and maximum")
    for i, spike in enumerate(scenario.spikes):
        _require(spike.service in services, f"spikes[{i}].service", f"no service {spike.service!r}")
        _check_clock(spike.at, f"spikes[{i}].at")
    for i, fault in enumerate(scenario.faults):
        _check_clock(fault.at, f"faults[{i}].at")
        if fault.kind == "api":
            _require(fault.target in _ANSWERS, f"faults[{i}].target", f"must be one of {', '.join(_ANSWERS)}")
    for i, job in enumerate(scenario.jobs):
        _check_job(job, f"jobs[{i}]")
    for i, stream in enumerate(scenario.streams):
        _require(0 < stream.hours[0] <= stream.hours[1], f"streams[{i}].hours", "must be positive and ascending")
        good = [pods >= 1 and gpus >= 0 and weight > 0 for pods, gpus, weight in stream.shapes]
        _require(bool(good) and all(good), f"streams[{i}].shapes", "must be [pods, gpus, weight], weights positive")


def _check_pool(pool: PoolSpec, path: str) -> None:
    _require(pool.nodes >= 0, f"{path}.nodes", "must not be negative")
    _require(pool.gpus >= 0, f"{path}.gpus", "must not be negative")
    _require(pool.floor_nodes >= 0, f"{path}.floor_nodes", "must not be negative")
    _require(0.0 <= pool.floor_share <= 1.0, f"{path}.floor_share", "must lie between 0 and 1")
    for i, window in enumerate(pool.windows):
        _check_clock(window.start, f"{path}.windows[{i}].start")
        _check_clock(window.end, f"{path}.windows[{i}].end")
        _require(set(window.days) <= set(range(7)), f"{path}.windows[{i}].days", "must lie between 0 and 6")


def _check_job(job: JobSpec, path: str) -> None:
    _require(job.pods >= 1, f"{path}.pods", "must be at least 1")
    _require(job.gpus >= 0, f"{path}.gpus", "must not be negative")
    _require(job.seconds > 0, f"{path}.seconds", "must be positive")
    _require(job.min_pods is None or 1 <= job.min_pods <= job.pods, f"{path}.min_pods", "must lie between 1 and pods")


def _check_clock(clock: Clock, path: str) -> None:
    if isinstance(clock, str):
        try:
            time.fromisoformat(clock)
        except ValueError:
            raise ScenarioError(path, f"is neither seconds nor HH:MM: {clock!r}") from None


def _require(holds: bool, path: str, message: str) -> None:
    if not holds:
        raise ScenarioError(path, message)
