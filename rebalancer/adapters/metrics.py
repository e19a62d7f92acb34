"""What Prometheus sees: names, labels from closed sets, every series there from the start, a registry of our own.

A limit that is not set shows as +Inf, so that `used / limit` is always a number; what this process does not know is
NaN, never 0. Label values come from enums and from the policy's pools, never from objects of the cluster. Counting
never fails and never decides anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rebalancer.adapters.decode.foreign import FORMATS
from rebalancer.adapters.evictions import EvictionTally
from rebalancer.adapters.tallies import PoolTally
from rebalancer.core.plan import Method, Result
from rebalancer.core.protocol.calls import AnswerKind
from rebalancer.core.reasons import Reason
from rebalancer.core.units import Mode

NAMESPACE = "gpu_rebalancer"
ROLES = ("collect", "telemetry", "decide", "act")
STAGES = ("topic", "bytes", "envelope", "shape", "meaning", "route", "handle")
ROWS_DROPPED = (
    "no-gpu", "unused-metric", "blank", "nan", "range", "unknown-node", "stale", "late", "future", "old", "crowded",
)  # fmt: skip
EVENTS = ("told", "repeated", "crowded", "failed")
LISTS = ("told", "not-whole", "shared")
LATENCIES = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WHY_PLANNED = (
    Reason.IDLE_PROVEN, Reason.INFERENCE_PENDING, Reason.INFERENCE_RISING, Reason.LOAN_DUE, Reason.LOAN_RENEWED,
    Reason.OPERATOR_RECALL, Reason.DEMAND_GONE, Reason.RETIRING, Reason.NODE_QUARANTINED,
)  # fmt: skip
"""Reasons that plans are made for; a plan of another one still counts, it only has no series before."""
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "evict", "review")
"""What may be asked of the API server."""
KINDS = (
    "node", "pod", "budget", "namespace", "control", "group", "claim", "lease", "event", "access", "other",
)  # fmt: skip
"""What it may be asked about; every gang kind is `group`."""
EVENTS = ("told", "failed", "repeated", "crowded")
"""What became of Kubernetes Events: repeated ones are told once, of too many the newest are left out."""
DROPPED = ("outcome", "plan")
"""What act may have to drop that it could not tell for too long."""
DELIVERIES = ("accepted", "refused", "failed", "timed-out", "unreachable")
"""What became of alerts offered to an Alertmanager."""


class Metrics:
    """All of a process's metrics. ``roles`` are those that run in it."""

    def __init__(self, roles: Iterable[str] = ROLES) -> None:
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
        self.plans = self._counter(
            "plans", "Plans published. Labeled by method, mode and reason.", ("method", "mode", "reason")
        )
        self.outcomes = self._counter("outcomes", "Outcomes told by act. Labeled by result.", ("result",))
        self.outbox_dropped = self._counter(
            "outbox_dropped", "Records of act that were too many to wait for Kafka. Labeled by record.", ("record",)
        )
        self.planning = Histogram(
            f"{NAMESPACE}_planning_seconds", "Time to make plans once.", buckets=LATENCIES, registry=self.registry
        )
        self.leader = self._gauge("leader", "1 while this process holds the role's Lease. Labeled by role.", ("role",))
        self.lease_taken = self._counter("lease_taken", "Times the role's lease was taken. Labeled by role.", ("role",))
        self.events = self._counter("events", "Kubernetes Events told. Labeled by result.", ("result",))
        self.term = self._gauge("term", "The decider's fencing term.", ())
        self.max_loans = self._gauge(
            "loans_limit", "Loans allowed at once, as decided here; +Inf: not decided here.", ()
        )
        self.max_loans.set(math.inf)
        self.pools = PoolTally(self.registry) if "decide" in self.roles else None
        self.evictions = EvictionTally(self.registry) if "act" in self.roles else None
        self._begin_sources()
        self._begin_cluster()
        self._begin_alerts()
        self._begin()

    # -- the API server, as adapters.cluster tells it -----------------------------------------------------------

    def called(self, verb: str, kind: str, result: str, seconds: float) -> None:
        """One call of the API server is over; what is not in the closed sets counts as `other`."""
        kind = kind if kind in KINDS else "other"
        self.calls.labels(verb if verb in VERBS else "other", kind, result).inc()
        self.call_seconds.labels(verb if verb in VERBS else "other").observe(seconds)

    def _begin_cluster(self) -> None:
        self.calls = self._counter(
            "api_calls", "Calls of the API server. Labeled by verb, kind and result.", ("verb", "kind", "result")
        )
        self.call_seconds = Histogram(
            f"{NAMESPACE}_api_call_seconds", "Time that calls of the API server took. Labeled by verb.", ("verb",),
            buckets=LATENCIES, registry=self.registry,
        )  # fmt: skip
        if not {"collect", "act"} & set(self.roles):
            return
        for verb in VERBS:
            self.call_seconds.labels(verb)
        for result in EVENTS if "act" in self.roles else ():
            self.events.labels(result)
        for answer in AnswerKind if "act" in self.roles else ():
            for verb, kind in (("evict", "pod"), ("patch", "node"), ("get", "node"), ("list", "pod")):
                self.calls.labels(verb, kind, answer.value)

    # -- alerts -------------------------------------------------------------------------------------------------

    def alertmanager(self, replica: str) -> None:
        """A replica (host and port) that alerts go to."""
        for result in DELIVERIES:
            self.alerts_sent.labels(replica, result)

    def _begin_alerts(self) -> None:
        self.alerts_sent = self._counter(
            "alerts_sent",
            "Alerts offered to an Alertmanager, each time. Labeled by replica and result.",
            ("replica", "result"),
        )
        self.alerts_dropped = self._counter("alerts_dropped", "Alerts that were too many to be remembered.", ())

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
        for method in Method if "decide" in self.roles else ():
            for reason in WHY_PLANNED:
                self.plans.labels(method.value, Mode.ACT.value, reason.value)
        for result in Result if "act" in self.roles else ():
            self.outcomes.labels(result.value)
        for record in DROPPED if "act" in self.roles else ():
            self.outbox_dropped.labels(record)

    def adopt(self, pools: Iterable[str]) -> None:
        """The pools of the policy in force."""
        named = tuple(pools)
        for tally in (self.pools, self.evictions):
            if tally is not None:
                tally.adopt(named)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"{NAMESPACE}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"{NAMESPACE}_{name}", text, labels, registry=self.registry)
