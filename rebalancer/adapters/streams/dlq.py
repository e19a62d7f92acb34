"""Dead letters: what could not be read or handled goes beside its topic, bytes untouched, and the stream goes on.

The letter is acknowledged before the offset of the bad record may be committed, so nothing disappears. What is
wrong with a record is said by whoever refused it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.translate import WireError, dead_letter
from rebalancer.wire.envelope import Record

log = structlog.get_logger(__name__)
LETTER = 900_000
"""Bytes of a foreign value that are kept: Kafka's default limit for a record, less headers and framing."""
RETRY_SECONDS = 1.0
FOREIGN_HEADERS = 32_768
"""Bytes of foreign headers that are kept; beyond them none are."""


class DeadLetters:
    """Where a role's bad records go."""

    def __init__(self, publisher: Publisher, metrics: Metrics, role: str) -> None:
        self._publisher, self._metrics, self._role = publisher, metrics, role

    async def bury(self, bad: Came, error: WireError) -> None:
        """Publish the letter and wait for the broker; raises NotPublished if it does not take it."""
        record = Record(bad.topic, bad.key, bad.value, list(bad.headers))
        await self._put(dead_letter(record, bad.partition, bad.offset, error), bad.partition, bad, error)

    async def bury_surely(self, bad: Came, error: Exception) -> None:
        """Publish the letter however long the broker refuses it, one try a second: the stream waits meanwhile."""
        while True:
            try:
                await self.bury(bad, refused(error))
            except NotPublished as away:
                log.warning("dead letter not published, trying again", error=str(away))
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def bury_foreign(self, bad: Came, target: str, cluster: str, error: WireError) -> None:
        """Publish the letter of a record from a topic that is not ours, beside the topic that it was meant for.

        Its headers name the foreign topic; what Kafka would refuse for its size is cut, and its size told.
        """
        letter = foreign_letter(bad, target, error)
        await self._put(letter, self._publisher.partition(cluster), bad, error)

    async def _put(self, letter: Record, partition: int, bad: Came, error: WireError) -> None:
        await self._publisher.settle([await self._publisher.post_to(letter, partition)])
        self._metrics.dead_letters.labels(self._role, error.stage).inc()
        log.warning(
            "dead letter",
            topic=bad.topic,
            partition=bad.partition,
            offset=bad.offset,
            stage=error.stage,
            reason=error.reason,
        )


def foreign_letter(bad: Came, target: str, error: WireError) -> Record:
    """The letter for the dead letters of our topic ``target``."""
    headers: Sequence[tuple[str, bytes | None]] = bad.headers  # others' may have no value
    kept = [(name, value or b"") for name, value in headers]
    if sum(len(name) + len(value) for name, value in kept) > FOREIGN_HEADERS:
        kept = []
    value, key = bad.value, bad.key[:FOREIGN_HEADERS]
    if value is not None and len(value) > LETTER:
        kept.append(("dlq_size", str(len(value)).encode()))
        value = value[:LETTER]
    letter = dead_letter(Record(bad.topic, key, value, kept), bad.partition, bad.offset, error)
    return letter._replace(topic=f"{target}.dlq")


def refused(error: Exception) -> WireError:
    """What went wrong as a stage and a reason: a record that cannot be read says so itself."""
    if isinstance(error, WireError):
        return error
    return WireError("handle", f"{type(error).__name__}: {error}")
