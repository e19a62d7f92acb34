"""A broker inside this process: librdkafka's mock cluster behind real TCP ports.

For the demo and for fast tests only. It is not Kafka: it keeps nothing on disk, drops a partition's oldest
records beyond 5 MiB or 100,000, never compacts, cannot create topics on request (they appear at first use,
with `PARTITIONS` partitions each), knows no TLS, no SASL and no ACL, and dies with the process. It must never
be offered as a way to run in production.
"""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

PARTITIONS = 4  # what the mock cluster gives to each topic
ANSWER_WITHIN = 10.0  # seconds


class EmbeddedBroker:
    """Runs while the context is open; clients reach it at `bootstrap` as they would any Kafka."""

    def __init__(self, brokers: int = 1) -> None:
        self._brokers = brokers
        self._owner: Any = None  # the mock cluster lives and dies with this client
        self._bootstrap = ""

    @property
    def bootstrap(self) -> str:
        """host:port of each broker, comma separated.

        Raises:
            RuntimeError: the context is not open.
        """
        if not self._bootstrap:
            raise RuntimeError("the embedded broker does not run")
        return self._bootstrap

    def create(self, names: Iterable[str]) -> None:
        """Make topics appear, as asking for them does."""
        for name in names:
            self._owner.list_topics(name, timeout=ANSWER_WITHIN)

    def __enter__(self) -> Self:
        self._owner = Producer({"test.mock.num.brokers": self._brokers, "log_level": 2})
        told = self._owner.list_topics(timeout=ANSWER_WITHIN)
        self._bootstrap = ",".join(f"{one.host}:{one.port}" for one in told.brokers.values())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        owner, self._owner, self._bootstrap = self._owner, None, ""
        owner.close()
