"""How much each inference service is asked for, in GPUs, at a second: curves, noise, spikes, traces.

Drawn from generators of its own, one draw a tick and service, so that the load of a seed is the same whatever the
cluster does with it: only then can a run be compared with the one without lending.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from datetime import time
from random import Random
from zoneinfo import ZoneInfo

from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.loading import seconds_of
from rebalancer.simulate.scenario import Scenario, ServiceSpec, SpikeSpec

_DAY = 86400.0
_MEMORY = 0.9
"""How much of a tick's deviation lives on in the next: noise of a service wanders, it does not flicker."""


def local_seconds(agenda: Agenda, zone: ZoneInfo, t: float) -> float:
    """Local second of the day."""
    local = agenda.clock(t).astimezone(zone)
    return local.hour * 3600.0 + local.minute * 60.0 + local.second


class Curve:
    """Piecewise linear over a local day, closed over midnight."""

    def __init__(self, points: Mapping[str, float]) -> None:
        known = sorted((_second_of(clock), share) for clock, share in points.items())
        first, last = known[0], known[-1]
        self._points = [(last[0] - _DAY, last[1]), *known, (first[0] + _DAY, first[1])]
        self._starts = [moment for moment, _ in self._points]

    def at(self, second: float) -> float:
        """The share of the peak at a local second of the day."""
        i = bisect_right(self._starts, second) - 1
        (t0, y0), (t1, y1) = self._points[i], self._points[i + 1]
        return y0 + (y1 - y0) * (second - t0) / (t1 - t0)


def _second_of(clock: str) -> float:
    moment = time.fromisoformat(clock)
    return moment.hour * 3600.0 + moment.minute * 60.0 + moment.second


class Loads:
    """The loads of all services; :meth:`tick` draws, :meth:`at` tells."""

    def __init__(self, scenario: Scenario, agenda: Agenda) -> None:
        self._scenario = scenario
        self._agenda = agenda
        self._zone = ZoneInfo(scenario.zone)
        self._curves = {name: Curve(points) for name, points in scenario.curves.items()}
        self._noise = {item.name: Random(f"{scenario.seed}/load/{item.name}") for item in scenario.services}
        self._drift = dict.fromkeys(self._noise, 0.0)
        pools = {item.pool for item in scenario.services}
        self._gusts = {pool: Random(f"{scenario.seed}/gust/{pool}") for pool in sorted(pools)}
        self._spikes = [(spike, seconds_of(spike.at, scenario)) for spike in scenario.spikes]
        self._now: dict[str, float] = {}

    def tick(self, t: float) -> None:
        """Work out every service's load at ``t``."""
        second = local_seconds(self._agenda, self._zone, t)
        drawn: dict[tuple[str, float], float] = {}
        for service in self._scenario.services:
            if service.trace:
                key = (service.pool, service.trace_noise)
                if key not in drawn:
                    drawn[key] = _gamma(self._gusts[service.pool], service.trace_noise)
                load = _traced(service, t, drawn[key])
            else:
                load = self._curved(service, second)
            self._now[service.name] = load + self._spiked(service.name, t)

    def at(self, service: str) -> float:
        """GPUs that a service is asked for since the last tick."""
        return self._now[service]

    def _curved(self, service: ServiceSpec, second: float) -> float:
        draw = self._noise[service.name].gauss(0.0, 1.0) * math.sqrt(1 - _MEMORY**2)
        self._drift[service.name] = _MEMORY * self._drift[service.name] + draw
        factor = max(0.0, 1.0 + service.noise * self._drift[service.name])
        return service.peak_gpus * self._curves[service.curve].at(second) * factor

    def _spiked(self, service: str, t: float) -> float:
        return sum(_height(spike, t - at) for spike, at in self._spikes if spike.service == service)


def _height(spike: SpikeSpec, since: float) -> float:
    if not 0.0 <= since < spike.seconds:
        return 0.0
    return spike.gpus if since >= spike.rise_seconds else spike.gpus * since / spike.rise_seconds


def _gamma(rng: Random, variation: float) -> float:
    """Gamma with mean 1 and the given coefficient of variation."""
    if variation <= 0.0:
        return 1.0
    shape = variation**-2
    return rng.gammavariate(shape, 1.0 / shape)


def _traced(service: ServiceSpec, t: float, factor: float) -> float:
    place = min(max(t, 0.0) / service.trace_seconds, len(service.trace) - 1.0)
    i = min(int(place), len(service.trace) - 2) if len(service.trace) > 1 else 0
    right = service.trace[min(i + 1, len(service.trace) - 1)]
    total = service.trace[i] + (right - service.trace[i]) * (place - i)
    return service.trace_share * math.ceil(total * factor - 1e-9)
