"""Who wakes up late is refused: a decider by its term, an actor by its epoch."""

from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.translate import encode_instruction
from rebalancer.core.instructions import PublishPlan
from rebalancer.core.plan import EvictGang, Outcome, Plan
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.reasons import Reason
from tests.stories.moments import moments
from tests.stories.night import WHOLE, Night
from tests.stories.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def taking_home(undisturbed: Night) -> Plan:
    """The plan that took a gang back."""
    plans = undisturbed.store.plans.values()
    return next(plan for plan in plans for step in plan.steps if isinstance(step, EvictGang))


async def test_an_old_decider_that_wakes_up_is_refused_by_its_term_and_an_old_actor_by_its_epoch(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path, epoch=2) as stage:
        first = await stage.worker()
        await stage.live(moments().lent)
        await first.kill()
        await stage.worker()
        await stage.live(moments().lent + 1)
        touches = len(stage.world.touches)
        assert stage.act is not None
        now, term = stage.world.moment, stage.act.actor.term
        valid = now + stage.policy.acting.plan_validity
        late = replace(taking_home(undisturbed), id="late", made_at=now, valid_until=valid, term=0)
        assert term > late.term

        await stage.driver.send([encode_instruction(PublishPlan(late), stage.cluster, now)], stage.cluster)
        old = Actor(stage.policy, epoch=1)
        told = carried_out(stage, old, replace(late, id="old", term=term))
        await stage.live(moments().lent + 2)

        assert {one.because.reason for one in told} == {Reason.STALE_EPOCH}
        assert len(stage.world.touches) == touches
        await stage.live()
        refused = stage.store.outcomes["late"].values()
        assert {one.because.reason for one in refused} == {Reason.STALE_TERM}
        assert len(refused) == len(late.steps)
        assert WHOLE.items() <= stage.world.summary().items()


def carried_out(stage: Stage, actor: Actor, plan: Plan) -> list[Outcome]:
    """What becomes of a plan in the hands of an actor of its own."""
    now = stage.world.moment
    told = list(actor.plan(plan, now))
    for _ in range(100):
        calls = actor.advance(now)
        told += actor.outcomes()
        if not calls:
            return told
        for call_id, call in calls:
            told += actor.answered(call_id, stage.world.answer(call), now)
    raise AssertionError("no end of calls")
