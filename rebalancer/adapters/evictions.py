"""Evictions as Prometheus sees them: each pod counted once, under the reason for which it went or did not go.

Fed with plans as act hears them and outcomes as it tells them for the first time. Pools are those of the policy: what
names another counts as `other`, since whoever can write plans must not write label values. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from rebalancer.adapters.tallies import OTHER, PREFIX
from rebalancer.core.plan import FINAL, EvictGang, Outcome, Plan, Result
from rebalancer.core.reasons import Reason

PLANS_REMEMBERED = 4_096
"""Plans whose evictions may still be told; more than a large fleet makes while a plan is valid."""
WHY_EVICTED = (
    Reason.INFERENCE_PENDING, Reason.INFERENCE_RISING, Reason.LOAN_DUE, Reason.OPERATOR_RECALL, Reason.RETIRING,
)  # fmt: skip
"""Reasons with series from the start."""


class EvictionTally:
    """The two counters, and what is remembered of plans so that their outcomes can be counted by pod."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pools: frozenset[str] = frozenset()
        self._plans: dict[str, Plan] = {}
        self._series: set[tuple[str, str, str]] = set()
        self._pods = Counter(
            f"{PREFIX}_evictions", "Pods that plans were to evict, by what became of them. Labeled by pool, result and "
            "reason.", ("pool", "result", "reason"), registry=registry,
        )  # fmt: skip
        self._gangs = Counter(
            f"{PREFIX}_gangs_evicted", "Gangs of which pods were evicted. Labeled by pool and reason.",
            ("pool", "reason"), registry=registry,
        )  # fmt: skip

    def adopt(self, pools: Iterable[str]) -> None:
        """The policy's pools: their series begin at 0, those of others go away."""
        self._pools = frozenset(pools)
        for labels in sorted(self._series):
            if labels[0] not in self._pools:
                self._series.remove(labels)
                self._pods.remove(*labels)
                if labels[1] == Result.DONE.value:
                    self._gangs.remove(labels[0], labels[2])
        for pool in sorted(self._pools):
            for reason in WHY_EVICTED:
                self._add(pool, Result.DONE, reason, 0, gangs=0)

    def heard(self, plan: Plan) -> None:
        """A plan whose outcomes may come."""
        self._plans[plan.id] = plan
        if len(self._plans) > PLANS_REMEMBERED:
            del self._plans[next(iter(self._plans))]

    def told(self, outcome: Outcome) -> None:
        """An outcome, told for the first time."""
        if outcome.kind != "evict" or outcome.result not in FINAL or outcome.step < 0:
            return
        plan = self._plans.get(outcome.plan)
        step = plan.steps[outcome.step] if plan is not None and outcome.step < len(plan.steps) else None
        if plan is None or not isinstance(step, EvictGang):
            return
        gone = _gone(outcome)
        self._add(outcome.pool, Result.DONE, plan.because.reason, gone, gangs=min(gone, 1))
        if outcome.result is not Result.DONE:
            self._add(outcome.pool, outcome.result, outcome.because.reason, len(step.members) - gone, gangs=0)

    def _add(self, pool: str, result: Result, reason: Reason, pods: int, *, gangs: int) -> None:
        labels = (pool if pool in self._pools else OTHER, result.value, reason.value)
        self._series.add(labels)
        self._pods.labels(*labels).inc(max(0, pods))
        if result is Result.DONE:
            self._gangs.labels(labels[0], labels[2]).inc(gangs)


def _gone(outcome: Outcome) -> int:
    """How many pods of the gang went because of us: also of a gang that was given up half gone."""
    if outcome.result is Result.DONE:
        return int(outcome.numbers.get("members", 0))
    return int(outcome.because.numbers.get("gone", 0)) if outcome.because.reason is Reason.GANG_SPLIT else 0
