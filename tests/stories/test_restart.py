"""The only worker, act or the broker goes in mid-window, with loans out and one plan half done."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from rebalancer.adapters.store import Store
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.why import Story, why
from rebalancer.bootstrap import replay
from rebalancer.cli.options import source
from rebalancer.core.plan import FINAL, EvictGang
from tests.servers.kafka import KafkaServer
from tests.stories.conftest import emptied
from tests.stories.moments import moments
from tests.stories.night import Night, assert_done_once, assert_equal, over
from tests.stories.stage import Stage
from tests.stories.telling import decisions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
OUTAGE = 20.0  # seconds
START = datetime.fromtimestamp(0, UTC)
DEBOUNCE = timedelta(minutes=2)
"""By how much a plan may be late when its decider was killed: a signal's debounce begins anew."""
KINDS = ("decision", "gang", "node", "pod")


class Killed(NamedTuple):
    """The night on which the worker was killed, and what `why` said after it from Kafka alone."""

    night: Night
    stories: dict[str, Story]


@pytest.fixture(scope="module")
def killed(broker: KafkaServer, undisturbed: Night, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    kafka, folder = emptied(broker), tmp_path_factory.mktemp("killed")
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, _killed(kafka, folder)).result(180.0)


async def _killed(kafka: KafkaSettings, folder: Path) -> Killed:
    async with Stage(kafka, folder) as stage:
        worker = await stage.worker()
        await stage.live(moments().half)
        assert sum(stage.world.evicted().values()) == moments().members
        await worker.kill()
        living = asyncio.create_task(stage.live(moments().half + 1))  # told while nobody is there
        await stage.worker()
        await living
        await stage.live()
        store = await asyncio.to_thread(source(None, None, kafka.bootstrap, stage.cluster).load)
        return Killed(over(stage), {kind: why(store, target) for kind, target in asked(store).items()})


def asked(store: Store) -> dict[str, str]:
    """What people would ask about the plan that was half done."""
    plan, step = next((plan, one) for plan in store.plans.values() for one in plan.steps if isinstance(one, EvictGang))
    member = step.members[0]
    node = next(one.node_name for one in plan.steps if not isinstance(one, EvictGang))
    return dict(zip(KINDS, (plan.id, step.gang, node, f"{member.namespace}/{member.name}"), strict=True))


def test_a_worker_killed_with_a_plan_half_done_changes_nothing_that_is_decided_or_done(
    killed: Killed, undisturbed: Night
) -> None:
    assert_equal(killed.night, undisturbed)


def test_the_journal_folds_bit_for_bit_over_the_restart(killed: Killed) -> None:
    told = replay(killed.night.folder)
    assert told.plans == told.recorded > 0
    assert told.differences == ()


@pytest.mark.parametrize("kind", KINDS)
def test_why_answers_from_kafka_alone_after_the_restart(killed: Killed, kind: str) -> None:
    story = killed.stories[kind]
    assert story.kind == kind
    assert "infer-a100" in story.sentence
    assert story.outcomes


@pytest.mark.parametrize("after", [pytest.param(0, id="a plan is made"), pytest.param(2, id="a gang is going")])
async def test_a_worker_killed_in_the_middle_of_a_step_makes_up_for_it(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path, after: int
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        worker, step = await stage.worker(), moments().planned + after
        await stage.live(step - 1)
        living = asyncio.create_task(stage.live(step))
        await stage.told(step)
        await worker.kill()
        await stage.worker()
        await living
        await stage.live()
        night = over(stage)
    assert_done_once(night, undisturbed)
    assert [one._replace(at=START) for one in decisions(night.store)] == [
        one._replace(at=START) for one in decisions(undisturbed.store)
    ]
    late = zip(decisions(night.store), decisions(undisturbed.store), strict=True)
    assert all(timedelta() <= one.at - other.at <= DEBOUNCE for one, other in late)
    assert unfinished(night) == []


async def test_act_killed_between_two_members_of_a_gang_evicts_the_other_and_nobody_twice(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path, epoch=0) as stage:
        actor = await stage.actor(epoch=1)
        await stage.worker()
        await stage.live(moments().half)
        await actor.kill()
        living = asyncio.create_task(stage.live(moments().half + 1))
        await stage.actor(epoch=2)
        await living
        await stage.live()
        night = over(stage)
    assert decisions(night.store) == decisions(undisturbed.store)
    assert_done_once(night, undisturbed, epochs=2)
    assert unfinished(night) == []


async def test_act_killed_before_it_hears_that_a_pod_goes_does_not_send_it_again(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path, epoch=0) as stage:
        actor = await stage.actor(epoch=1)
        await stage.worker()
        await stage.live(moments().half)
        living = asyncio.create_task(stage.live(moments().half + 1))
        await stage.touched(evictions=moments().members + 1)
        await actor.kill()
        await stage.actor(epoch=2)
        await living
        await stage.live()
        night = over(stage)
    assert decisions(night.store) == decisions(undisturbed.store)
    assert_done_once(night, undisturbed, epochs=2)
    assert unfinished(night) == []


async def test_a_broker_that_is_away_for_twenty_seconds_changes_nothing(
    broker: KafkaServer, fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        await stage.worker()
        await stage.live(moments().half)
        await asyncio.to_thread(broker.stop)
        living = asyncio.create_task(stage.live(moments().half + 1))
        await asyncio.sleep(OUTAGE)
        await asyncio.to_thread(broker.start)
        await living
        await stage.live()
        assert_equal(over(stage), undisturbed)


def unfinished(night: Night) -> list[tuple[str, int]]:
    """Steps that never came to an end."""
    ended = {
        (one.plan, one.step) for each in night.store.outcomes.values() for one in each.values() if one.result in FINAL
    }
    wanted = {(plan.id, index) for plan in night.store.plans.values() for index in range(len(plan.steps))}
    return sorted(wanted - ended)
