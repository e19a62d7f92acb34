"""A simulated day whose exporters speak text: the same samples and the same decisions as natively."""

from typing import cast

import pytest

from rebalancer.bootstrap.day import demo
from rebalancer.bootstrap.textworld import TextWorld
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from rebalancer.simulate.stepview import DemoOptions, DemoResult, TelemetryAs

SCENARIO = "four_hours"
STEPS = 100
"""Minutes: loans are made from the thirtieth on."""


def test_pages_say_what_native_samples_say() -> None:
    native, spoken = (SimulatedCluster(open_scenario(SCENARIO)) for _ in range(2))
    text = TextWorld(spoken)
    for _ in range(20):
        native.step()
        text.step()
        expected = sorted(native.samples(), key=lambda sample: sample.node_name)
        assert sorted(text.samples(), key=lambda sample: sample.node_name) == expected
    assert (text.failed, text.dropped) == (0, {})


def test_a_night_told_as_text_gives_the_same_plans_and_outcomes() -> None:
    scenario = open_scenario(SCENARIO)
    policy = policy_of(scenario)
    native = Direct(SimulatedCluster(scenario), policy)
    # the driver asks for nothing that the wrapper has not
    spoken = Direct(cast(SimulatedCluster, TextWorld(SimulatedCluster(scenario))), policy)
    for _ in range(STEPS):
        native.step()
        spoken.step()
    assert native.told.plans
    assert spoken.told.plans == native.told.plans
    assert spoken.told.outcomes == native.told.outcomes


@pytest.mark.timeout(300)  # two days of an hour, brokers and roles included
async def test_the_demo_speaks_text_on_request() -> None:
    told = {}
    for spoken in TelemetryAs:
        options = DemoOptions(SCENARIO, days=1 / 24, telemetry=spoken)
        async for one in demo(options):
            if isinstance(one, DemoResult):
                told[spoken] = one.decisions
    assert told[TelemetryAs.NATIVE]
    assert told[TelemetryAs.TEXT] == told[TelemetryAs.NATIVE]
