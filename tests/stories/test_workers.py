"""Two workers decide as one does, and one that joins or leaves in the middle of a plan duplicates nothing."""

import asyncio
from pathlib import Path

import pytest

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.bootstrap import replay
from tests.stories.moments import moments
from tests.stories.night import Night, assert_equal, over
from tests.stories.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


async def test_two_workers_decide_at_every_barrier_as_one_does(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        await asyncio.gather(stage.worker("w0"), stage.worker("w1"))
        await stage.live()
        assert_equal(over(stage), undisturbed)
    assert replay(tmp_path).differences == ()


async def test_a_second_worker_joins_in_the_middle_of_a_plan_the_first_leaves_and_nothing_is_done_twice(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        first = await stage.worker("w0")
        await stage.live(moments().planned)
        assert stage.act is not None
        term = stage.act.actor.term
        joining = asyncio.create_task(stage.worker("w1"))
        await stage.live(moments().half)
        await joining
        leaving = asyncio.create_task(first.end())
        await stage.live(moments().half + 2)
        await leaving
        await stage.live()
        assert stage.act.actor.term > term  # the second worker decided
        assert_equal(over(stage), undisturbed)
    assert replay(tmp_path).differences == ()
