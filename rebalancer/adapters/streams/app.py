"""Faust apps with the settings that behave, started embedded: no worker command, no web, no tables, no signals.

Each setting here was measured (session, heartbeat and commit intervals decide how long a restart stalls). State
never lives in Faust. Several apps run in one process on one event loop, each its own consumer group.
"""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faust
from aiokafka import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from yarl import URL

from rebalancer.adapters.streams.connection import KafkaSettings

SESSION, HEARTBEAT, REBALANCE, COMMIT = 10.0, 2.0, 10.0, 1.0  # seconds
STORMY = ("faust", "mode", "aiokafka")
LINES_PER_SECOND, BURST = 1.0, 20
"""What may be logged by the loggers that storm while a broker is away (16,000 lines in 18 s were seen)."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """One app. ``group`` is its consumer group; ``instance`` a stable id shortens restarts (static membership).

    ``fetch_wait_ms``: how long the broker may hold a fetch open that finds nothing; None leaves Faust's 1500. The
    embedded broker does not wake such a fetch when something comes, so there it must be short.
    """

    group: str
    kafka: KafkaSettings
    instance: str | None = None
    fetch_wait_ms: int | None = None
    only: frozenset[int] | None = None
    """Partition numbers to fetch from, of those assigned; None: all. For a day in lockstep, whose topics have only one
    partition in use: each fetch costs by the partitions that it names."""
    data_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / "gpu-rebalancer")


def make_app(settings: AppSettings) -> Any:
    """A Faust app that only consumes: raw bytes in, our own publisher out."""
    quiet()
    settings.data_dir.mkdir(parents=True, exist_ok=True)  # faust makes the last folder only
    app = faust.App(
        settings.group,
        **settings.kafka.faust_arguments(),
        monitor=None,
        Monitor=Progress,
        datadir=str(settings.data_dir / settings.group),
        store="memory://",
        key_serializer="raw",
        value_serializer="raw",
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        broker_session_timeout=SESSION,
        broker_heartbeat_interval=HEARTBEAT,
        broker_rebalance_timeout=REBALANCE,
        broker_commit_interval=COMMIT,
        broker_request_timeout=max(settings.kafka.timeout, SESSION + 1),
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.instance,
        stream_wait_empty=False,
        worker_redirect_stdouts=False,
    )
    if settings.fetch_wait_ms is not None:
        transport = _transport(settings.fetch_wait_ms, settings.only)
        app.transport = transport([URL(one) for one in app.conf.broker], app)
    return app


def highwater(app: Any, topic: str, partition: int) -> int:
    """The end of a partition as the broker last told it; 0 for one that is not ours at present."""
    place = TP(topic, partition)
    ours = place in app.consumer.assignment()  # asked of any other place, aiokafka fails an assertion
    return app.consumer.highwater(place) or 0 if ours else 0


class Progress(faust.Monitor):
    """Counts what came and went, and nothing else: the stock monitor keeps histories for each event."""

    def on_message_in(self, tp: Any, offset: int, message: Any) -> None:
        """Counted where it is handled."""

    def on_message_out(self, tp: Any, offset: int, message: Any) -> None:
        """Counted where it is handled."""

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> dict[str, Any] | None:
        """No timing of single events."""
        del tp, offset, stream, event
        return None

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: dict[str, Any] | None = None
    ) -> None:
        """No timing of single events."""


def _transport(fetch_wait_ms: int, only: frozenset[int] | None) -> type[driver.Transport]:
    """Faust's own transport, but for one number that it keeps to itself, and for partitions nobody writes to."""

    class Thread(driver.AIOKafkaConsumerThread):
        def _create_worker_consumer(self, transport: Any) -> Any:
            consumer = super()._create_worker_consumer(transport)
            consumer._fetch_max_wait_ms = fetch_wait_ms  # noqa: SLF001 - faust hard-codes it and offers no setting
            return consumer

        async def on_partitions_assigned(self, assigned: Any, generation_id: int = 0) -> None:
            await super().on_partitions_assigned(assigned, generation_id)
            idle = [TopicPartition(topic, one) for topic, one in assigned if only is not None and one not in only]
            self._ensure_consumer().pause(*idle)

    class Consumer(driver.Consumer):
        def _new_consumer_thread(self) -> Any:
            return Thread(self, loop=self.loop, beacon=self.beacon)

    return type("Transport", (driver.Transport,), {"Consumer": Consumer})


class RateLimit(logging.Filter):
    """Lets a burst through, then a line a second; says how many it swallowed with the next that passes."""

    def __init__(self, per_second: float = LINES_PER_SECOND, burst: int = BURST) -> None:
        super().__init__()
        self._rate, self._burst = per_second, float(burst)
        self._left, self._at, self._swallowed = float(burst), time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line may pass."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            self._swallowed += 1
            return False
        self._left -= 1
        if self._swallowed:
            record.msg, record.args = f"{record.getMessage()} ({self._swallowed} lines before it swallowed)", None
            self._swallowed = 0
        return True


def quiet() -> None:
    """Put the rate limit on every logger of the stream libraries that exists by now, once."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in STORMY]
    for name in {*STORMY, *names}:
        logger = logging.getLogger(name)
        if not any(isinstance(one, RateLimit) for one in logger.filters):
            logger.addFilter(RateLimit())


__all__ = ["AppSettings", "Progress", "RateLimit", "highwater", "make_app", "quiet"]
