"""A worker as a process of its own: telemetry and decide, in lockstep, for one scenario.

`python -m tests.stories.worker --kafka HOST:PORT --scenario FILE --run ID --name NAME --scratch DIR [--mode MODE]`
says `ready` on stdout once its partitions are loaded, and ends on SIGTERM. The name is its stable instance id, so a
worker that was killed takes its place again at once.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
from datetime import UTC
from pathlib import Path

import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import decide, telemetry
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.gate import BarrierGate, decide_inputs
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.core.units import Mode
from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.policies import policy_of


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("kafka", "scenario", "run", "name"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--mode", type=Mode, default=Mode.ACT)
    return parser.parse_args()


def app(group: str, given: argparse.Namespace) -> AppSettings:
    """The production settings, but for a group of the run's own."""
    kafka = KafkaSettings(bootstrap=given.kafka)
    scratch = given.scratch / f"{given.name}-scratch"
    return AppSettings(f"{group}-{given.run}", kafka, instance=f"{given.run}-{given.name}", data_dir=scratch)


async def stopped() -> None:
    """Wait to be told to end."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await stopping.wait()


def talk_on_stderr() -> None:
    """The one word on stdout is for the parent."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


async def main(given: argparse.Namespace) -> None:
    scenario = open_scenario(given.scenario)
    policy, cluster = policy_of(scenario, given.mode), scenario.cluster
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(Publisher(KafkaSettings(bootstrap=given.kafka)))
        gate = BarrierGate(decide_inputs(range(publisher.partitions)), scenario.start.astimezone(UTC))
        metrics, policies = Metrics(), {cluster: policy}
        judging = Telemetry(app(telemetry.GROUP, given), policies, publisher, metrics, given.name, lockstep=True)
        settled = {cluster: (policy, "story")}
        deciding = Decide(app(decide.GROUP, given), settled, publisher, metrics, lambda _: gate, given.name)
        for role in (judging, deciding):
            await role.start()
            stack.push_async_callback(role.stop)
        await judging.ready()
        await deciding.ready()
        print("ready", flush=True)  # noqa: T201 - how a child tells its parent
        await stopped()


if __name__ == "__main__":
    talk_on_stderr()
    asyncio.run(main(asked()))
