"""What must not end or hold up a role: eyes that cannot see, and a desk that nobody keeps any more."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.collect import Collect
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.desk import MAILBOX, Desk, Item, Progress
from rebalancer.adapters.streams.dlq import DeadLetters
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import Received, Tombstone
from rebalancer.core.ports import Hands
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.wire import v1
from tests.streams.fakes import FakePublisher
from tests.streams.things import CLUSTER, POLICY


class Blind:
    """Eyes whose API server does not answer; ``looked`` counts how often they tried."""

    def __init__(self) -> None:
        self.looked = 0

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        self.looked += 1
        raise ConnectionResetError(of)

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        self.looked += 1
        raise ConnectionResetError


async def nothing() -> None:
    """No offset to commit."""


async def test_an_act_that_can_neither_hear_nor_see_goes_on_and_looks_again() -> None:
    eyes, publisher = Blind(), cast("Publisher", FakePublisher())
    act = Act(KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), eyes, publisher, Metrics())
    now = datetime.now(UTC)
    for minutes in (0, 3, 4):
        await act.alone(now + timedelta(minutes=minutes))
    assert eyes.looked == 6  # brakes and nodes each time; at once too: what is nearly due could not wait for the bound


async def test_an_act_that_is_told_to_end_in_the_moment_in_which_it_is_woken_ends() -> None:
    publisher = cast("Publisher", FakePublisher())
    act = Act(KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), Blind(), publisher, Metrics())
    driving = asyncio.create_task(act._drive())
    await asyncio.sleep(0.01)
    act._wake.set()
    await asyncio.sleep(0)
    driving.cancel()
    done, _ = await asyncio.wait({driving}, timeout=5)
    assert driving in done


async def test_changes_that_cannot_be_seen_are_made_good_by_full_lists() -> None:
    collect = Collect(KafkaSettings(), Blind(), cast("Publisher", FakePublisher()), CLUSTER, Metrics())
    collect._asked.clear()
    following = asyncio.create_task(collect._follow())
    async with asyncio.timeout(5):
        while not collect._asked:  # noqa: ASYNC110 - the task tells nobody
            await asyncio.sleep(0)
    following.cancel()
    assert "pod" in collect._asked


async def test_whoever_waits_for_a_full_mailbox_is_let_go_when_its_desk_is_dropped() -> None:
    metrics = Metrics()
    dead = DeadLetters(cast("Publisher", FakePublisher()), metrics, "decide")
    desk = Desk(0, KafkaSettings(), dict, dead, Health("decide", metrics), cast("Progress", None))
    came = Came(v1.STATE_LOAN, 0, 0, b"k", None, ())
    item = Item(came, Received("tombstone", CLUSTER, "", None, Tombstone(v1.STATE_LOAN, "k")), nothing)
    for _ in range(MAILBOX):
        await desk.put(item)
    waiting = asyncio.create_task(desk.put(item))
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.close()
    async with asyncio.timeout(5):
        await waiting
    assert waiting.done()


def test_a_role_that_loads_nothing_says_that_it_is_ready() -> None:
    metrics = Metrics(["collect"])
    Health("collect", metrics).round(1)
    assert metrics.registry.get_sample_value("gpu_rebalancer_ready", {"role": "collect"}) == 1.0
