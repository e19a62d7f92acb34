"""What each GPU of a node is doing at one moment, for the account of its pool and of the loan that it serves.

Held GPUs belong to whoever holds them; those held by nobody are idle, unused, in transit or unhealthy. Judges one
node at one moment; sums over time are ``account``'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rebalancer.core.facts import Node, Pod
from rebalancer.core.loans import Loan
from rebalancer.core.supply import in_order, usable
from rebalancer.core.units import GangId, LoanId

POOL_FIELDS = ("capacity", "own", "lent", "transit", "idle", "unhealthy")
LOAN_FIELDS = ("allocated", "busy", "transit", "lost", "unused")


class Key(NamedTuple):
    """What is counted: a field of the pool (``loan`` ""), or of a loan and gang."""

    loan: LoanId
    gang: GangId
    field: str


Use: TypeAlias = dict[Key, int]
"""GPUs by what they count as; zeros are left out."""
CAPACITY, OWN, LENT, TRANSIT, IDLE, UNHEALTHY = (Key("", "", field) for field in POOL_FIELDS)


def use_of(node: Node, guests: Iterable[Pod], loan: Loan | None, *, moving: bool, busy: bool) -> Use:
    """What the GPUs of a node count as with the loan that it serves, if any, and whether it changes hands for it."""
    whole = max(node.capacity, node.gpus)
    use: Use = {CAPACITY: whole, UNHEALTHY: whole - node.gpus}
    if not node.ready or node.starting:
        use[UNHEALTHY] = whole
    elif loan is None:
        _at_home(use, node, guests)
    else:
        _on_loan(use, node, list(guests), loan, moving=moving, busy=busy)
    return {key: gpus for key, gpus in use.items() if gpus}


def _at_home(use: Use, node: Node, guests: Iterable[Pod]) -> None:
    use[OWN] = min(node.gpus, sum(pod.held for pod in guests))
    free = node.gpus - use[OWN]
    if usable(node):
        use[IDLE] = free
    else:
        use[UNHEALTHY] += free


def _on_loan(use: Use, node: Node, guests: list[Pod], loan: Loan, *, moving: bool, busy: bool) -> None:
    use[OWN] = min(node.gpus, sum(pod.held for pod in guests if pod.owner is node.owner))
    left = node.gpus - use[OWN]
    for pod in sorted(guests, key=lambda pod: (pod.gang, pod.uid)):
        taken = min(left, pod.held) if pod.owner is not node.owner else 0
        left -= taken
        for key in (LENT, Key(loan.id, pod.gang, "allocated"), Key(loan.id, pod.gang, "busy")):
            if key.field != "busy" or busy:
                use[key] = use.get(key, 0) + taken
    if not in_order(node):
        use[UNHEALTHY] += left
    elif moving:
        use[TRANSIT] = use[Key(loan.id, loan.gang, "transit")] = left
    else:
        use[LENT] = use.get(LENT, 0) + left
        use[Key(loan.id, loan.gang, "unused")] = left
