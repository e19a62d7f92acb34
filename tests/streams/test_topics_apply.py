"""The list of topics made true at a real broker, and what is refused there."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from rebalancer.adapters.streams.admin import Action, TopicsRefused, apply, plan
from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from rebalancer.wire.topics import Topic, topics
from tests.servers.addresses import Addresses
from tests.servers.fixtures import CreateTopic, FreshName
from tests.servers.ports import free_ports

pytestmark = pytest.mark.kafka


def settings_of(arguments: dict[str, Any], **more: Any) -> KafkaSettings:
    """Our settings from the words of aiokafka that the fixtures speak."""
    return KafkaSettings(
        bootstrap=arguments["bootstrap_servers"],
        protocol=arguments.get("security_protocol", "PLAINTEXT"),
        mechanism=arguments.get("sasl_mechanism", "SCRAM-SHA-512"),
        username=arguments.get("sasl_plain_username", ""),
        password=arguments.get("sasl_plain_password", ""),
        **more,
    )


@pytest.fixture
def plain(kafka: Addresses) -> KafkaSettings:
    return KafkaSettings(bootstrap=kafka.bootstrap, timeout=30)


def named(fresh_name: FreshName, chosen: Sequence[Topic]) -> list[Topic]:
    """The same topics under names that no other test has."""
    prefix = fresh_name("list")
    return [topic.model_copy(update={"name": f"{prefix}.{topic.name}"}) for topic in chosen]


def one(name: str, **changed: Any) -> Topic:
    fields = {"key": "k", "partition_by": "key", "cleanup": "delete", "keep": "7d", "what": "w", "partitions": 2}
    return Topic.model_validate({"name": name, **fields, **changed})


async def seen(plain: KafkaSettings, name: str) -> str:
    """The name, once the broker tells of the topic: creation is acknowledged a moment earlier."""
    async with asyncio.timeout(20):
        while (await plan(plain, listed=[one(name)]))[0].action is Action.CREATE:  # noqa: ASYNC110 - the broker tells only who asks
            await asyncio.sleep(0.05)
    return name


async def settings_at(kafka: Addresses, name: str) -> dict[str, str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    finally:
        await admin.close()
    return {entry[0]: entry[1] for entry in answer.resources[0][4]}


async def test_the_whole_list_is_created_once_and_then_nothing_is_left_to_do(
    plain: KafkaSettings, kafka: Addresses, fresh_name: FreshName
) -> None:
    wanted = named(fresh_name, topics())
    assert {change.action for change in await plan(plain, listed=wanted)} == {Action.CREATE}
    done = await apply(plain, listed=wanted)
    assert [change.action for change in done] == [Action.CREATE] * len(wanted)
    assert {change.action for change in await plan(plain, listed=wanted)} == {Action.NOTHING}
    assert {change.action for change in await apply(plain, listed=wanted)} == {Action.NOTHING}
    for topic in (wanted[0], wanted[-1]):
        assert topic.config.items() <= (await settings_at(kafka, topic.name)).items()


async def test_a_setting_that_differs_is_set_and_those_of_others_stay(
    plain: KafkaSettings, kafka: Addresses, create_topic: CreateTopic
) -> None:
    name = await seen(plain, await create_topic("drifted", 2, **{"retention.ms": "1000", "segment.ms": "123456"}))
    (change,) = await plan(plain, listed=[one(name)])
    assert change.action is Action.CHANGE
    assert change.settings["retention.ms"] == ("1000", "604800000")
    assert "retention.ms 1000 -> 604800000" in change.sentence
    await apply(plain, listed=[one(name)])
    now = await settings_at(kafka, name)
    assert (now["retention.ms"], now["segment.ms"]) == ("604800000", "123456")
    assert now["message.timestamp.type"] == "LogAppendTime"


async def test_another_partition_count_is_refused_and_then_nothing_at_all_is_changed(
    plain: KafkaSettings, create_topic: CreateTopic, fresh_name: FreshName
) -> None:
    wanted = [one(fresh_name("new")), one(await seen(plain, await create_topic("narrow", 1)))]
    assert [change.action for change in await plan(plain, listed=wanted)] == [Action.CREATE, Action.REFUSED]
    with pytest.raises(TopicsRefused, match="has 1 partitions and not 2"):
        await apply(plain, listed=wanted)
    assert (await plan(plain, listed=wanted))[0].action is Action.CREATE


async def test_one_count_for_all_topics_may_be_given(plain: KafkaSettings, fresh_name: FreshName) -> None:
    wanted = [one(fresh_name("wide"))]
    await apply(plain, listed=wanted, partitions=3, replication=1)
    assert (await plan(plain, listed=wanted, partitions=3))[0].action is Action.NOTHING
    assert (await plan(plain, listed=wanted))[0].action is Action.REFUSED


async def test_what_the_broker_refuses_is_told_with_the_topic(plain: KafkaSettings, fresh_name: FreshName) -> None:
    with pytest.raises(TopicsRefused, match=r"Replication"):
        await apply(plain, listed=[one(fresh_name("lonely"))], replication=7)


async def test_a_broker_that_is_not_there_is_named_within_the_bound() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    began = time.monotonic()
    with pytest.raises(Unreachable, match=address):
        await plan(KafkaSettings(bootstrap=address, timeout=1))
    assert time.monotonic() - began < 5


async def test_a_broker_that_never_answers_is_given_up_within_the_bound() -> None:
    gone = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass
        writer.close()
        await writer.wait_closed()
        gone.set()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    began = time.monotonic()
    async with server:
        with pytest.raises(Unreachable, match=str(port)):
            await plan(KafkaSettings(bootstrap=f"127.0.0.1:{port}", timeout=0.5))
        await asyncio.wait_for(gone.wait(), 5)
    assert time.monotonic() - began < 5


async def test_a_name_and_password_open_the_door_that_asks_for_them(
    sasl_kafka: dict[str, Any], create_topic: CreateTopic
) -> None:
    topic, arguments = await create_topic("secret"), settings_of(sasl_kafka).client_arguments()
    producer = AIOKafkaProducer(**arguments)
    await producer.start()
    try:
        await producer.send_and_wait(topic, b"v", b"k")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(**arguments, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"v"
    finally:
        await consumer.stop()


async def test_a_wrong_password_is_no_way_in(sasl_kafka: dict[str, Any]) -> None:
    wrong = settings_of({**sasl_kafka, "sasl_plain_password": "guess"}, timeout=5)
    with pytest.raises(Unreachable, match="tried"):
        await plan(wrong)


async def test_an_encrypted_door_is_passed_with_its_authority_and_not_without(
    plain: KafkaSettings, kafka: Addresses, create_topic: CreateTopic
) -> None:
    name = await seen(plain, await create_topic("encrypted", 2))
    trusting = KafkaSettings(bootstrap=kafka.tls, protocol="SSL", ca_file=kafka.ca_file, timeout=20)
    assert (await plan(trusting, listed=[one(name, keep="9d")]))[0].action is Action.CHANGE
    with pytest.raises(Unreachable):
        await plan(trusting.model_copy(update={"ca_file": None, "timeout": 5.0}), listed=[one(name)])


async def test_a_plan_larger_than_the_clients_default_is_taken(plain: KafkaSettings, fresh_name: FreshName) -> None:
    """A recall of a tenth of a large fleet is one plan of megabytes."""
    (wanted,) = named(fresh_name, [topic for topic in topics() if topic.name == v1.PLAN])
    await apply(plain, listed=[wanted])
    record = Record(wanted.name, b"pool", b"x" * 3_000_000, [])
    async with Publisher(plain, partitions=wanted.partitions) as publisher:
        posted = await publisher.post_to(record, 0)
        await publisher.settle([posted])
    assert posted.offset == 0
