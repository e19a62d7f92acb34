"""What Prometheus sees: names, labels from closed sets, every series there from the start, a registry of our own.

A limit that is not set shows as +Inf, so that `used / limit` is always a number. Counting never fails and never
decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rebalancer.adapters.decode.foreign import FORMATS
from rebalancer.core.plan import Method, Result

NAMESPACE = "gpu_rebalancer"
ROLES = ("collect", "telemetry", "decide", "act")
STAGES = ("topic", "bytes", "envelope", "shape", "meaning", "route", "handle")
ROWS_DROPPED = (
    "no-gpu", "unused-metric", "blank", "nan", "range", "unknown-node", "stale", "late", "future", "old", "crowded",
)  # fmt: skip
LISTS = ("told", "not-whole", "shared")
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
        self._begin_sources()
        self._begin()

    def _begin_sources(self) -> None:
        """What configured sources bring; only where they may run."""
        self.source_records = self._counter("source_records", "Foreign records read. Labeled by format.", ("format",))
        self.source_rejected = self._counter(
            "source_rejected",
            "Foreign records, or parts of them, that could not be read. Labeled by format.",
            ("format",),
        )
        self.source_hints = self._counter(
            "source_hints",
            "Changes told without their content, which nothing follows from. Labeled by format.",
            ("format",),
        )
        self.source_stale = self._counter(
            "source_stale",
            "Streams of objects that broke off, so that a full list is wanted. Labeled by format.",
            ("format",),
        )
        self.source_rows = self._counter("source_rows", "Metric rows of GPUs that were taken.", ())
        self.source_rows_dropped = self._counter(
            "source_rows_dropped", "Metric rows that no sample was made of. Labeled by reason.", ("reason",)
        )
        self.source_lists = self._counter(
            "source_lists", "Full lists that ended, and whether they were told. Labeled by result.", ("result",)
        )
        for spelled in FORMATS if "collect" in self.roles else ():
            for metric in (self.source_records, self.source_rejected, self.source_hints, self.source_stale):
                metric.labels(spelled)
        for reason in ROWS_DROPPED if "collect" in self.roles else ():
            self.source_rows_dropped.labels(reason)
        for result in LISTS if "collect" in self.roles else ():
            self.source_lists.labels(result)

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
