"""What loaded records mean for one cluster: the stimuli that rebuild an engine, in the order to tell them.

The ledger first, so that marks on nodes are squared with it; then objects, oldest change first, without the ghosts
that a complete snapshot left out; then what telemetry last said. Pure: nothing is read or sent here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rebalancer.adapters.streams.loader import Came, Loaded, latest
from rebalancer.adapters.streams.recent import Read, accounted, in_time, marks_of, since, split
from rebalancer.adapters.translate import Barrier, WireError, read
from rebalancer.core.facts import Node, Pod
from rebalancer.core.instructions import ClearAlert, PoolMemory, RaiseAlert, WorkloadRecord
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.stimuli import (
    FactObserved,
    HeartbeatHeard,
    OutcomeReported,
    Restored,
    SnapshotBegan,
    Stimulus,
    VerdictGiven,
)
from rebalancer.wire import v1

FACTS = tuple(v1.FACT_TOPICS.values())
COMPACTED = (*FACTS, v1.STATE_NODE, v1.STATE_TELEMETRY, v1.STATE_LOAN, v1.STATE_WORKLOAD, v1.FORECAST_POOL, v1.ALERT)
TIMED = (*FACTS, v1.STATE_NODE)
"""What usage is accounted by: told in order of time from where the accounts stand."""
TAILS = (v1.PLAN, v1.OUTCOME)
LOADED = (*COMPACTED, *TAILS)
"""Own topics that are read to their end when a partition is assigned."""
_NEEDED = (v1.FACT_TOPICS["node"], v1.FACT_TOPICS["pod"])
"""Kinds whose picture must be complete before anything is planned."""


@dataclass(slots=True)
class Rebuilt:
    """An engine's memory as stimuli. ``barrier``: the last simulated step that act has answered, if any."""

    stimuli: list[Stimulus] = field(default_factory=list)
    barrier: Barrier | None = None
    unreadable: int = 0


def readable(records: Iterable[Came], received_at: datetime) -> Iterator[Read | WireError]:
    """Each record read, or why it could not be."""
    for came in records:
        try:
            told = read(came.topic, came.key, came.value, came.headers, received_at)
        except WireError as error:
            yield error
        else:
            yield Read(came, told)


def rebuild(loaded: Loaded, cluster: str, now: datetime) -> Rebuilt:
    """What one cluster's engine is told before its first event. ``now`` dates tombstones that do not say when."""
    found = Rebuilt()
    by_topic = {v1.FORECAST_POOL: _mine(loaded, v1.FORECAST_POOL, cluster, now, found)}
    moment = accounted(_contents(by_topic, v1.FORECAST_POOL, PoolMemory))
    for topic in loaded.records.keys() - by_topic.keys():
        by_topic[topic] = _mine(loaded, topic, cluster, now, found, moment)
    outcomes = by_topic.get(v1.OUTCOME, [])
    barriers = [one.told.content for one in outcomes if isinstance(one.told.content, Barrier)]
    found.barrier = barriers[-1] if barriers else None
    synced = all(marks_of(by_topic.get(topic, [])).complete for topic in _NEEDED)
    found.stimuli.append(_restored(by_topic, found.barrier.now if found.barrier is not None else now, synced=synced))
    found.stimuli += _facts(by_topic) if moment is None else _history(by_topic, moment)
    found.stimuli += _contents(by_topic, v1.STATE_TELEMETRY, HeartbeatHeard)
    return found


def _mine(  # noqa: PLR0917 - what, whose, and since when every word counts
    loaded: Loaded, topic: str, cluster: str, now: datetime, found: Rebuilt, moment: datetime | None = None
) -> list[Read]:
    listed = loaded.records.get(topic, [])
    if topic not in TAILS:
        listed = since(listed, moment) if moment is not None and topic in TIMED else latest(listed)
    mine: list[Read] = []
    for one in readable(listed, now):
        if isinstance(one, WireError):
            found.unreadable += 1
        elif one.told.cluster == cluster:
            mine.append(one)
    return mine


def _contents(by_topic: Mapping[str, list[Read]], topic: str, *kinds: type) -> list[Any]:
    return [one.told.content for one in by_topic.get(topic, []) if isinstance(one.told.content, kinds)]


def _facts(by_topic: Mapping[str, list[Read]]) -> list[Stimulus]:
    """The last word about each object, in offset order, and then about each node's activity."""
    facts = [stimulus for topic in FACTS for stimulus in _last_words(by_topic.get(topic, []))]
    return [*facts, *_contents(by_topic, v1.STATE_NODE, VerdictGiven)]


def _history(by_topic: Mapping[str, list[Read]], moment: datetime) -> list[Stimulus]:
    """How things stood at a moment, and all that happened since."""
    lanes = [split(by_topic.get(topic, []), moment) for topic in TIMED]
    return [*(stimulus for before, _ in lanes for stimulus in before), *in_time(after for _, after in lanes)]


def _last_words(reads: list[Read]) -> list[Stimulus]:
    """Objects of one kind in offset order.

    After a complete list, what lies before its begin was not in it: a ghost. In the middle of one, its begin is
    told in its place, so that the end, which is still to come in the stream, finds what came since.
    """
    began, _, complete = marks_of(reads)
    told: list[Stimulus] = []
    for one in reads:
        content = one.told.content
        ghost = complete and began is not None and one.came.offset < began.came.offset
        if (isinstance(content, FactObserved) and not ghost) or (isinstance(content, SnapshotBegan) and not complete):
            told.append(content)
    return told


def _restored(by_topic: Mapping[str, list[Read]], now: datetime, *, synced: bool) -> Restored:
    plans: dict[str, Plan] = {plan.id: plan for plan in _contents(by_topic, v1.PLAN, Plan)}
    valid = {plan.id: plan for plan in plans.values() if plan.valid_until >= now}
    reported: list[OutcomeReported] = _contents(by_topic, v1.OUTCOME, OutcomeReported)
    outcomes: dict[str, Outcome] = {one.outcome.id: one.outcome for one in reported if one.outcome.plan in valid}
    return Restored(
        loans=tuple(_contents(by_topic, v1.STATE_LOAN, Loan)),
        workloads=tuple(_contents(by_topic, v1.STATE_WORKLOAD, WorkloadRecord)),
        pools=tuple(_contents(by_topic, v1.FORECAST_POOL, PoolMemory)),
        plans=tuple(valid.values()),
        outcomes=tuple(outcomes.values()),
        synced=synced,
        at=now,
        alerts=tuple(_contents(by_topic, v1.ALERT, RaiseAlert)),
        cleared=tuple(_contents(by_topic, v1.ALERT, ClearAlert)),
    )


def counts(stimuli: Iterable[Stimulus]) -> dict[str, int]:
    """How many nodes and pods there are among them, for the log."""
    facts = [one.fact for one in stimuli if isinstance(one, FactObserved)]
    return {
        "nodes": sum(isinstance(fact, Node) for fact in facts),
        "pods": sum(isinstance(fact, Pod) for fact in facts),
    }
