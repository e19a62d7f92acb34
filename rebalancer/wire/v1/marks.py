"""Records about the streams themselves: snapshot marks, requests, barriers of a lockstep run, the journal."""

from __future__ import annotations

from typing import Any, Literal

from rebalancer.wire.envelope import Count, Moment, Name, Shape, Text
from rebalancer.wire.v1.decisions import Because
from rebalancer.wire.v1.facts import FactKind


class SnapshotBegan(Shape):
    """A full list of one kind follows."""

    of: FactKind
    snapshot: Name


class SnapshotEnded(Shape):
    """The list is complete if ``count`` objects came since it began; what did not come is gone."""

    of: FactKind
    snapshot: Name
    count: Count


class SnapshotRequested(Shape):
    """Please list all objects of one kind."""

    of: FactKind
    because: Because


class Approved(Shape):
    """A person approved a plan that waited for it."""

    plan: Name
    by: Text


class RecallRequested(Shape):
    """A person wants nodes home. ``target`` is a node or pool, empty for all."""

    scope: Literal["node", "pool", "all"]
    target: Text
    by: Text


class Barrier(Shape):
    """In a simulated run: everything of this step has been sent on this partition."""

    step: Count
    now: Moment
    """Simulated time."""
    source: Text = ""
    """Who says so, where several do."""


class JournalEntry(Shape):
    """One stimulus as the decider handled it; entries of a cluster, in order, replay to the same plans."""

    now: Moment
    """The clock as handed to the core."""
    stimulus: dict[str, Any]
    """Tagged by ``kind``; internal to the product, not part of the promise to subscribers."""
    session: int = 0
    """The term of the decider that handled it; 0: not told."""
    number: int = 0
    """Its place among the session's entries, from 0: a broker's fault may repeat or reorder the records."""
