"""When things happen on the short night, found by living through it without Kafka: stories name moments, not steps."""

from functools import cache
from typing import NamedTuple

from rebalancer.core.plan import EvictGang
from rebalancer.core.protocol.calls import EvictPod
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from tests.stories.world import HERE, Watched


class Moments(NamedTuple):
    """Steps of the night. After ``half`` some members of a gang were told to go and some were not."""

    lent: int
    planned: int
    half: int
    members: int


@cache
def moments() -> Moments:
    """Of the night in `night.yaml`; raises StopIteration if it has none such, and then it is no night for stories."""
    scenario = open_scenario(str(HERE / "night.yaml"))
    world = Watched(scenario)
    direct = Direct(world, policy_of(scenario), cluster=scenario.cluster)
    lent = planned = 0
    while not world.done():
        direct.step()
        lent = lent or (world.step_number + 1 if any(node.loan for node in world.store.nodes.values()) else 0)
        evicting = [step for plan in direct.told.plans for step in plan.steps if isinstance(step, EvictGang)]
        planned = planned or (world.step_number if evicting else 0)
        told = sum(isinstance(touch.call, EvictPod) for touch in world.touches)
        if evicting and 1 <= told < len(evicting[0].members):
            return Moments(lent, planned, world.step_number, told)
    raise StopIteration
