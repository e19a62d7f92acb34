"""Act as a process of its own, in lockstep; its hands reach the story's world over a socket.

`python -m tests.stories.actor --kafka HOST:PORT --scenario FILE --world SOCKET --epoch N` says `ready` on stdout once
it has read what was there, and ends when it is killed.
"""

import argparse
import asyncio
from datetime import UTC

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.gate import BarrierGate
from rebalancer.adapters.streams.lockstep import act_inputs
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of
from tests.stories.afar import Afar
from tests.stories.worker import talk_on_stderr


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("kafka", "scenario", "world"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epoch", type=int, default=1)
    return parser.parse_args()


async def main(given: argparse.Namespace) -> None:
    scenario, kafka = open_scenario(given.scenario), KafkaSettings(bootstrap=given.kafka)
    afar = Afar(*await asyncio.open_unix_connection(given.world))
    async with Publisher(kafka) as publisher:
        gate = BarrierGate(act_inputs(), scenario.start.astimezone(UTC))
        act = Act(
            kafka, scenario.cluster, policy_of(scenario), afar, afar, publisher, Metrics(), given.epoch, gate=gate
        )
        acting = asyncio.create_task(act.run())
        waiting = asyncio.create_task(act.ready.wait())
        await asyncio.wait({acting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not acting.done():
            print("ready", flush=True)  # noqa: T201 - how a child tells its parent
        await acting


if __name__ == "__main__":
    talk_on_stderr()
    asyncio.run(main(asked()))
