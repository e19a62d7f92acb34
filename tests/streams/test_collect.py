"""Lists and changes of one cluster on the same topics: what is told first, and what a list must not bring back."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import collect, health
from rebalancer.adapters.streams.collect import Collect
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import NotPublished, Posted, Publisher
from rebalancer.adapters.translate import read
from rebalancer.core.ports import SightLost
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.wire.envelope import Record
from tests.core.build import node
from tests.streams.fakes import FakePublisher
from tests.streams.things import CLUSTER

START = datetime(2026, 7, 1, tzinfo=UTC)


class Slow:
    """Eyes whose list is read at once and handed over when ``handed`` is set; changes come one by one."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.facts = facts
        self.asked, self.handed = asyncio.Event(), asyncio.Event()
        self.news: asyncio.Queue[FactObserved | FactDeleted | SightLost] = asyncio.Queue()

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        self.asked.set()
        await self.handed.wait()
        return self.facts if of == "node" else ()

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        one = await self.news.get()
        if isinstance(one, SightLost):
            raise one
        return [one]


class Ticking:
    """A clock that goes on a second with each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def collecting(eyes: Slow) -> tuple[Collect, FakePublisher]:
    told = FakePublisher()
    role = Collect(KafkaSettings(), eyes, cast("Publisher", told), CLUSTER, Metrics(), Ticking())
    role._asked.clear()
    return role, told


async def settled(what: asyncio.Queue[FactObserved | FactDeleted | SightLost]) -> None:
    while not what.empty():  # noqa: ASYNC110 - a queue does not tell when it is empty
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)


def spoken(told: FakePublisher) -> list[tuple[str, str]]:
    """What was told, in order, and of which object."""
    contents = [read(one.topic, one.key, one.value, one.headers).content for one in told.records]
    return [(type(said).__name__, getattr(getattr(said, "fact", said), "uid", "")) for said in contents]


async def test_a_lists_begin_is_told_before_the_cluster_is_asked_and_its_moment_lies_before_the_read() -> None:
    eyes = Slow([node("n0")])
    role, told = collecting(eyes)
    listing = asyncio.create_task(role._tell_list("node"))
    await eyes.asked.wait()
    assert [kind for kind, _ in spoken(told)] == ["SnapshotBegan"]
    eyes.handed.set()
    assert await listing
    times = {read(one.topic, one.key, one.value, one.headers).content.at for one in told.records}  # type: ignore[union-attr]  # facts and marks have one
    assert times == {START + timedelta(seconds=1)}


async def test_what_was_told_as_deleted_while_a_list_was_read_is_not_told_again_by_the_list() -> None:
    eyes = Slow([node("n0"), node("n1")])
    role, told = collecting(eyes)
    listing = asyncio.create_task(role._tell_list("node"))
    following = asyncio.create_task(role._follow())
    await eyes.asked.wait()
    eyes.news.put_nowait(FactDeleted("node", "uid-n0", START))
    await settled(eyes.news)
    eyes.handed.set()
    assert await listing
    following.cancel()
    listed = [uid for kind, uid in spoken(told) if kind == "FactObserved"]
    assert listed == ["uid-n1"]
    ended = read(told.records[-1].topic, told.records[-1].key, told.records[-1].value, told.records[-1].headers)
    assert ended.content.count == 1  # type: ignore[union-attr]  # the last record of a list is its end


async def test_a_change_seen_after_a_list_began_is_not_told_over_by_it_and_an_earlier_one_is() -> None:
    eyes = Slow([node("n0"), node("n1")])
    role, told = collecting(eyes)
    listing = asyncio.create_task(role._tell_list("node"))
    following = asyncio.create_task(role._follow())
    await eyes.asked.wait()
    eyes.news.put_nowait(FactObserved(node("n0", cordoned=True), START + timedelta(minutes=1)))
    eyes.news.put_nowait(FactObserved(node("n1", cordoned=True), START))
    await settled(eyes.news)
    eyes.handed.set()
    assert await listing
    following.cancel()
    assert [uid for kind, uid in spoken(told) if kind == "FactObserved"] == ["uid-n0", "uid-n1", "uid-n1"]


async def test_a_change_that_a_list_leaves_out_is_told_after_its_begin_however_long_that_waits() -> None:
    eyes = Slow([node("n0")])
    role, told = collecting(eyes)
    waiting, full = asyncio.Event(), asyncio.Event()
    post = told.post

    async def crowded(record: Record, cluster: str) -> Posted:
        if not told.records and not waiting.is_set():
            waiting.set()
            await full.wait()  # as a producer does whose buffer is full
        return await post(record, cluster)

    told.post = crowded  # type: ignore[method-assign]  # this once it is slow
    listing = asyncio.create_task(role._tell_list("node"))
    await waiting.wait()
    following = asyncio.create_task(role._follow())
    eyes.news.put_nowait(FactObserved(node("n0", cordoned=True), START + timedelta(minutes=1)))
    await settled(eyes.news)
    full.set()
    eyes.handed.set()
    assert await listing
    following.cancel()
    kinds = [kind for kind, _ in spoken(told)]
    assert kinds.index("SnapshotBegan") < kinds.index("FactObserved")


async def test_only_the_kinds_that_were_lost_from_sight_are_listed_again() -> None:
    eyes = Slow([])
    role, _ = collecting(eyes)
    following = asyncio.create_task(role._follow())
    eyes.news.put_nowait(SightLost(("pod", "budget"), "the watch expired"))
    await settled(eyes.news)
    following.cancel()
    assert list(role._asked) == ["pod", "budget"]


class Silent(FakePublisher):
    """A broker that answers nothing: each post takes `waits` seconds and is refused then."""

    def __init__(self, waits: float) -> None:
        super().__init__()
        self._waits = waits

    async def post_to(self, record: Record, partition: int) -> Posted:
        await asyncio.sleep(self._waits)
        refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        refused.set_exception(KafkaTimeoutError())
        refused.exception()
        self.records.append(record)
        return Posted(record, partition, refused)

    async def settle(self, posted: Iterable[Posted], patience: float = 1.0, *, again: bool = True) -> None:
        del patience, again
        if any(one.refused for one in posted):
            raise NotPublished("refused")


class Quiet(Slow):
    """Many objects, and nothing changes."""

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        await asyncio.sleep(0.01)
        return ()


@pytest.mark.parametrize(
    ("begin_taken", "waits"),
    [
        pytest.param(0, 0.1, id="each record is refused after the client's time"),
        pytest.param(1, 0.1, id="the list's begin was taken before"),
        pytest.param(0, 3600.0, id="posting hangs"),
        pytest.param(1, 3600.0, id="posting hangs behind the list's begin"),
    ],
)
async def test_collect_stays_alive_while_the_broker_takes_nothing_of_a_long_list(
    begin_taken: int, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "PATIENCE", 0.2)
    monkeypatch.setattr(collect, "AGAIN", 0.02)
    monkeypatch.setattr(health, "STUCK_AFTER", 0.5)
    eyes, told = Quiet([node(f"n{number}") for number in range(50)]), Silent(waits)
    eyes.handed.set()
    role = Collect(KafkaSettings(), eyes, cast("Publisher", told), CLUSTER, Metrics(), Ticking())
    if begin_taken:
        monkeypatch.setattr(role._lister, "began", _taken)
    running = asyncio.gather(role._answer(), role._follow())
    for _ in range(30):
        await asyncio.sleep(0.05)
        assert role.health.alive
    running.cancel()
    assert role.health.metrics.failures.labels("collect")._value.get() >= 2


async def _taken(*_: object) -> None:
    """The broker fell silent only after it."""


async def test_a_list_ends_with_its_first_record_that_is_not_taken() -> None:
    eyes, told = Quiet([node(f"n{number}") for number in range(50)]), Silent(0.0)
    eyes.handed.set()
    role = Collect(KafkaSettings(), eyes, cast("Publisher", told), CLUSTER, Metrics(), Ticking())
    assert not await role._tell_list("node")
    assert len(told.records) == 1
