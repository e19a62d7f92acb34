"""A simulated cluster through Kafka: the plans of a run without it, and again from the journal."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.adapters.streams.journal import read_journal, replay
from rebalancer.adapters.streams.loader import read_to_end
from rebalancer.adapters.streams.tap import Tap, from_line
from rebalancer.adapters.translate import JournalEntry, decode
from rebalancer.core.engine import Engine
from rebalancer.core.plan import Plan
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from rebalancer.wire import v1
from tests.streams.rig import Rig

STEPS = 60
FETCH_WAIT = 20  # milliseconds: the embedded broker does not wake a fetch when something comes


def said(plans: Sequence[Plan]) -> list[Plan]:
    """Plans without what depends on the broker: their term."""
    return [replace(plan, term=0) for plan in plans]


async def test_kafka_makes_the_plans_of_a_run_without_it_and_the_journal_gives_them_again(
    tmp_path: Path,
) -> None:
    scenario = open_scenario("four_hours")
    policy = policy_of(scenario)
    direct = Direct(SimulatedCluster(scenario), policy)
    for _ in range(STEPS):
        direct.step()
    assert direct.told.plans
    with EmbeddedBroker() as broker:
        kafka = KafkaSettings(bootstrap=broker.bootstrap)
        world = SimulatedCluster(scenario)
        async with Rig(world, policy, kafka, tmp_path, workers=1, fetch_wait_ms=FETCH_WAIT) as rig:
            tap = Tap(kafka, tmp_path / "tap", fetch_wait_ms=FETCH_WAIT)
            await tap.start()
            async for step in rig.steps():
                if step.number == STEPS:
                    break
            partition = rig.publisher.partition(rig.cluster)
            lying = (await read_to_end(kafka, [v1.PLAN], partition)).records[v1.PLAN]
            journal = await read_journal(kafka, rig.cluster, partition)
            await tap.finish()
    found = [decode(one.topic, one.key, one.value, one.headers) for one in lying]
    plans = [one for one in found if isinstance(one, Plan)]
    assert said(plans) == said(direct.told.plans)
    assert replay(journal, lambda adopted: Engine(rig.cluster, adopted)) == plans
    with (tmp_path / "tap" / f"{v1.JOURNAL}.jsonl").open("rb") as lines:
        tapped = [decode(one.topic, one.key, one.value, one.headers) for one in map(from_line, lines)]
    assert all(isinstance(one, JournalEntry) for one in tapped)
    assert (
        rig.metrics.registry.get_sample_value(
            "gpu_rebalancer_dead_letters_total", {"role": "decide", "stage": "handle"}
        )
        == 0
    )
