"""Plain reading and sending, against a broker: the embedded one speaks the protocol, which is what counts here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from rebalancer.adapters.store import PARTS, TOPICS, Store
from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable
from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.adapters.streams.reader import NoTopics, follow, publish, read_to_end
from rebalancer.adapters.why import why
from rebalancer.core.loans import LoanPhase
from rebalancer.settings import Settings
from tests.cli import night
from tests.cli.conftest import Run


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that has the night."""
    with EmbeddedBroker() as broker:
        kafka = KafkaSettings(bootstrap=broker.bootstrap)
        asyncio.run(publish(kafka, list(night.records()), Settings(cluster=night.CLUSTER).partition))
        yield broker.bootstrap


@pytest.fixture
def kafka(bootstrap: str) -> KafkaSettings:
    return KafkaSettings(bootstrap=bootstrap)


async def test_topics_are_read_to_their_end(kafka: KafkaSettings) -> None:
    store = Store()
    async for record in read_to_end(kafka, TOPICS):
        store.feed(record)
    assert (set(store.plans), store.loans["loan-1"].phase) == (
        {night.LEND, night.RECLAIM, night.HELD_BACK},
        LoanPhase.RETURNED,
    )
    assert why(store, night.GANG).may_borrow_again == night.at(330)
    assert dict(store.unread) == {}


async def test_only_the_topics_asked_for_are_read(kafka: KafkaSettings) -> None:
    assert {record.topic async for record in read_to_end(kafka, (PARTS["loans"],))} == {"gpu.state.loan.v1"}


async def test_a_broker_without_our_topics_says_how_to_make_them(kafka: KafkaSettings) -> None:
    with pytest.raises(NoTopics, match="`rebalancer topics apply` makes them"):
        [record async for record in read_to_end(kafka, ("gpu.nobody.v1",))]


async def test_following_gives_what_comes_after_it_began(kafka: KafkaSettings) -> None:
    coming = follow(kafka, (PARTS["pools"],))
    first = asyncio.ensure_future(anext(coming))
    pool = next(record for record in night.records() if record.topic == PARTS["pools"])
    while not first.done():
        await publish(kafka, [pool], 2)
        await asyncio.wait([first], timeout=0.2)
    assert (await first).value == pool.value
    await coming.aclose()


async def test_a_broker_that_does_not_answer_is_named_within_the_time_allowed() -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"tried {address}: no answer within 0.5 s"):
        [record async for record in read_to_end(KafkaSettings(bootstrap=address, timeout=0.5), TOPICS)]
    gone.set()
    server.close()


def test_commands_read_a_broker_as_they_read_a_folder(run: Run, bootstrap: str) -> None:
    told = json.loads(run("decisions", "--kafka", bootstrap, "--cluster", night.CLUSTER, "--json").stdout)
    assert [one["plan"]["id"] for one in told] == [night.LEND, night.RECLAIM, night.HELD_BACK]
    assert run("why", "a-1", "--kafka", bootstrap, "--cluster", night.CLUSTER).exit_code == 0


def test_another_cluster_has_nothing(run: Run, bootstrap: str) -> None:
    told = run("loans", "--kafka", bootstrap, "--cluster", "paris", "--all", "--json")
    assert (told.exit_code, json.loads(told.stdout)) == (0, [])


def test_a_brake_reaches_the_broker_acknowledged(run: Run, bootstrap: str) -> None:
    told = run("pause", "--kafka", bootstrap, "--cluster", night.CLUSTER, "--by", "grace")
    assert told.exit_code == 0
    status = json.loads(run("status", "--kafka", bootstrap, "--cluster", night.CLUSTER, "--json").stdout)
    assert (status["paused"], status["paused_pools"]) == (True, ["infer-l20"])
