"""What changed about who holds which GPUs, in the order told: read and cleared by whoever accounts for it.

Only what makes GPUs count as something else is noted, so that the many changes of status cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from rebalancer.core.facts import Node, Pod
from rebalancer.core.supply import in_order, usable

Stirring: TypeAlias = tuple[str, Node | Pod | str]
"""By node name: what came or changed there, or the uid of what went."""


class Stirrings:
    """What has been noted and not been read yet."""

    def __init__(self) -> None:
        """Nothing."""
        self._noted: list[Stirring] = []
        self._joined: list[Pod] = []

    def pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod was seen, changed, or is gone."""
        if new is not None and (old is None or old.gang != new.gang):
            self._joined.append(new)
        before, after = _holding(old), _holding(new)
        if old is not None and before and (not after or before[0] != after[0]):
            self._noted.append((old.node, old.uid))
        if new is not None and after and before != after:
            self._noted.append((new.node, new))

    def node(self, old: Node | None, new: Node | None) -> None:
        """A node was seen, changed, or is gone."""
        if old is not None and (new is None or old.name != new.name):
            self._noted.append((old.name, old.uid))
        if new is not None and (old is None or _standing(old) != _standing(new)):
            self._noted.append((new.name, new))

    def read(self) -> Iterator[Stirring]:
        """Everything noted, once."""
        if self._noted:
            noted, self._noted = self._noted, []
            yield from noted

    def joined(self) -> list[Pod]:
        """Pods first seen in their gang since this was last asked."""
        if not self._joined:
            return []
        joined, self._joined = self._joined, []
        return joined


def _holding(pod: Pod | None) -> tuple[object, ...]:
    """What a pod holds, where and for whom; empty if it holds nothing."""
    return (pod.node, pod.held, pod.gang, pod.owner) if pod is not None and pod.held else ()


def _standing(node: Node) -> tuple[object, ...]:
    """What makes a node's GPUs count as they do."""
    gpus = (node.gpus, node.capacity, node.ready, node.starting, in_order(node), usable(node))
    return (node.name, node.pool, node.owner, *gpus)
