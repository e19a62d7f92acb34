"""The same seed decides the same, and what was journalled folds to the same plans."""

from pathlib import Path

import pytest

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.bootstrap import replay
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from tests.stories.night import Night, assert_equal, lived
from tests.stories.telling import decision, decisions
from tests.stories.world import HERE

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


async def test_the_same_seed_twice_decides_the_same(undisturbed: Night, fresh: KafkaSettings, tmp_path: Path) -> None:
    again = await lived(fresh, tmp_path)
    assert_equal(again, undisturbed)


def test_kafka_decides_as_the_engine_does_without_it(undisturbed: Night) -> None:
    scenario = open_scenario(str(HERE / "night.yaml"))
    told = Direct(SimulatedCluster(scenario), policy_of(scenario)).run()
    assert sorted(map(decision, told.plans)) == sorted(decisions(undisturbed.store))


def test_the_journal_folds_to_the_same_plans_bit_for_bit(undisturbed: Night) -> None:
    told = replay(undisturbed.folder)
    assert told.plans == told.recorded > 0
    assert told.differences == ()
