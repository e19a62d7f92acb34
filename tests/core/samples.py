"""Samples of one node for the tests of activity: short names for what would be long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rebalancer.core.activity import NodeJudge
from rebalancer.core.policy import Activities
from rebalancer.core.telemetry import DeviceReading, NodeSample, Verdict
from rebalancer.core.units import Activity

START = datetime(2026, 3, 3, 10, 0, tzinfo=UTC)
SCRAPE = timedelta(seconds=30)
RULES = Activities()
IDLE, BUSY, UNKNOWN = Activity.IDLE, Activity.BUSY, Activity.UNKNOWN
Row = Mapping[str, object]


def reading(uuid: str = "GPU-0", tick: int = 0, **values: object) -> DeviceReading:
    """A reading of a card that shows life: its energy counter grows with the tick."""
    base = DeviceReading(uuid, energy=1_000.0 + tick)
    return replace(base, **values)  # type: ignore[arg-type]  # tests name real fields


def sample(at: datetime, *devices: DeviceReading, expected: int | None = None) -> NodeSample:
    """A sample that expects as many GPUs as it names, unless said otherwise."""
    count = len({device.uuid for device in devices}) if expected is None else expected
    return NodeSample("uid-1", "node-1", at, count, devices)


def new_judge(believe: bool = False) -> NodeJudge:
    return NodeJudge(RULES, believe_idle_without_witness=believe)


def feed(judge: NodeJudge, rows: Sequence[Row]) -> datetime:
    """One-GPU samples, a scrape apart; the time of the last."""
    at = START
    for tick, values in enumerate(rows):
        at = START + tick * SCRAPE
        judge.observe(sample(at, replace(reading(tick=tick), **values)), at)  # type: ignore[arg-type]  # as above
    return at


def judged(*rows: Row, believe: bool = False) -> Verdict:
    """The verdict right after the last of these scrapes."""
    judge = new_judge(believe)
    return judge.verdict(feed(judge, rows))


def engine(*levels: float | None) -> list[Row]:
    return [{"engine_active": level} for level in levels]
