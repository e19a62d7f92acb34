"""Where training jobs come from: given ones at their time, and streams drawn from a seed.

A stream arrives at random and, if asked, never lets the queue run dry. Jobs drawn before the scenario's start are
already part done, so that a day does not begin with a wave of equal ages. What becomes of jobs is ``training``'s.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.scenario import JobSpec, Scenario, StreamSpec
from rebalancer.simulate.training import Training


class _Source:
    def __init__(self, spec: StreamSpec, seed: int) -> None:
        self.spec = spec
        self.arrivals = Random(f"{seed}/arrivals/{spec.name}")
        self._shapes = Random(f"{seed}/shapes/{spec.name}")
        self._made = 0

    def draw(self) -> JobSpec:
        spec, rng = self.spec, self._shapes
        self._made += 1
        pods, gpus, _ = rng.choices(spec.shapes, [weight for _, _, weight in spec.shapes])[0]
        low, high = spec.hours
        hours = math.exp(rng.uniform(math.log(low), math.log(high)))
        elastic = rng.random() < spec.elastic_share and pods > 1
        return replace(
            spec.template,
            name=f"{spec.name}-{self._made:03d}",
            pods=pods,
            gpus=gpus,
            seconds=round(hours * 3600.0),
            min_pods=math.ceil(pods / 2) if elastic else None,
        )

    def part_done(self, job: JobSpec) -> float:
        return job.seconds * self._shapes.uniform(0.0, 0.9)


class Jobs:
    """Feeds the queue; :meth:`tick` tops it up."""

    def __init__(self, scenario: Scenario, agenda: Agenda, training: Training) -> None:
        self._agenda = agenda
        self._training = training
        self._sources = [_Source(spec, scenario.seed) for spec in scenario.streams]
        for job in scenario.jobs:
            self._arrange(job)
        for source in self._sources:
            if source.spec.per_hour > 0:
                self._next_arrival(source, agenda.now)

    def _arrange(self, job: JobSpec) -> None:
        self._agenda.at(job.at, lambda t: self._training.submit(job, "", t))

    def _next_arrival(self, source: _Source, t: float) -> None:
        gap = source.arrivals.expovariate(source.spec.per_hour / 3600.0)
        self._agenda.at(t + gap, lambda at: self._arrive(source, at))

    def _arrive(self, source: _Source, t: float) -> None:
        self._submit(source, t)
        self._next_arrival(source, t)

    def _submit(self, source: _Source, t: float) -> None:
        job = source.draw()
        done = source.part_done(job) if t < 0 else 0.0
        self._training.submit(job, source.spec.name, t, done=done)

    def tick(self, t: float) -> None:
        """Fill queues up to what their streams never go below."""
        for source in self._sources:
            for _ in range(source.spec.keep_waiting - self._training.waiting(source.spec.name)):
                self._submit(source, t)
