"""Arithmetic of disruption budgets over whole gangs.

Nothing in the API makes several evictions atomic, so a gang is only touched when every budget that covers its
members allows all of them together. What a budget could ever allow decides whether its gang may borrow at all.
Measured on a real control plane: ``maxUnavailable``, and percentages, on an owner without a scale
subresource allow 0 for ever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rebalancer.core.facts import Budget, Pod
from rebalancer.core.inventory import Inventory
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Number

SCALABLE = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})
"""Owner kinds that have a scale subresource."""


def _share(value: int | str, expected: int) -> int | None:
    """An int, or a percentage of ``expected`` rounded up (as the disruption controller rounds); None if unreadable."""
    if isinstance(value, int):
        return value
    try:
        return math.ceil(float(value.removesuffix("%")) * expected / 100.0)
    except (ValueError, OverflowError):
        return None


def ceiling(budget: Budget, members: Sequence[Pod]) -> int:
    """The most disruptions the budget could ever allow for these members, all of them healthy.

    A threshold that cannot be read allows nothing, whichever of the two it is.
    """
    expected = max(budget.expected, len(members))
    scalable = all(pod.controller_kind in SCALABLE for pod in members)
    if budget.max_unavailable is not None:
        most = _share(budget.max_unavailable, expected)
        return min(expected, most) if scalable and most is not None else 0
    if budget.min_available is None:
        return expected
    least = _share(budget.min_available, expected)
    if least is None or (isinstance(budget.min_available, str) and not scalable):
        return 0
    return max(0, expected - least)


@dataclass(frozen=True, slots=True)
class Cover:
    """A budget and the members of a gang that it covers."""

    budget: Budget
    members: tuple[Pod, ...]


def covers(inventory: Inventory, members: Iterable[Pod]) -> list[Cover]:
    """Budgets over a gang's members, in name order."""
    grouped: dict[str, tuple[Budget, list[Pod]]] = {}
    for pod in members:
        for budget in inventory.budgets.over(pod):
            grouped.setdefault(budget.uid, (budget, []))[1].append(pod)
    ordered = sorted(grouped.values(), key=lambda pair: (pair[0].namespace, pair[0].name, pair[0].uid))
    return [Cover(budget, tuple(pods)) for budget, pods in ordered]


def never_evictable(inventory: Inventory, gang: str, members: Sequence[Pod]) -> Because | None:
    """Why a gang's budgets could never allow all of it to go, or None."""
    for pod in members:
        if len(inventory.budgets.over(pod)) > 1:
            return Because(Reason.TWO_BUDGETS, {"pod": f"{pod.namespace}/{pod.name}"})
    for cover in covers(inventory, members):
        most = ceiling(cover.budget, cover.members)
        if most < len(cover.members):
            numbers: dict[str, Number] = {
                "budget": cover.budget.name,
                "ceiling": most,
                "members": len(cover.members),
                "gang": gang,
            }
            return Because(Reason.BUDGET_NEVER_ALLOWS, numbers)
    return None


def blocked_now(inventory: Inventory, gang: str, members: Sequence[Pod], in_flight: dict[str, int]) -> Because | None:
    """Why a gang cannot go now. ``in_flight``: our evictions per budget that its status does not show yet."""
    for pod in members:
        if len(inventory.budgets.over(pod)) > 1:
            return Because(Reason.TWO_BUDGETS, {"pod": f"{pod.namespace}/{pod.name}"})
    for cover in covers(inventory, members):
        counted = [pod for pod in cover.members if pod.node and pod.deleting_at is None]
        allowed = (
            cover.budget.allowed - in_flight.get(f"{cover.budget.namespace}/{cover.budget.name}", 0)
            if cover.budget.current
            else 0
        )
        if allowed < len(counted):
            numbers: dict[str, Number] = {
                "budget": cover.budget.name,
                "allowed": allowed,
                "members": len(counted),
                "gang": gang,
            }
            return Because(Reason.BUDGET_BLOCKED, numbers)
    return None
