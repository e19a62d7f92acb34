"""One way home, from the record that made it due to the last eviction accepted, and where its time went.

Pure: a plan, the moments of record and plan, and the requests that the API server saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rebalancer.core.plan import CloseNode, EvictGang, Plan
from tests.bench.cluster.audited import Request

FIRST, LAST = "record → first eviction accepted", "record → last of the gang accepted"


class Way(NamedTuple):
    """One node's way home. Epoch seconds: ``called`` before the record was caused, ``due`` its append, ``planned``."""

    trigger: str
    called: float
    due: float
    planned: float
    plan: Plan

    @property
    def node(self) -> str:
        """The first node that it closes."""
        return next(step.node_name for step in self.plan.steps if isinstance(step, CloseNode))

    @property
    def gang(self) -> EvictGang:
        """The first gang that it evicts."""
        return next(step for step in self.plan.steps if isinstance(step, EvictGang))


def accepted(way: Way, requests: Sequence[Request]) -> list[Request]:
    """Evictions of the gang's members that the server accepted, in the order of their answers."""
    names = {(one.namespace, one.name) for one in way.gang.members}
    found = [one for one in requests if one.accepted and (one.namespace, one.name) in names]
    return sorted(found, key=lambda one: one.answered)


def stages(way: Way, requests: Sequence[Request]) -> Mapping[str, float]:
    """Seconds of each stage; members are read while the node is being closed, the rest follows one after the other.

    Raises:
        ValueError: a request that the protocol makes is not among them.
    """
    names = {one.name for one in way.gang.members}
    mine = [one for one in requests if one.received >= way.planned - 0.002]  # the broker rounds to milliseconds
    node = [one for one in mine if one.resource == "nodes" and one.name == way.node]
    members = [one for one in mine if one.verb == "get" and one.resource == "pods" and one.name in names]
    asked = _first(node, way.planned, "get").received
    closed = _first(node, asked, "patch").answered
    dry = [one for one in mine if one.evicts and one.dry and one.name in names]
    budgets = [one for one in mine if one.resource == "poddisruptionbudgets"]
    real = accepted(way, mine)
    if not dry or not budgets or not real:
        raise ValueError(f"{way.trigger} of {way.node}: {len(dry)} dry runs, {len(real)} evictions")
    begun = min(asked, *(one.received for one in members))
    read = min(one.received for one in (*dry, *budgets))
    checked = max(one.answered for one in (*dry, budgets[0]))
    first = min(one.received for one in real)
    return {
        "cause → record on Kafka": way.due - way.called,
        "record → plan on Kafka": way.planned - way.due,
        "plan → first request of act": begun - way.planned,
        "node closed, members read": read - begun,
        "of that: node read and closed": closed - begun,
        "budgets and dry runs": checked - read,
        "→ first eviction asked": first - checked,
        "first eviction answered": real[0].answered - first,
        FIRST: real[0].answered - way.due,
        LAST: real[-1].answered - way.due,
    }


def _first(requests: Sequence[Request], since: float, verb: str) -> Request:
    found = [one for one in requests if one.verb == verb and one.received >= since - 0.002]
    if not found:
        raise ValueError(f"no {verb} of the node")
    return min(found, key=lambda one: one.received)
