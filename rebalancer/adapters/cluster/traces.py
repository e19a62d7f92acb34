"""What of ours lies on objects of other people, and what a node looks like without it. Pure; nothing is sent here.

Marks that people set for us (opt-out, reclaimable, notice-seconds, checkpoints) are theirs and no trace of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.cluster.patching import EVICT_AT, LAST_RECALL
from rebalancer.adapters.decode.loan_marks import LOAN
from rebalancer.adapters.decode.nodes import node_taints
from rebalancer.adapters.decode.objects import annotations_of, metadata, text
from rebalancer.core.facts import Node
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.calls import PatchNode
from rebalancer.core.protocol.guard import OURS, home_taints
from rebalancer.core.units import ON_LOAN

NODE_MARKS, POD_MARKS, OWNER_MARKS = (LOAN,), (EVICT_AT,), (LAST_RECALL,)
"""Annotations that we write, by the object that bears them."""


def on_node(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Our taints and annotations on a raw node, worded."""
    taints = [f"taint {taint.key}" for taint in node_taints(raw) if taint.key in OURS]
    return (*taints, *on_other(raw, NODE_MARKS))


def on_other(raw: Mapping[str, Any], marks: tuple[str, ...]) -> tuple[str, ...]:
    """Those of our annotations that an object bears, worded."""
    there = annotations_of(raw)
    return tuple(f"annotation {key}" for key in marks if key in there)


def without(raw: Mapping[str, Any], marks: tuple[str, ...]) -> dict[str, Any]:
    """A merge patch that takes annotations off an object; the uid refuses another one of its name."""
    gone: dict[str, None] = dict.fromkeys(key for key in marks if key in annotations_of(raw))
    return {"metadata": {"uid": text(metadata(raw).get("uid")), "annotations": gone}}


def stripped(node: Node, policy: Policy) -> PatchNode | str:
    """The guarded patch that leaves nothing of ours on a node that nobody lends any more, or why there is none.

    The owner's taint comes from the node's own mark, else from the policy of its pool; it is never guessed.
    """
    pool = policy.pools.get(node.pool)
    lost = node.mark is None and any(taint.key == ON_LOAN for taint in node.taints)
    if lost and pool is None:
        return f"which owner taint {node.name} had is not known: no mark says so, and no pool of the policy is its own"
    owner = pool.owner_taint if lost and pool is not None else None
    return PatchNode(node.uid, node.name, node.resource_version, home_taints(node, owner), None)
