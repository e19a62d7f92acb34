"""The policy: every number that a site may set, with its default (DESIGN 7).

All bounds are finite. :func:`problems` is the one place that says what a legal policy is; files are read and
zones are built at the edge. No decision is taken here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from rebalancer.core.facts import Taint
from rebalancer.core.units import Mode, OwnerClass, PoolName
from rebalancer.core.windows import Window
from rebalancer.core.windows import problems as window_problems


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """One pool: who owns it, when and to whom it lends. Empty ``lends_to``: it never lends."""

    name: PoolName
    model: str
    owner: OwnerClass
    mode: Mode = Mode.SHADOW
    windows: tuple[Window, ...] = ()
    lends_to: tuple[OwnerClass, ...] = ()
    owner_taint: Taint | None = None
    floor_nodes: int = 1
    floor_share: float = 0.20
    target_utilisation: float = 0.70
    believe_idle_without_witness: bool = False
    shortage_budget: float | None = None
    """Share of demand that may be missed; None: 1e-4 if the return takes up to 3 minutes, else 1e-3."""
    cold_start: timedelta = timedelta(0)
    """How long the owner's replica needs from start to ready; added to the return time where demand is forecast."""


@dataclass(frozen=True, slots=True)
class Activities:
    """Thresholds of the activity verdict; utilisations as fractions of one GPU."""

    idle_below: float = 0.05
    busy_from: float = 0.15
    dwell: timedelta = timedelta(minutes=20)
    freshness: timedelta = timedelta(seconds=180)
    frozen_scrapes: int = 5
    lateness: timedelta = timedelta(minutes=5)
    skew: timedelta = timedelta(minutes=2)
    """How far in the future an event time may lie before it is refused as a broken clock."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Caps and brakes. Rates are per second, ``per`` is the rolling span of the node caps."""

    evictions_per_second: float = 10.0
    eviction_burst: int = 64
    nodes_per_pool: int = 20
    nodes_per_cluster: int = 60
    per: timedelta = timedelta(minutes=10)
    circuit_share: float = 0.25
    recall_while_paused: bool = True
    max_loans: int = 1000

    def loans_limit(self, braked: int | None) -> int:
        """How many loans may be open at once; ``braked`` is the brakes' own limit, None if they set none."""
        return self.max_loans if braked is None else min(braked, self.max_loans)


@dataclass(frozen=True, slots=True)
class Borrowing:
    """What a borrower must stand and may expect."""

    min_age: timedelta = timedelta(seconds=10)
    """How long a gang must have been complete before it is lent to: its budgets may come after its pods."""
    min_runtime: timedelta = timedelta(minutes=10)
    cooldown: timedelta = timedelta(minutes=15)
    cooldown_max: timedelta = timedelta(hours=1)
    preemptions_per_day: int = 3
    namespace_preemptions_per_day: int = 50
    lead_time: timedelta = timedelta(minutes=20)
    max_grace: timedelta = timedelta(minutes=15)
    max_loan: timedelta = timedelta(hours=8)
    gang_cost_gpu_seconds: float = 600.0
    """Fixed cost of breaking one gang, in GPU-seconds: prefers few gangs over many."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Debounce of signals and the learning of headroom."""

    debounce: timedelta = timedelta(seconds=60)
    debounce_samples: int = 3
    pending_debounce: timedelta = timedelta(seconds=10)
    """How long inference pods must have waited before the first eviction for them; closing starts at once."""
    headroom_prior_share: float = 0.10
    """Headroom as a share of the pool until a day of demand has been seen."""
    history: timedelta = timedelta(days=2)
    bucket: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Acting:
    """Bounds of the act protocol."""

    settle: timedelta = timedelta(seconds=2)
    plan_validity: timedelta = timedelta(minutes=10)
    call_timeout: timedelta = timedelta(seconds=5)
    retry_first: timedelta = timedelta(seconds=5)
    retry_max: timedelta = timedelta(seconds=60)
    retry_deadline: timedelta = timedelta(minutes=10)
    stuck_after: timedelta = timedelta(minutes=2)
    poll: timedelta = timedelta(seconds=1)
    contended_tries: int = 3
    kafka_silent: timedelta = timedelta(minutes=2)
    quarantine_ttl: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything together; ``pools`` by name. Pools that nodes name but the policy does not never lend."""

    pools: Mapping[PoolName, PoolPolicy]
    activities: Activities = field(default_factory=Activities)
    pace: Pace = field(default_factory=Pace)
    borrowing: Borrowing = field(default_factory=Borrowing)
    signals: Signals = field(default_factory=Signals)
    acting: Acting = field(default_factory=Acting)
    protected_namespaces: tuple[str, ...] = ("kube-system",)
    models: tuple[str, ...] = ("H100", "A100", "A40", "L20", "T4")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a policy; ``path`` is dotted, as in the file."""

    path: str
    message: str


