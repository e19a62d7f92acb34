"""What happened since the totals of usage were last told: told again one by one, so that nothing of it is lost.

Of what lay there before that moment the last word of each key is enough, as compaction would have left it; after it
every record counts, deletions too, and in the order of event time over all topics. A topic's own order is never
changed. Pure: nothing is read or sent here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rebalancer.adapters.streams.loader import Came, latest
from rebalancer.adapters.translate import Received
from rebalancer.core.instructions import PoolMemory
from rebalancer.core.stimuli import (
    Fact,
    FactDeleted,
    FactObserved,
    SnapshotBegan,
    SnapshotEnded,
    Stimulus,
    VerdictGiven,
    kind_of,
)
from rebalancer.wire.envelope import header


class Read(NamedTuple):
    """A record that could be read, and where it lay."""

    came: Came
    told: Received


class Marks(NamedTuple):
    """The latest begin and the latest end of a full list; ``complete``: the one that ended is the one that began."""

    began: Read | None
    ended: Read | None
    complete: bool


class Timed(NamedTuple):
    """A stimulus with its place in time: never earlier than what lay before it on its topic."""

    at: datetime
    stimulus: Stimulus


def marks_of(reads: Iterable[Read]) -> Marks:
    """Where the latest full list on a topic begins and ends."""
    began = ended = None
    for one in reads:
        if isinstance(one.told.content, SnapshotBegan):
            began = one
        elif isinstance(one.told.content, SnapshotEnded):
            ended = one
    if began is None or ended is None:
        return Marks(began, ended, complete=False)
    begin, end = began.told.content, ended.told.content
    same = isinstance(begin, SnapshotBegan) and isinstance(end, SnapshotEnded) and begin.snapshot == end.snapshot
    return Marks(began, ended, complete=same and began.came.offset < ended.came.offset)


def accounted(memories: Iterable[PoolMemory]) -> datetime | None:
    """Up to when the usage of every pool is in the totals that were told; None where there are none."""
    return min((memory.usage.upto for memory in memories if memory.usage is not None), default=None)


def since(records: Sequence[Came], moment: datetime) -> list[Came]:
    """Every record from the first one later than ``moment`` on, and the last word of each key before it."""
    first = next((place for place, one in enumerate(records) if _later(one, moment)), len(records))
    return [*latest(records[:first]), *records[first:]]


def _later(record: Came, moment: datetime) -> bool:
    told = header(record.headers, "ce_time")
    if told is None:
        return False
    try:
        return datetime.fromisoformat(told).astimezone(UTC) > moment
    except (ValueError, OverflowError):
        return False


def split(reads: Sequence[Read], moment: datetime) -> tuple[list[Stimulus], list[Timed]]:
    """What one topic says: what lay there by ``moment``, and what came after it.

    An object that a later complete list left out is gone by that list's end, as its ``SnapshotEnded`` told.
    """
    marks = marks_of(reads)
    lasting = {_uid(one.told.content) for one in reads if not _ghostly(one, marks)}
    before: dict[str, Stimulus] = {}
    after: list[Timed] = []
    at = moment
    for one in reads:
        content, told = one.told.content, one.told.at or at
        at = max(at, told)
        if marks.complete and one is marks.ended:
            if at > moment:
                after += [Timed(at, gone) for gone in _ghosts(before, after, lasting, at)]
            else:
                before = {uid: stimulus for uid, stimulus in before.items() if uid in lasting}
        elif not _tells(content, marks):
            continue
        elif at > moment:
            after.append(Timed(at, content))  # type: ignore[arg-type]  # what tells is a stimulus
        elif not isinstance(content, FactDeleted):
            before[_uid(content)] = content  # type: ignore[assignment]  # as above
    return list(before.values()), after


def _tells(content: object, marks: Marks) -> bool:
    return isinstance(content, FactObserved | FactDeleted | VerdictGiven) or (
        isinstance(content, SnapshotBegan) and not marks.complete
    )


def _ghostly(one: Read, marks: Marks) -> bool:
    return marks.complete and marks.began is not None and one.came.offset < marks.began.came.offset


def _uid(content: object) -> str:
    match content:
        case FactObserved():
            return content.fact.uid
        case FactDeleted():
            return content.uid
        case VerdictGiven():
            return content.verdict.node
    return ""


def _ghosts(
    before: Mapping[str, Stimulus], after: Iterable[Timed], lasting: set[str], at: datetime
) -> Iterator[FactDeleted]:
    """Deletions of what was told and is not in the list that ended at ``at``."""
    told = {**before, **{_uid(one.stimulus): one.stimulus for one in after}}
    for uid, stimulus in told.items():
        if uid not in lasting and isinstance(stimulus, FactObserved):
            fact: Fact = stimulus.fact
            yield FactDeleted(kind_of(fact), uid, at)


def in_time(lanes: Iterable[Sequence[Timed]]) -> list[Stimulus]:
    """What several topics say, in the order of time; of one moment, in the order of the topics."""
    return [one.stimulus for one in sorted((one for lane in lanes for one in lane), key=lambda one: one.at)]
