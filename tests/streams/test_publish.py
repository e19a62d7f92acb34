"""What is posted again after a failure never comes to lie behind what was posted later and says something newer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiokafka.errors import KafkaError, KafkaTimeoutError

from rebalancer.adapters.streams import publish
from rebalancer.adapters.streams.collect import Teller
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.core.stimuli import FactDeleted, FactObserved
from rebalancer.wire.envelope import Record
from tests.core.build import START as NOW
from tests.core.build import node
from tests.streams.things import CLUSTER


class Broker:
    """A producer whose `failing` sendings (by their number) are not taken; what is taken lies in `log`."""

    def __init__(self, *failing: int) -> None:
        self.failing, self.sent, self.hang = set(failing), 0, False
        self.log: list[tuple[str, int, bytes | None, bytes | None]] = []

    async def send(
        self, topic: str, value: bytes | None, *, key: bytes, partition: int, headers: object
    ) -> asyncio.Future[Any]:
        del headers
        if self.hang:
            await asyncio.sleep(3600)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.sent in self.failing:
            answer.set_exception(KafkaTimeoutError())
        else:
            self.log.append((topic, partition, key, value))
            answer.set_result(len(self.log))
        self.sent += 1
        return answer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(publish, "PAUSE", 0.01)
    return Broker()


def publisher(broker: Broker) -> Publisher:
    found = Publisher(KafkaSettings())
    found._producer = broker
    return found


def record(key: str, value: str) -> Record:
    return Record("t", key.encode(), value.encode(), [])


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param({0}, id="the older one is not taken"),
        pytest.param({1}, id="the newer one is not taken"),
        pytest.param({0, 1}, id="neither is taken"),
        pytest.param({0, 2, 3}, id="again and again"),
    ],
)
async def test_the_newest_word_about_a_key_lies_last_whatever_fails(broker: Broker, failing: set[int]) -> None:
    broker.failing = failing
    told = publisher(broker)
    posted = [await told.post_to(record("a", value), 0) for value in ("old", "new")]
    await told.settle(posted, 5.0)
    assert broker.log[-1] == ("t", 0, b"a", b"new")


async def test_other_partitions_are_left_alone_when_something_is_posted_again(broker: Broker) -> None:
    broker.failing = {0}
    told = publisher(broker)
    posted = [await told.post_to(record("a", "x"), 0), await told.post_to(record("b", "y"), 1)]
    await told.settle(posted, 5.0)
    assert [(where, value) for _, where, _, value in broker.log] == [(1, b"y"), (0, b"x")]


async def test_settling_ends_in_time_although_the_buffer_is_full(broker: Broker) -> None:
    broker.failing = {0}
    told = publisher(broker)
    posted = [await told.post_to(record("a", "x"), 0)]
    broker.hang, began = True, time.monotonic()
    with pytest.raises(NotPublished):
        await told.settle(posted, 0.1)
    assert time.monotonic() - began < 2.0


async def test_a_list_does_not_raise_from_the_dead_what_another_told_as_deleted_meanwhile(broker: Broker) -> None:
    """Two tellers of one topic, as in collect: what fails is told by a list, never behind the tombstone."""
    broker.failing = {0}
    told = publisher(broker)
    lister, teller = Teller(told, CLUSTER, again=False), Teller(told, CLUSTER, again=False)
    await _safely(lister.changes([FactObserved(node("n0"), NOW)]))
    await teller.changes([FactDeleted("node", "uid-n0", NOW)])
    await teller.settle()
    await _safely(lister.settle())
    assert [value for *_, value in broker.log] == [None]


async def _safely(telling: Any) -> None:
    try:
        await telling
    except (NotPublished, KafkaError):
        return
