"""What pools, loans and standing alerts look like to Prometheus: kept from what decide publishes.

The pools are those of the policy: each has all its series from the start, and none once the policy no longer names it.
What this process does not decide is NaN: of two replicas the one that knows has numbers (`max by (pool)`). What is
overdue is reckoned at each scrape, so that a decider that hangs does not hide it. Nothing is decided from here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rebalancer.core.instructions import (
    ClearAlert,
    ForgetLoan,
    Instruction,
    PoolState,
    RaiseAlert,
    RecordLoan,
    RecordPool,
)
from rebalancer.core.loans import OPEN_PHASES, Loan, LoanPhase
from rebalancer.core.reasons import Reason
from rebalancer.core.units import Mode

PREFIX = "gpu_rebalancer"
OTHER = "other"
"""The pool of what names a pool that the policy does not have: label values are never foreign."""
LASTED = (600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0)
"""Seconds: the minimum run time, short for a loan, and from there to longer than any window."""
GPUS: Mapping[str, str] = {
    "owned": "that the pool owns",
    "busy": "at home and busy",
    "idle": "at home and idle",
    "unknown": "at home whose utilisation is unknown",
    "unhealthy": "that are not usable",
    "held": "held by pods",
    "free": "at home that no pod holds",
    "pending": "that pending pods wait for",
    "releasing": "of pods that are terminating",
    "lent": "on loan to others",
    "borrowed": "that its class has borrowed",
    "demand": "that the pool wants",
    "headroom": "kept for a rise within the return time",
}
"""Fields of a pool's picture that are GPUs, and the end of their help."""
NODES: Mapping[str, str] = {"nodes": "of the pool", "lent_nodes": "on loan", "floor_nodes": "that are never lent"}
BLOCKERS = (
    Reason.NOT_LENDING_POOL, Reason.WINDOW_CLOSED, Reason.WINDOW_CLOSING, Reason.CATCHING_UP, Reason.PAUSED,
    Reason.RETIRING, Reason.CAP, Reason.CIRCUIT_OPEN, Reason.FLOOR, Reason.HEADROOM, Reason.LABEL_CONFLICT,
    Reason.NODE_QUARANTINED, Reason.NODE_NOT_USABLE, Reason.OPTED_OUT, Reason.OPERATOR_RECALL, Reason.IN_TRANSIT,
    Reason.NOMINATED, Reason.HELD, Reason.GPU_COUNT_UNKNOWN, Reason.TELEMETRY_UNKNOWN, Reason.BUSY,
    Reason.NOT_IDLE_LONG_ENOUGH, Reason.RESTING, Reason.NO_ELIGIBLE_BORROWER, Reason.BORROWER_NOT_EVICTABLE,
)  # fmt: skip
"""What keeps idle GPUs from being lent; reasons of a borrower's own count as `other`."""
PHASES = (LoanPhase.OPENING, LoanPhase.ON_LOAN, LoanPhase.RECALLING, LoanPhase.LOST)
ALERTED = (
    Reason.OVERDUE, Reason.LOAN_LOST, Reason.GANG_SPLIT, Reason.BUDGET_BLOCKED, Reason.TWO_BUDGETS, Reason.STUCK,
    Reason.CONTENDED, Reason.SQUATTER, Reason.NODE_QUARANTINED, Reason.NODE_NOT_USABLE, Reason.LABEL_CONFLICT,
    Reason.TELEMETRY_SILENT, Reason.INVALID_POLICY, Reason.CAP, Reason.FORBIDDEN, Reason.TIMED_OUT, Reason.UNREACHABLE,
    Reason.THROTTLED,
)  # fmt: skip
"""Reasons that alerts stand for; others count as `other`."""


