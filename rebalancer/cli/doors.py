"""The few doors through which commands reach the rest: `bootstrap` for days and roles, streams for topics.

Imported on use, so that `--help`, `policy check` and `why --from` start at once and work without a broker.
Nothing is done here but passing on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rebalancer.adapters.streams.reader import publish as send
from rebalancer.settings import Settings
from rebalancer.simulate.stepview import DemoOptions, DemoResult, Replayed, StepView
from rebalancer.wire.envelope import Record


def demo(options: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
    """A simulated day through Kafka: a view a step, and last the result."""
    from rebalancer import bootstrap  # noqa: PLC0415 - faust and the rest load only when a role or a day runs

    return bootstrap.demo(options)


async def run(settings: Settings) -> None:
    """The roles of the settings until they are told to stop; ConnectionError names what could not be reached."""
    from rebalancer import bootstrap  # noqa: PLC0415 - faust and the rest load only when a role or a day runs

    await bootstrap.run(settings)


def replay(path: Path) -> Replayed:
    """Folds a journal (file or tapped folder) and compares the plans with those recorded."""
    from rebalancer import bootstrap  # noqa: PLC0415 - faust and the rest load only when a role or a day runs

    return bootstrap.replay(path)


async def publish(settings: Settings, records: Sequence[Record]) -> None:
    """Sends requests and waits until the broker has acknowledged them."""
    await send(settings.kafka, records, settings.partition)
