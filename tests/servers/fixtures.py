"""The servers as pytest fixtures, for every test that asks for one by name.

`kafka` is shared by the whole run and must be left running; a test that stops or kills its broker asks for
`own_kafka`. Names of topics and groups are fresh for each test, so that no test sees another's records.
"""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code

from rebalancer.adapters.streams.embedded import EmbeddedBroker
from tests.servers.addresses import Addresses
from tests.servers.kafka import KafkaServer
from tests.servers.sharing import shared_kafka

FreshName = Callable[[str], str]
CreateTopic = Callable[..., Awaitable[str]]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Addresses]:
    """The run's real broker, shared by all tests and all xdist workers."""
    base = tmp_path_factory.getbasetemp()
    with shared_kafka((base if worker_id == "master" else base.parent) / "servers") as addresses:
        yield addresses


@pytest.fixture(scope="session")
def sasl_kafka(kafka: Addresses) -> dict[str, Any]:
    """Arguments of aiokafka to reach the same broker by name and password (SASL/SCRAM), as its superuser."""
    return kafka.sasl_client()


@pytest.fixture(scope="session")
def tls_kafka(kafka: Addresses) -> dict[str, Any]:
    """Arguments of aiokafka to reach the same broker encrypted."""
    return kafka.tls_client()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    """A real broker of the test's own, running; to be stopped, killed and restarted at will."""
    with KafkaServer(tmp_path / "kafka") as server:
        yield server


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """The mock cluster of librdkafka: starts in no time, keeps no promise that the real broker makes."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def fresh_name() -> FreshName:
    """Make a name for a topic or a group that no other test has: `fresh_name("plans")`."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def create_topic(kafka: Addresses, fresh_name: FreshName) -> CreateTopic:
    """Create a topic with a fresh name on the shared broker and return the name once it is there."""

    async def create(stem: str = "topic", partitions: int = 1, **config: str) -> str:
        return await create_topic_at(kafka, fresh_name(stem), partitions, config)

    return create


async def create_topic_at(at: Addresses, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Create the topic `name` at a broker; `config` keys are Kafka's own, dots included."""
    admin = AIOKafkaAdminClient(**at.client())
    await admin.start()
    try:
        told = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=config or {})])
        for _, code, why in told.topic_errors:
            if code:
                raise for_code(code)(why)
    finally:
        await admin.close()
    return name
