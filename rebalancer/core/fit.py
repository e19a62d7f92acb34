"""Whether a pod may run on a node, and whether a whole gang finds concrete room.

The rules are the scheduler's hard ones: taints, node selector and required affinity, host anti-affinity, GPUs.
Placement here only answers "is there room"; where pods really go is the scheduler's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rebalancer.core.facts import Node, Pod, Selector, Taint, Toleration
from rebalancer.core.units import NodeUid

HARD_EFFECTS = ("NoSchedule", "NoExecute")
HOST = "kubernetes.io/hostname"


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether all requirements of a selector hold for a label set (semantics of the label-selector API)."""
    return all(_holds(item.operator, labels.get(item.key), item.values) for item in selector)


def _holds(operator: str, value: str | None, wanted: tuple[str, ...]) -> bool:
    if operator == "In":
        return value is not None and value in wanted
    if operator == "NotIn":
        return value is None or value not in wanted
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt"):
        return _compares(operator, value, wanted)
    return False


def _compares(operator: str, value: str | None, wanted: tuple[str, ...]) -> bool:
    try:
        have, bound = int(value or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound


def selects(terms: tuple[Selector, ...], labels: Mapping[str, str]) -> bool:
    """Whether a disjunction of selectors accepts a node's labels; no terms accept every node."""
    return not terms or any(matches(term, labels) for term in terms)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers a taint."""
    for item in tolerations:
        if item.effect and item.effect != taint.effect:
            continue
        if item.operator == "Exists" and item.key in ("", taint.key):
            return True
        if item.operator == "Equal" and item.key == taint.key and item.value == taint.value:
            return True
    return False


def untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """The first hard taint that keeps the pod away, or None."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerates(pod.tolerations, taint):
            return taint
    return None


def admits(node: Node, pod: Pod, taints: Sequence[Taint]) -> bool:
    """Whether the node accepts the pod by labels and the given taints; room is not looked at."""
    return selects(pod.node_terms, node.labels) and untolerated(pod, taints) is None


@dataclass(slots=True)
class Room:
    """Free GPUs and guests of one node while a placement is tried. ``taints`` as they would then be."""

    node: Node
    free: int
    taints: tuple[Taint, ...]
    guests: list[Pod] = field(default_factory=list)


def conflicts(pod: Pod, guests: Iterable[Pod]) -> bool:
    """Whether required host anti-affinity, of either side, forbids the pod beside these guests."""
    for guest in guests:
        if guest.namespace != pod.namespace:
            continue
        if any(matches(term, guest.labels) for term in pod.anti_affinity):
            return True
        if any(matches(term, pod.labels) for term in guest.anti_affinity):
            return True
    return False


def takes(room: Room, pod: Pod) -> bool:
    """Whether the pod fits into this room now."""
    wanted = pod.gpus or 0
    return wanted <= room.free and admits(room.node, pod, room.taints) and not conflicts(pod, room.guests)


def place(pods: Sequence[Pod], rooms: Sequence[Room]) -> dict[str, NodeUid] | None:
    """Place all pods (largest first, first room that takes it) or none.

    Returns pod uid -> node uid and leaves the rooms filled; on failure the rooms are as before and the answer
    is None. First fit over the order of ``rooms``: callers order them by preference.
    """
    if len(pods) > 1 and sum(pod.gpus or 0 for pod in pods) > sum(room.free for room in rooms):
        return None
    placed: dict[str, NodeUid] = {}
    undo: list[tuple[Room, int]] = []
    for pod in sorted(pods, key=lambda item: (-(item.gpus or 0), item.name, item.uid)):
        room = next((item for item in rooms if takes(item, pod)), None)
        if room is None:
            for used, gpus in reversed(undo):
                used.free += gpus
                used.guests.pop()
            return None
        room.free -= pod.gpus or 0
        room.guests.append(pod)
        undo.append((room, pod.gpus or 0))
        placed[pod.uid] = room.node.uid
    return placed


def placing_order(pods: Iterable[Pod]) -> list[Pod]:
    """The order in which pods are placed each for itself: largest first, then oldest."""
    return sorted(pods, key=lambda item: (-(item.gpus or 0), item.created_at, item.name, item.uid))


def settle(pods: Sequence[Pod], rooms: Sequence[Room]) -> list[Pod]:
    """Place each pod for itself; those that found no room are returned, largest first."""
    return [pod for pod in placing_order(pods) if place([pod], rooms) is None]
