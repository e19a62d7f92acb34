"""What the other tests may rely on: the real broker's habits, and the embedded one's limits."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, TopicAlreadyExistsError, TopicAuthorizationFailedError

from rebalancer.adapters.streams.embedded import PARTITIONS, EmbeddedBroker
from tests.servers.addresses import LIMITED_USER, Addresses
from tests.servers.fixtures import CreateTopic, FreshName, create_topic_at
from tests.servers.kafka import COMPACT_SOON, BrokerError, KafkaServer
from tests.servers.ports import is_open

Record = tuple[bytes | None, bytes | None]


async def send(client: dict[str, Any], topic: str, *records: Record) -> None:
    async with AIOKafkaProducer(**client, acks="all", request_timeout_ms=10_000) as producer:
        for key, value in records:
            await producer.send_and_wait(topic, value, key=key, partition=0)


async def read_to_end(client: dict[str, Any], topic: str) -> list[Record]:
    # Not "latest": the reset to the end that `assign` starts can come after the seek to the beginning.
    consumer = AIOKafkaConsumer(**client, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    found: list[Record] = []
    try:
        await consumer.start()
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        await consumer.seek_to_beginning(partition)
        while await consumer.position(partition) < end:
            batch = await consumer.getmany(partition, timeout_ms=1000)
            found += [(one.key, one.value) for one in batch.get(partition, [])]
    finally:
        await consumer.stop()
    return found


@pytest.mark.kafka
async def test_the_shared_broker_says_who_it_is(kafka: Addresses) -> None:
    admin = AIOKafkaAdminClient(**kafka.client())
    await admin.start()
    try:
        told = await admin.describe_cluster()
    finally:
        await admin.close()
    assert [f"{one['host']}:{one['port']}" for one in told["brokers"]] == [kafka.bootstrap]


@pytest.mark.kafka
async def test_a_topic_that_is_there_already_is_an_error(kafka: Addresses, create_topic: CreateTopic) -> None:
    name = await create_topic("twice", partitions=3)
    with pytest.raises(TopicAlreadyExistsError):
        await create_topic_at(kafka, name)


@pytest.mark.kafka
async def test_the_brokers_own_clock_stamps_every_record(kafka: Addresses, create_topic: CreateTopic) -> None:
    topic = await create_topic("stamped")
    async with AIOKafkaProducer(**kafka.client()) as producer:
        sent = await producer.send_and_wait(topic, b"late", timestamp_ms=1_000)
    assert sent.timestamp > time.time() * 1000 - 60_000


@pytest.mark.kafka
async def test_records_survive_a_kill_and_a_restart_on_the_same_port(
    own_kafka: KafkaServer, fresh_name: FreshName
) -> None:
    client, before = own_kafka.addresses.client(), own_kafka.bootstrap
    topic = await create_topic_at(own_kafka.addresses, fresh_name("kept"))
    await send(client, topic, (b"a", b"1"), (b"b", b"2"))

    own_kafka.kill()
    with pytest.raises(KafkaConnectionError):
        await read_to_end(client, topic)
    await asyncio.to_thread(own_kafka.start)
    assert own_kafka.bootstrap == before
    assert await read_to_end(client, topic) == [(b"a", b"1"), (b"b", b"2")]

    await asyncio.to_thread(own_kafka.restart)
    await send(client, topic, (b"c", b"3"))
    assert await read_to_end(client, topic) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]


@pytest.mark.kafka
def test_a_stopped_broker_cannot_be_stopped_again_and_leaves_its_port(own_kafka: KafkaServer) -> None:
    own_kafka.stop()
    assert not is_open(int(own_kafka.bootstrap.rpartition(":")[2]))
    with pytest.raises(BrokerError, match="does not run"):
        own_kafka.stop()


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_so_with_its_log(own_kafka: KafkaServer) -> None:
    own_kafka.stop()
    properties = own_kafka.log_file.with_name("server.properties")
    properties.write_text(properties.read_text() + "log.cleaner.threads=none\n")
    with pytest.raises(BrokerError, match=r"ended while starting(?s:.*)log\.cleaner\.threads"):
        own_kafka.start()


@pytest.mark.kafka
async def test_a_compacted_topic_forgets_old_values_and_tombstones_within_seconds(
    kafka: Addresses, create_topic: CreateTopic
) -> None:
    topic = await create_topic("compacted", **COMPACT_SOON)
    await send(kafka.client(), topic, (b"a", b"old"), (b"b", b"gone"), (b"a", b"new"), (b"b", None))
    async with asyncio.timeout(30):
        while (found := await read_to_end(kafka.client(), topic))[0] != (b"a", b"new"):
            await send(kafka.client(), topic, (b"roll", b"x"))  # a segment is only closed when a record comes
            await asyncio.sleep(0.25)
    assert (b"b", b"gone") not in found
    assert (b"a", b"old") not in found


@pytest.mark.kafka
async def test_the_right_name_and_password_get_in(sasl_kafka: dict[str, Any], create_topic: CreateTopic) -> None:
    topic = await create_topic("named")
    await send(sasl_kafka, topic, (b"k", b"v"))
    assert await read_to_end(sasl_kafka, topic) == [(b"k", b"v")]


@pytest.mark.kafka
async def test_a_wrong_password_is_refused(kafka: Addresses) -> None:
    producer = AIOKafkaProducer(**kafka.sasl_client(password="guessed"))
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()


@pytest.mark.kafka
async def test_a_user_without_an_acl_may_not_write(kafka: Addresses, create_topic: CreateTopic) -> None:
    topic = await create_topic("guarded")
    with pytest.raises(TopicAuthorizationFailedError):
        await send(kafka.sasl_client(LIMITED_USER), topic, (b"k", b"v"))


@pytest.mark.kafka
async def test_the_encrypted_door_works_for_who_trusts_its_authority(
    tls_kafka: dict[str, Any], create_topic: CreateTopic
) -> None:
    topic = await create_topic("encrypted")
    await send(tls_kafka, topic, (b"k", b"v"))
    assert await read_to_end(tls_kafka, topic) == [(b"k", b"v")]


@pytest.mark.kafka
async def test_the_encrypted_door_is_not_trusted_without_its_authority(kafka: Addresses) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.tls, security_protocol="PLAINTEXT")
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()


async def test_records_go_through_the_embedded_broker(embedded_broker: EmbeddedBroker, fresh_name: FreshName) -> None:
    client, topic = {"bootstrap_servers": embedded_broker.bootstrap}, fresh_name("toy")
    await send(client, topic, (b"k", b"v"), (b"k", None))
    assert await read_to_end(client, topic) == [(b"k", b"v"), (b"k", None)]


async def test_the_embedded_broker_gives_each_topic_the_promised_partitions(
    embedded_broker: EmbeddedBroker, fresh_name: FreshName
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=embedded_broker.bootstrap) as producer:
        assert len(await producer.partitions_for(fresh_name("toy"))) == PARTITIONS


def test_an_embedded_broker_that_does_not_run_has_no_address() -> None:
    with EmbeddedBroker() as broker:
        assert broker.bootstrap
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.bootstrap
