"""The best that any lender could have done, knowing the whole demand beforehand (DESIGN 11).

G* = g * sum over k of sum over maximal runs J of {t : spare(t) >= k} of max(0, |J| dt - c): the k-th spare node is
lent for exactly the runs in which it is spare and which are worth their cost. Exact, O(nodes * steps). Only
arithmetic lives here.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Series: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


def floor_of(nodes: int, floor_nodes: int, floor_share: float) -> int:
    """Nodes never lent: the larger of a number and a share, rounded up (DESIGN 7)."""
    return min(nodes, max(floor_nodes, math.ceil(floor_share * nodes - 1e-9)))


def spare_nodes(
    demand: Series, capacity_nodes: int, gpus_per_node: int, floor_nodes: int, permitted: Flags
) -> NDArray[np.int64]:
    """Whole nodes that demand (GPUs, one value a step) leaves to spare; 0 where lending is not permitted."""
    free = np.floor((capacity_nodes * gpus_per_node - demand) / gpus_per_node)
    spare = np.clip(free, 0, max(0, capacity_nodes - floor_nodes)).astype(np.int64)
    return np.where(permitted, spare, 0)


def run_lengths(flags: Flags) -> NDArray[np.int64]:
    """Lengths, in steps, of the maximal runs of True."""
    edges = np.diff(np.concatenate(([0], flags.astype(np.int8), [0])))
    lengths: NDArray[np.int64] = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    return lengths


def clairvoyant(
    demand: Series,
    capacity_nodes: int,
    gpus_per_node: int,
    floor_nodes: int,
    permitted: Flags,
    *,
    dt: float,
    cost: float,
) -> float:
    """G* in GPU-seconds. ``dt`` seconds a step, ``cost`` seconds of load, drain and lost work per loan."""
    spare = spare_nodes(demand, capacity_nodes, gpus_per_node, floor_nodes, permitted)
    worth = 0.0
    for nodes in range(1, int(spare.max(initial=0)) + 1):
        worth += float(np.maximum(run_lengths(spare >= nodes) * dt - cost, 0.0).sum())
    return gpus_per_node * worth
