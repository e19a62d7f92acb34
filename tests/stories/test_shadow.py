"""The same night in shadow mode: the same plans up to the first loan, and nothing is touched."""

from pathlib import Path

import pytest

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.core.units import Mode
from tests.stories.night import Night
from tests.stories.stage import Stage
from tests.stories.telling import Decision, decisions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def up_to_first_loan(found: list[Decision]) -> list[Decision]:
    """Each pool's decisions up to its first loan; in which mode they were made is not compared."""
    kept, lent = [], set()
    for one in found:
        if one.pool not in lent:
            kept.append(one._replace(mode=""))
        if one.method == "lend":
            lent.add(one.pool)
    return kept


async def test_shadow_publishes_the_same_plans_up_to_the_first_loan_touches_nothing_and_keeps_its_score(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path, mode=Mode.SHADOW) as stage:
        await stage.worker()
        await stage.live()
        store = stage.store
        assert up_to_first_loan(decisions(store)) == up_to_first_loan(decisions(undisturbed.store)) != []
        assert {plan.mode for plan in store.plans.values()} == {Mode.SHADOW}
        assert stage.world.touches == []
        assert store.outcomes == {}
        assert store.pools["infer-a100"].shadow["gpu_hours_lent"] > 1.0
