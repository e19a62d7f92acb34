"""The black box: every stimulus as it was handled, in order, and folding it again to the same plans.

Appended before the plan that follows from it is published. Replaying needs no broker: a tapped folder, a file or
the topic itself give the same entries. Nothing is decided here; the engine is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Protocol

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came, read_to_end
from rebalancer.adapters.streams.publish import Posted, Publisher
from rebalancer.adapters.translate import JournalEntry, WireError, decode, encode_journal
from rebalancer.core.instructions import Instruction, PublishPlan
from rebalancer.core.plan import Plan
from rebalancer.core.policy import Policy
from rebalancer.core.stimuli import PolicyAdopted, Restored, Stimulus
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record

OUTSTANDING = 2_000
"""Entries that may wait for their acknowledgement while no plan follows from them."""


class Handler(Protocol):
    """What replay needs of an engine."""

    def handle(self, stimulus: Stimulus, now: datetime) -> list[Instruction]:
        """Take a stimulus in."""


class Journal:
    """One cluster's journal, written by its decider: entries wait here and go out together."""

    def __init__(self, publisher: Publisher, cluster: str) -> None:
        self._publisher, self._cluster = publisher, cluster
        self._session = self._number = 0
        self._waiting: list[Record] = []
        self._posted: list[Posted] = []

    def begin(self, session: int) -> None:
        """Entries from now on are those of this term, counted from 0."""
        self._session, self._number = session, 0

    async def append(self, stimulus: Stimulus, now: datetime) -> None:
        """Take one entry, as it is now; settles only when too many are not acknowledged yet."""
        self._waiting.append(encode_journal(stimulus, now, self._cluster, self._session, self._number))
        self._number += 1
        if len(self._waiting) + len(self._posted) >= OUTSTANDING:
            await self.settle()

    async def post(self) -> None:
        """Send what waits without awaiting the acknowledgements."""
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._posted.append(await self._publisher.post(record, self._cluster))

    async def settle(self) -> None:
        """All entries so far are acknowledged when this returns; raises NotPublished, and keeps what was not."""
        await self.post()
        await self._publisher.settle(self._posted)
        self._posted = []


async def read_journal(kafka: KafkaSettings, cluster: str, partition: int) -> list[JournalEntry]:
    """The journal as the broker has it."""
    loaded = await read_to_end(kafka, [v1.JOURNAL], partition)
    return list(entries(loaded.records[v1.JOURNAL], cluster))


def entries(records: Iterable[Came], cluster: str) -> Iterator[JournalEntry]:
    """Entries of one cluster in the order handled, each once: session after session, as each began.

    Raises:
        WireError: a record is no journal's, or a session lacks an entry between two others: what follows from a
            journal with a hole is anybody's guess.
    """
    sessions: dict[int, list[JournalEntry]] = {}
    for entry in _read(records, cluster):
        sessions.setdefault(entry.session, []).append(entry)
    for session, found in sessions.items():
        yield from found if session == 0 else _in_order(session, found)


def _in_order(session: int, found: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    numbered = {entry.number: entry for entry in found}
    before: int | None = None
    for number in sorted(numbered):
        if before is not None and number != before + 1:
            raise WireError("meaning", f"the journal lacks entries {before + 1} to {number - 1} of session {session}")
        before = number
        yield numbered[number]


def _read(records: Iterable[Came], cluster: str) -> Iterator[JournalEntry]:
    for record in records:
        if record.key != cluster.encode():
            continue
        found = decode(record.topic, record.key, record.value, record.headers)
        if not isinstance(found, JournalEntry):
            raise WireError("meaning", f"{type(found).__name__} on the journal")
        yield found


def replay(journal: Iterable[JournalEntry], engine_factory: Callable[[Policy], Handler]) -> list[Plan]:
    """Plans that follow from a journal, in order.

    A decider begins with its policy and what it restored, so there a fresh engine begins too; entries before the
    first beginning (the journal forgets after a week) are passed over.
    """
    engine: Handler | None = None
    policy: JournalEntry | None = None
    plans: list[Plan] = []
    for entry in journal:
        if isinstance(entry.stimulus, PolicyAdopted):
            policy = entry
        elif isinstance(entry.stimulus, Restored) and policy is not None and isinstance(policy.stimulus, PolicyAdopted):
            engine = engine_factory(policy.stimulus.policy)
            engine.handle(policy.stimulus, policy.now)
        if engine is not None:
            plans += _plans(engine.handle(entry.stimulus, entry.now))
    return plans


def _plans(instructions: Iterable[Instruction]) -> list[Plan]:
    return [one.plan for one in instructions if isinstance(one, PublishPlan)]