def problems(policy: Policy) -> tuple[Problem, ...]:
    """All that is wrong with a policy, in the order of the file; empty when it may be adopted."""
    found = [Problem("pools", "at least one pool is needed")] if not policy.pools else []
    for name, pool in policy.pools.items():
        found += _pool_problems(f"pools.{name}", pool, policy)
    return (*found, *_number_problems(policy))


def _pool_problems(path: str, pool: PoolPolicy, policy: Policy) -> list[Problem]:
    checks = (
        (0.0 <= pool.floor_share <= 1.0, "floor_share", "must lie between 0 and 1"),
        (pool.floor_nodes >= 0, "floor_nodes", "must not be negative"),
        (0.0 < pool.target_utilisation <= 1.0, "target_utilisation", "must lie above 0 and up to 1"),
        (
            pool.shortage_budget is None or 0.0 <= pool.shortage_budget < 1.0,
            "shortage_budget",
            "must lie in [0, 1)",
        ),
        (pool.cold_start >= timedelta(0), "cold_start", "must not be negative"),
        (pool.model in policy.models or pool.model == "", "model", f"{pool.model!r} is not in models"),
        (
            not pool.lends_to or bool(pool.windows),
            "windows",
            "a pool that lends needs a window; `always` is one",
        ),
        (pool.owner is not OwnerClass.UNKNOWN, "owner", "must be inference, training or batch"),
        (OwnerClass.INFERENCE not in pool.lends_to, "lends_to", "lending to inference is not supported"),
        (not pool.lends_to or pool.owner is OwnerClass.INFERENCE, "lends_to", "only inference pools lend"),
    )
    return [Problem(f"{path}.{key}", message) for holds, key, message in checks if not holds] + [
        Problem(f"{path}.windows[{index}]", message)
        for index, window in enumerate(pool.windows)
        for message in window_problems(window)
    ]


def _number_problems(policy: Policy) -> list[Problem]:
    act, pace, lend, sig, zero = policy.activities, policy.pace, policy.borrowing, policy.signals, timedelta(0)
    checks = (
        (
            0.0 < act.idle_below < act.busy_from <= 1.0,
            "activities.idle_below",
            "must be below busy_from, both in (0, 1]",
        ),
        (act.dwell > act.freshness, "activities.dwell", "must be longer than freshness, or idleness is never proven"),
        (act.freshness > zero, "activities.freshness", "must be positive"),
        (act.frozen_scrapes >= 2, "activities.frozen_scrapes", "must be at least 2"),
        (pace.evictions_per_second > 0, "pace.evictions_per_second", "must be positive"),
        (pace.eviction_burst >= 1, "pace.eviction_burst", "must be at least 1"),
        (pace.nodes_per_pool >= 1, "pace.nodes_per_pool", "must be at least 1"),
        (pace.nodes_per_cluster >= pace.nodes_per_pool, "pace.nodes_per_cluster", "must not be below nodes_per_pool"),
        (0.0 < pace.circuit_share <= 1.0, "pace.circuit_share", "must lie above 0 and up to 1"),
        (zero <= lend.min_age < lend.max_loan, "borrowing.min_age", "must not be negative, and below max_loan"),
        (lend.min_runtime > zero, "borrowing.min_runtime", "must be positive"),
        (
            zero < lend.cooldown <= lend.cooldown_max,
            "borrowing.cooldown",
            "must be positive and not above cooldown_max",
        ),
        (lend.preemptions_per_day >= 1, "borrowing.preemptions_per_day", "must be at least 1"),
        (
            lend.max_loan > lend.min_runtime + lend.lead_time,
            "borrowing.max_loan",
            "must exceed min_runtime + lead_time",
        ),
        (lend.max_grace <= lend.lead_time, "borrowing.max_grace", "must not exceed lead_time"),
        (sig.debounce_samples >= 1, "signals.debounce_samples", "must be at least 1"),
        (sig.debounce < act.freshness, "signals.debounce", "must be shorter than freshness, or it never completes"),
        (sig.bucket > zero and sig.history >= 10 * sig.bucket, "signals.history", "must hold at least 10 buckets"),
        (policy.acting.retry_first <= policy.acting.retry_max, "acting.retry_first", "must not exceed retry_max"),
    )
    return [Problem(path, message) for holds, path, message in checks if not holds]
