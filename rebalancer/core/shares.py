"""Each node's share in its pool's totals, and the nodes at home by how much of them is free.

A change of one node costs the same whatever the size of the fleet: its old share is taken away and the new one
added. Which pods and nodes there are is the inventory's to know.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from rebalancer.core.facts import Node, Pod
from rebalancer.core.supply import Totals, share_of, squats
from rebalancer.core.units import NodeUid, PoolName


class Shares:
    """Pool totals, and the nodes that are empty, squatted on, or free for so many GPUs."""

    def __init__(self) -> None:
        """Start without nodes."""
        self.pools: dict[PoolName, Totals] = {}
        self.empty: dict[PoolName, dict[NodeUid, None]] = {}
        self.squatted: dict[NodeUid, None] = {}
        self.barred: dict[NodeUid, None] = {}
        """Lent nodes on which somebody has put the owner's taint back: no borrower can land there."""
        self.shelves: dict[PoolName, dict[int, list[tuple[str, NodeUid]]]] = {}
        self._shelf: dict[NodeUid, tuple[PoolName, int, str]] = {}
        self._shares: dict[NodeUid, tuple[PoolName, Totals]] = {}

    def count(self, node: Node, guests: Sequence[Pod], nominated: bool) -> bool:
        """Take a node in as it is now; True when it became empty, or ceased to be, by this."""
        was_empty = self.is_empty(node)
        self.withdraw(node.uid)
        share = share_of(node, guests)
        self._shares[node.uid] = (node.pool, share)
        self.pools.setdefault(node.pool, Totals()).add(share, 1)
        if node.loan is not None and any(squats(pod) for pod in guests):
            self.squatted[node.uid] = None
        if node.mark is not None and node.mark.taint in node.taints:
            self.barred[node.uid] = None
        emptied = share.held == 0 and share.usable > 0 and not nominated
        if emptied:
            self.empty.setdefault(node.pool, {})[node.uid] = None
        self._shelve(node, share)
        return emptied is not was_empty

    def withdraw(self, uid: NodeUid) -> None:
        """Take a node's share away, if it has one."""
        self._unshelve(uid)
        before = self._shares.pop(uid, None)
        if before is not None:
            pool, share = before
            self.squatted.pop(uid, None)
            self.barred.pop(uid, None)
            self.pools[pool].add(share, -1)
            self.empty.get(pool, {}).pop(uid, None)

    def is_empty(self, node: Node) -> bool:
        """Whether nobody holds or is promised any of a node at home."""
        return node.uid in self.empty.get(node.pool, ())

    def held(self, node: Node) -> int:
        """GPUs held on a node, those being released included."""
        found = self._shares.get(node.uid)
        return found[1].held if found else 0

    def totals(self, pool: PoolName) -> Totals:
        """Sums of a pool; zeros for a pool without nodes."""
        return self.pools.get(pool, Totals())

    def _shelve(self, node: Node, share: Totals) -> None:
        """Nodes at home by how much of them is free, so that a pod is shown only those that are large enough."""
        if share.usable:
            free = max(0, node.gpus - share.held)
            insort(self.shelves.setdefault(node.pool, {}).setdefault(free, []), (node.name, node.uid))
            self._shelf[node.uid] = (node.pool, free, node.name)

    def _unshelve(self, uid: NodeUid) -> None:
        at = self._shelf.pop(uid, None)
        if at is not None:
            pool, free, name = at
            shelf = self.shelves[pool][free]
            del shelf[bisect_left(shelf, (name, uid))]
