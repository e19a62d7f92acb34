"""Lent nodes with gangs on them, and how they could come home."""

from __future__ import annotations

from collections.abc import Sequence

from rebalancer.core.facts import Pod
from rebalancer.core.loans import Loan
from rebalancer.core.victims import Homecoming, homecoming
from tests.core.build import Rig, lent, node, policy, pool_policy


def away(*names: str, pods: Sequence[Pod] = ()) -> Rig:
    """Lent nodes with these pods on them, in a pool without a floor."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.sync(*(lent(node(name)) for name in names), *pods)
    return rig


def loan(rig: Rig, name: str) -> Loan:
    """The loan of a node."""
    return rig.loans[f"loan-{name}"]


def coming(rig: Rig, name: str) -> Homecoming:
    """How a node could come home; fails if it cannot."""
    found = homecoming(rig.engine.state, loan(rig, name), rig.now)
    assert isinstance(found, Homecoming)
    return found
