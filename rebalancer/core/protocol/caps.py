"""How many nodes act has let plans touch lately: the policy's rolling caps once more, whoever wrote the plans.

The decider keeps the same count. Here it is a little more generous in time, since plans take a while to arrive, so
that a decider that keeps to the policy is never refused. What presses is counted where the decider counts it, and
never refused: it is paced by the evictions' bucket.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rebalancer.core.plan import Method, Plan
from rebalancer.core.policy import Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import PoolName

SLACK = timedelta(minutes=1)
"""Less than the span of the caps by which an old plan is forgotten sooner: how much later one may arrive than made."""


class Caps:
    """Nodes that accepted plans lend or close; bounded by what the caps let through within their span."""

    def __init__(self) -> None:
        self._touched: list[tuple[datetime, PoolName, int]] = []

    def over(self, plan: Plan, pace: Pace, now: datetime) -> Because | None:
        """Why this plan would be too many, or None."""
        nodes = _touches(plan)
        span = pace.per - min(SLACK, pace.per / 10)
        self._touched = [item for item in self._touched if now - item[0] < span]
        if plan.pressing or not nodes:
            return None
        if nodes + sum(count for _, pool, count in self._touched if pool == plan.pool) > pace.nodes_per_pool:
            return Because(Reason.CAP, {"cap": pace.nodes_per_pool, "what": f"nodes of {plan.pool}"})
        if nodes + sum(count for _, _, count in self._touched) > pace.nodes_per_cluster:
            return Because(Reason.CAP, {"cap": pace.nodes_per_cluster, "what": "nodes of the cluster"})
        return None

    def accepted(self, plan: Plan, began: datetime) -> None:
        """The plan begins, or began then and is gone on with: an actor that restarts hears of all of the last hours."""
        nodes = _touches(plan)
        if nodes and (not plan.pressing or plan.method is Method.RECLAIM):
            self._touched.append((began, plan.pool, nodes))


def _touches(plan: Plan) -> int:
    return len({step.node for step in plan.steps if step.kind in ("lend", "close")})
