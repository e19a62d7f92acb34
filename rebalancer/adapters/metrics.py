"""What Prometheus sees: names, labels from closed sets, every series there from the start, a registry of our own.

A limit that is not set shows as +Inf, so that `used / limit` is always a number. Counting never fails and never
decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rebalancer.core.plan import Method, Result

NAMESPACE = "gpu_rebalancer"
ROLES = ("collect", "telemetry", "decide", "act")
STAGES = ("topic", "bytes", "envelope", "shape", "meaning", "route", "handle")
LATENCIES = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """All of a process's metrics. ``roles`` are those that run in it."""

    def __init__(self, roles: Iterable[str] = ROLES, max_loans: int | None = None) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.roles = tuple(role for role in ROLES if role in set(roles))
        self.records = self._counter("records", "Records handled. Labeled by role.", ("role",))
        self.dead_letters = self._counter(
            "dead_letters", "Records put on a dead-letter topic. Labeled by role and stage.", ("role", "stage")
        )
        self.failures = self._counter("failures", "Attempts that failed and are repeated. Labeled by role.", ("role",))
        self.late = self._counter("samples_dropped", "Samples that were not believed.", ())
        self.lag = self._gauge("lag_records", "Records not handled yet. Labeled by role.", ("role",))
        self.behind = self._gauge("behind_seconds", "Age of the newest event handled. Labeled by role.", ("role",))
        self.ready = self._gauge("ready", "1 while the role is up to date. Labeled by role.", ("role",))
        self.progress = self._gauge(
            "progress_timestamp_seconds", "When the role last finished a round of work. Labeled by role.", ("role",)
        )
        self.plans = self._counter("plans", "Plans published. Labeled by method.", ("method",))
        self.outcomes = self._counter("outcomes", "Outcomes told by act. Labeled by result.", ("result",))
        self.planning = Histogram(
            f"{NAMESPACE}_planning_seconds", "Time to make plans once.", buckets=LATENCIES, registry=self.registry
        )
        self.term = self._gauge("term", "The decider's fencing term.", ())
        self.max_loans = self._gauge("loans_limit", "Loans allowed at once; +Inf: no limit.", ())
        self.max_loans.set(math.inf if max_loans is None else max_loans)
        self._begin()

    def _begin(self) -> None:
        for role in self.roles:
            for metric in (self.records, self.failures, self.lag, self.behind, self.ready, self.progress):
                metric.labels(role)
            for stage in STAGES:
                self.dead_letters.labels(role, stage)
        for method in Method:
            self.plans.labels(method.value)
        for result in Result:
            self.outcomes.labels(result.value)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"{NAMESPACE}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"{NAMESPACE}_{name}", text, labels, registry=self.registry)
