"""Where a pod may run, as Kubernetes says it: taints, tolerations, node terms, label selectors.

Written apart from the core's own eligibility on purpose: the simulated scheduler must be able to disagree with
it, or a mistake there would never show. Nothing here knows about loans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rebalancer.core.facts import Node, Requirement, Selector, Taint, Toleration

_HARD = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _compares(requirement: Requirement, value: str) -> bool:
    left, right = _number(value), _number(requirement.values[0]) if requirement.values else None
    if left is None or right is None:
        return False
    return left > right if requirement.operator == "Gt" else left < right


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement; an unknown operator meets nothing."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
        case _:
            return False


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels meet all requirements."""
    return all(holds(requirement, labels) for requirement in selector)


def admits(node: Node, terms: Sequence[Selector], tolerations: Sequence[Toleration]) -> bool:
    """Whether a node that is up lets pods of this kind in, capacity aside."""
    if not node.ready or node.cordoned or node.starting:
        return False
    if terms and not any(matches(term, node.labels) for term in terms):
        return False
    hard = [taint for taint in node.taints if taint.effect in _HARD]
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in hard)
