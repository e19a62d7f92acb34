"""Disruption budgets by what their selectors ask for, so that finding those over a pod does not ask all of a namespace.

A budget that asks for one value of a label is found by that label of the pod. Others (set-based selectors, or ones
that select everything) are asked each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from rebalancer.core.facts import Budget, Pod
from rebalancer.core.fit import matches

Place: TypeAlias = tuple[str, str, str] | str
"""Namespace, label key and value that a budget asks for; the namespace alone for any other selector."""


class BudgetIndex:
    """All budgets of a cluster, by uid and place; a budget without a selector selects nothing and has no place."""

    def __init__(self) -> None:
        self._places: dict[Place, dict[str, Budget]] = {}

    def put(self, budget: Budget, old: Budget | None = None) -> None:
        """Take in a budget, in the place of what it was before."""
        if old is not None:
            self.drop(old)
        place = _place(budget)
        if place is not None:
            self._places.setdefault(place, {})[budget.uid] = budget

    def drop(self, budget: Budget) -> None:
        """Remove a budget as it was put."""
        place = _place(budget)
        held = self._places.get(place) if place is not None else None
        if place is None or held is None:
            return
        held.pop(budget.uid, None)
        if not held:
            del self._places[place]

    def all(self) -> list[Budget]:
        """Every budget that has a selector."""
        return [item for held in self._places.values() for item in held.values()]

    def over(self, pod: Pod) -> list[Budget]:
        """Budgets whose selector matches the pod, in name order."""
        found = [
            item for item in self._candidates(pod.namespace, pod.labels) if matches(item.selector or (), pod.labels)
        ]
        return sorted(found, key=lambda item: (item.name, item.uid)) if len(found) > 1 else found

    def _candidates(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Budget]:
        if not self._places:
            return
        places: list[Place] = [namespace, *((namespace, key, value) for key, value in labels.items())]
        for place in places:
            if (held := self._places.get(place)) is not None:
                yield from held.values()


def _place(budget: Budget) -> Place | None:
    if budget.selector is None:
        return None
    for item in budget.selector:
        if item.operator == "In" and len(item.values) == 1:
            return budget.namespace, item.key, item.values[0]
    return budget.namespace
