"""What act does waits for what was told of it; what it only looks at does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import cast

import pytest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.beside import Beside
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import Posted, Publisher
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.ports import Eyes
from rebalancer.core.protocol.calls import Call, EvictPod, GiveNotice, PatchNode, ReadMembers
from rebalancer.core.reasons import Because, Reason
from rebalancer.wire.envelope import Record
from tests.core.protocol.fake import T0, member, pod
from tests.streams.fakes import FakePublisher, Noting
from tests.streams.things import CLUSTER, POLICY

NOW = datetime(2026, 7, 1, tzinfo=UTC)
ONE = member(pod("p0"))
DRY, REAL = EvictPod(ONE, "p1", dry_run=True), EvictPod(ONE, "p1")


class Slow(FakePublisher):
    """Acknowledges when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let, self.offers = asyncio.Event(), 0

    async def settle(self, posted: Iterable[Posted], patience: float = 1.0, *, again: bool = True) -> None:
        self.offers += 1
        await self.let.wait()
        await super().settle(posted, patience, again=again)


class Broken(FakePublisher):
    """Raises what no sender foresaw."""

    async def post_to(self, record: Record, partition: int) -> Posted:
        raise AssertionError(record.topic, partition)


def acting(publisher: FakePublisher) -> tuple[Act, Noting]:
    hands = Noting()
    act = Act(
        KafkaSettings(), CLUSTER, POLICY, hands, cast("Eyes", None), cast("Publisher", publisher), Metrics()
    )  # fmt: skip
    because = Because(Reason.CONFIRMED)
    act._told.add([Outcome("p1", "infer-l20", 0, "evict", "ml/train", Result.STARTED, because, NOW, loan="")])
    return act, hands


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("call", "waits"),
    [
        pytest.param(REAL, True, id="an eviction waits"),
        pytest.param(PatchNode("uid-n1", "n1", "1", (), None), True, id="a patch waits"),
        pytest.param(GiveNotice("ml/train", (ONE,), "", T0, "why"), True, id="a notice waits"),
        pytest.param(DRY, False, id="a dry run does not"),
        pytest.param(ReadMembers((ONE,)), False, id="a look does not"),
    ],
)
async def test_which_calls_wait_for_what_was_told_of_them(call: Call, waits: bool) -> None:
    publisher = Slow()
    act, hands = acting(publisher)
    performing = asyncio.create_task(act._perform(1, call))
    await turns()
    assert hands.asked == ([] if waits else [call])
    publisher.let.set()
    await performing
    assert hands.asked == [call]


async def test_many_that_wait_have_it_told_once() -> None:
    publisher = Slow()
    act, hands = acting(publisher)
    performing = [asyncio.create_task(act._perform(number, REAL)) for number in range(8)]
    await turns()
    assert publisher.offers == 1
    publisher.let.set()
    await asyncio.gather(*performing)
    assert (len(hands.asked), publisher.offers, act._told.empty) == (8, 1, True)


async def test_nothing_waits_for_a_broker_that_is_known_to_be_silent() -> None:
    act, hands = acting(Slow())
    act._silent_since = NOW
    await act._perform(1, REAL)
    assert hands.asked == [REAL]


async def test_what_the_client_makes_of_a_record_keeps_no_call_from_being_made() -> None:
    act, hands = acting(Broken())
    await act._perform(1, REAL)
    assert hands.asked == [REAL]


async def test_what_is_beside_has_ended_when_its_owner_has() -> None:
    beside, ended = Beside(), []

    async def lasting() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append(1)

    async def failing() -> None:
        raise ValueError

    beside.begin(lasting())
    beside.begin(failing())
    await turns()
    await beside.end()
    assert ended == [1]
