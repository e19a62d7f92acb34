"""Records of the product's topics with the moment at which the broker appended them.

The broker's clock is this machine's (`LogAppendTime`, whole milliseconds), as is the API server's in its audit log:
moments of both can be subtracted. Nothing is committed or sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from rebalancer.adapters.translate import Content, WireError, read

STARTS_WITHIN = 30.0  # seconds
ENDS_WITHIN = 10.0
POLL = 0.2
LOOK = 0.01  # seconds between two looks while something is awaited
T = TypeVar("T")


class Heard(NamedTuple):
    """A record: epoch seconds of its append, its topic, what it says."""

    at: float
    topic: str
    content: Content


class Stamped:
    """Everything on these topics, while the context is open."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.heard: list[Heard] = []
        self._bootstrap, self._topics = bootstrap, topics
        self._began, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name="stamped", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(STARTS_WITHIN), "nothing heard of the broker"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ending.set()
        self._thread.join(ENDS_WITHIN)

    def since(self, number: int, of: type[T]) -> Iterator[tuple[float, T]]:
        """What was heard of a kind after so many records."""
        return ((one.at, one.content) for one in self.heard[number:] if isinstance(one.content, of))

    def first(self, number: int, of: type[T], so: Callable[[T], bool], within: float) -> tuple[float, T]:
        """The first such record after so many; raises TimeoutError."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            found = next(((at, one) for at, one in self.since(number, of) if so(one)), None)
            if found is not None:
                return found
            time.sleep(LOOK)
        raise TimeoutError(f"no {of.__name__} within {within:g} s")

    def _follow(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "bench", "enable.auto.commit": False}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 20})
        try:
            consumer.assign(self._places(consumer))
            self._began.set()
            while not self._ending.is_set():
                message = consumer.poll(POLL)
                if message is not None and message.error() is None:
                    self._take(message)
        finally:
            consumer.close()

    def _places(self, consumer: Consumer) -> list[TopicPartition]:
        listed = consumer.list_topics(timeout=STARTS_WITHIN).topics
        return [
            TopicPartition(topic, part, OFFSET_BEGINNING) for topic in self._topics for part in listed[topic].partitions
        ]

    def _take(self, message: Message) -> None:
        topic = str(message.topic())
        try:
            named = message.headers() or ()
            pairs = named.items() if isinstance(named, dict) else named
            headers = [(name, value) for name, value in pairs if isinstance(value, bytes)]
            told = read(topic, message.key() or b"", message.value(), headers, datetime.now(UTC))
        except WireError:
            return
        self.heard.append(Heard(message.timestamp()[1] / 1000.0, topic, told.content))
