"""What a node is worth to its pool, and which of its changes matter to whom.

Sums and comparisons of single nodes and pods; nothing here remembers anything or knows the rest of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rebalancer.core.facts import Node, Pod
from rebalancer.core.units import OwnerClass


@dataclass(slots=True)
class Totals:
    """Sums over a pool's nodes, in GPUs unless named otherwise. ``away``: marked as lent, ``usable``: at home."""

    nodes: int = 0
    owned: int = 0
    usable: int = 0
    away: int = 0
    held: int = 0
    held_by_owner: int = 0
    releasing: int = 0
    borrowed: int = 0
    unusable: int = 0

    def add(self, other: Totals, sign: int) -> None:
        """Add or take away another set of sums."""
        for name in Totals.__slots__:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))


def in_order(node: Node) -> bool:
    """Whether pods may land on a node at all, whoever has it: ready, not cordoned, registered, its labels sound."""
    return node.ready and not (node.cordoned or node.starting or node.quarantine) and node.gpus > 0


def bare(node: Node) -> bool:
    """Whether a node is labelled for GPUs, or has some, of which none can be had (F38)."""
    return node.gpus == 0 and (node.starting or node.capacity > 0)


def usable(node: Node) -> bool:
    """Whether a node counts as supply: in order, and nothing of ours on it without a mark (F36, F38, F58)."""
    return in_order(node) and not node.stray


def share_of(node: Node, guests: Iterable[Pod]) -> Totals:
    """What one node, with the pods bound to it, adds to its pool."""
    share = Totals(nodes=1, owned=node.gpus)
    for pod in guests:
        share.held += pod.held
        share.releasing += pod.releasing
        share.held_by_owner += pod.held if pod.owner is node.owner else 0
    if node.mark is not None:
        share.away, share.borrowed = node.gpus, share.held
    elif usable(node):
        share.usable = node.gpus
    else:
        share.unusable = node.gpus
    return share


def supply(node: Node | None) -> tuple[object, ...] | None:
    """What makes a node supply, or not."""
    return None if node is None else (node.pool, node.gpus, usable(node), node.loan is None)


def open_to_others(node: Node | None) -> bool:
    """Whether the scheduler may put others than inference there without us."""
    return node is not None and (node.loan is not None or node.owner is not OwnerClass.INFERENCE)


def lendable(node: Node) -> tuple[object, ...]:
    """What decides whether a node may be lent, and to whom."""
    marks = (node.quarantine, node.divided, node.opted_out, node.model, node.network)
    return (supply(node), marks, node.taints, node.labels)


def footprint(pod: Pod | None) -> tuple[object, ...] | None:
    """What a bound pod means to others who want its node."""
    if pod is None or not pod.node or pod.terminal:
        return None
    return (pod.node, pod.gpus, pod.namespace, pod.labels, pod.anti_affinity)


def squats(pod: Pod) -> bool:
    """Whether a pod on a lent node could not be taken off it again."""
    return not pod.reclaimable and (pod.gpus is None or pod.gpus > 0)
