"""A broker for the stories alone, with fresh topics for each, and the undisturbed night that they compare with."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from rebalancer.adapters.streams import admin
from rebalancer.adapters.streams.connection import KafkaSettings
from tests.servers.kafka import KafkaServer
from tests.stories.night import Night, lived


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """Running; a story that stops it starts it again."""
    with KafkaServer(tmp_path_factory.mktemp("stories-kafka")) as server:
        yield server


@pytest.fixture
def fresh(broker: KafkaServer) -> KafkaSettings:
    """How to reach a broker whose topics are all there and empty."""
    return emptied(broker)


@pytest.fixture(scope="session")
def undisturbed(broker: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """The short night as one worker lives it when nothing happens."""
    kafka, folder = emptied(broker), tmp_path_factory.mktemp("undisturbed")
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, lived(kafka, folder)).result(120.0)


def emptied(broker: KafkaServer) -> KafkaSettings:
    """Fresh topics at the broker, which is started if a story left it stopped."""
    if broker.pid is None:
        broker.start()
    kafka = KafkaSettings(bootstrap=broker.bootstrap, timeout=20.0)
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, _empty(kafka)).result(60.0)
    return kafka


async def _empty(kafka: KafkaSettings) -> None:
    client = AIOKafkaAdminClient(**kafka.client_arguments())
    await client.start()
    try:
        old = [name for name in await client.list_topics() if name.startswith("gpu.")]
        if old:
            await client.delete_topics(old)
        async with asyncio.timeout(30.0):
            while any(name.startswith("gpu.") for name in await client.list_topics()):  # noqa: ASYNC110 - asked only
                await asyncio.sleep(0.05)
    finally:
        await client.close()
    await admin.apply(kafka)
