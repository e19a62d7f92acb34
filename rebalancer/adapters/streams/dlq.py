"""Dead letters: what could not be read or handled goes beside its topic, bytes untouched, and the stream goes on.

The letter is acknowledged before the offset of the bad record may be committed, so nothing disappears. What is
wrong with a record is said by whoever refused it.
"""

from __future__ import annotations

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import WireError, dead_letter
from rebalancer.wire.envelope import Record

log = structlog.get_logger(__name__)


class DeadLetters:
    """Where a role's bad records go."""

    def __init__(self, publisher: Publisher, metrics: Metrics, role: str) -> None:
        self._publisher, self._metrics, self._role = publisher, metrics, role

    async def bury(self, bad: Came, error: WireError) -> None:
        """Publish the letter and wait for the broker; raises NotPublished if it does not take it."""
        record = Record(bad.topic, bad.key, bad.value, list(bad.headers))
        letter = dead_letter(record, bad.partition, bad.offset, error)
        await self._publisher.settle([await self._publisher.post_to(letter, bad.partition)])
        self._metrics.dead_letters.labels(self._role, error.stage).inc()
        log.warning(
            "dead letter",
            topic=bad.topic,
            partition=bad.partition,
            offset=bad.offset,
            stage=error.stage,
            reason=error.reason,
        )


def refused(error: Exception) -> WireError:
    """What went wrong as a stage and a reason: a record that cannot be read says so itself."""
    if isinstance(error, WireError):
        return error
    return WireError("handle", f"{type(error).__name__}: {error}")