class PoolTally(Collector):
    """Pools, loans and standing alerts as decide last told them; collected anew at each scrape."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pools: tuple[str, ...] = ()
        self._known = False
        self._pictures: dict[str, PoolState] = {}
        self._loans: dict[str, Loan] = {}
        self._alerts: dict[str, tuple[str, str]] = {}
        self._lasted = Histogram(
            f"{PREFIX}_loan_seconds", "How long loans lasted that came home, from lent to restored. Labeled by pool.",
            ("pool",), buckets=LASTED, registry=registry,
        )  # fmt: skip
        registry.register(self)

    def adopt(self, pools: Iterable[str]) -> None:
        """The policy's pools; series of others go away."""
        before, self._pools = self._pools, tuple(sorted(set(pools)))
        for gone in set(before) - set(self._pools):
            self._pictures.pop(gone, None)
            self._lasted.remove(gone)
        for pool in self._pools:
            self._lasted.labels(pool)

    def restored(self, loans: Iterable[Loan], alerts: Iterable[RaiseAlert]) -> None:
        """What a decider found when it began: from here on this process knows."""
        self.lost()
        self._known = True
        for loan in loans:
            self._loan(loan)
        for alert in alerts:
            self._raise(alert)

    def lost(self) -> None:
        """The partition is another process's now."""
        self._known = False
        self._pictures.clear()
        self._loans.clear()
        self._alerts.clear()

    def published(self, told: Instruction) -> None:
        """An instruction that the broker has acknowledged."""
        match told:
            case RecordPool(state=state):
                self._pictures[state.pool] = state
            case RecordLoan(loan=loan):
                self._ended(loan)
                self._loan(loan)
            case ForgetLoan(loan=gone):
                self._loans.pop(gone, None)
            case RaiseAlert() as alert:
                self._raise(alert)
            case ClearAlert(id=over):
                self._alerts.pop(over, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All families; each pool of the policy is in each of them."""
        yield from self._of_pictures()
        yield self._blocked()
        yield self._by_phase()
        yield self._overdue()
        yield self._next_due()
        yield self._standing()

    def _ended(self, loan: Loan) -> None:
        home = loan.phase is LoanPhase.RETURNED and loan.id in self._loans and not loan.virtual
        if home and loan.lent_at is not None and loan.closed_at is not None:
            self._lasted.labels(self._pool(loan.lender)).observe((loan.closed_at - loan.lent_at).total_seconds())

    def _loan(self, loan: Loan) -> None:
        """Only what is out or lost is kept: the ledger has the rest."""
        if loan.phase in OPEN_PHASES or loan.phase is LoanPhase.LOST:
            self._loans[loan.id] = loan
        else:
            self._loans.pop(loan.id, None)

    def _raise(self, alert: RaiseAlert) -> None:
        reason = alert.because.reason
        self._alerts[alert.id] = (alert.pool, reason.value if reason in ALERTED else OTHER)

    def _pool(self, name: str) -> str:
        return name if name in self._pools else OTHER

    def _of_pictures(self) -> Iterator[GaugeMetricFamily]:
        families = [(f"pool_{name}_gpus", f"GPUs {text}", name) for name, text in GPUS.items()]
        families += [(f"pool_{name}", f"Nodes {text}", name) for name, text in NODES.items()]
        for name, text, field in families:
            family = _family(name, f"{text}. Labeled by pool.", ("pool",))
            for pool in self._pools:
                picture = self._pictures.get(pool)
                family.add_metric((pool,), math.nan if picture is None else float(getattr(picture, field)))
            yield family
        acting = _family("pool_acting", "1 while the pool is in act mode, 0 in shadow. Labeled by pool.", ("pool",))
        for pool in self._pools:
            told = self._pictures.get(pool)
            acting.add_metric((pool,), math.nan if told is None else float(told.mode == Mode.ACT.value))
        yield acting

    def _blocked(self) -> GaugeMetricFamily:
        text = "Free GPUs at home by what keeps them from being lent. Labeled by pool and reason."
        family = _family("pool_idle_blocked_gpus", text, ("pool", "reason"))
        named = [one.value for one in BLOCKERS]
        for pool in self._pools:
            picture = self._pictures.get(pool)
            held = dict(picture.idle_blockers) if picture is not None else None
            for reason in named:
                family.add_metric((pool, reason), math.nan if held is None else held.get(reason, 0))
            rest = math.nan if held is None else sum(gpus for reason, gpus in held.items() if reason not in named)
            family.add_metric((pool, OTHER), rest)
        return family

    def _by_phase(self) -> GaugeMetricFamily:
        family = _family(
            "loans", "Loans that are out or lost. Labeled by pool, phase and mode.", ("pool", "phase", "mode")
        )
        counts = {(pool, phase, mode): 0 for pool in (*self._pools, OTHER) for phase in PHASES for mode in Mode}
        for loan in self._loans.values():
            counts[self._pool(loan.lender), loan.phase, loan.mode] += 1
        for (pool, phase, mode), count in counts.items():
            family.add_metric((pool, phase.value, mode.value), count if self._known else math.nan)
        return family

    def _dues(self) -> Iterator[tuple[str, float]]:
        for loan in self._loans.values():
            if loan.open and not loan.virtual:
                yield self._pool(loan.lender), loan.due.timestamp()

    def _overdue(self) -> GaugeMetricFamily:
        family = _family("loans_overdue", "Loans out past their due time. Labeled by pool.", ("pool",))
        now, counts = self._clock(), dict.fromkeys((*self._pools, OTHER), 0)
        for pool, due in self._dues():
            counts[pool] += due < now
        for pool, count in counts.items():
            family.add_metric((pool,), count if self._known else math.nan)
        return family

    def _next_due(self) -> GaugeMetricFamily:
        text = "When the next loan is due home; +Inf: none is out. Labeled by pool."
        family = _family("next_due_timestamp_seconds", text, ("pool",))
        first = dict.fromkeys((*self._pools, OTHER), math.inf)
        for pool, due in self._dues():
            first[pool] = min(first[pool], due)
        for pool, due in first.items():
            family.add_metric((pool,), due if self._known else math.nan)
        return family

    def _standing(self) -> GaugeMetricFamily:
        text = "Alerts that stand. Labeled by pool (empty: the whole cluster) and reason."
        family = _family("alerts_standing", text, ("pool", "reason"))
        reasons = (*(one.value for one in ALERTED), OTHER)
        counts = {(pool, reason): 0 for pool in ("", *self._pools, OTHER) for reason in reasons}
        for pool, reason in self._alerts.values():
            counts[self._pool(pool) if pool else "", reason] += 1
        for labels, count in counts.items():
            family.add_metric(labels, count if self._known else math.nan)
        return family


def _family(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
