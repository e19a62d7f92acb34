"""Telemetry with a fake producer: verdicts when they change, barriers behind them, poison beside the stream."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.adapters.translate import Barrier, decode, encode_barrier, encode_sample
from rebalancer.core.stimuli import VerdictGiven
from rebalancer.core.units import Activity
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.streams.fakes import FakePublisher
from tests.streams.things import CLUSTER, MINUTE, NOW, POLICY, sample


class Bench:
    """A telemetry worker that is fed by hand."""

    def __init__(self, folder: Path, *, lockstep: bool) -> None:
        self.publisher = FakePublisher()
        publisher: Any = self.publisher
        settings = AppSettings("group", KafkaSettings(), data_dir=folder)
        self.role = Telemetry(settings, {CLUSTER: POLICY}, publisher, Metrics(), "t0", lockstep=lockstep)
        self.offset = 0

    async def feed(self, *records: Record, partition: int = 1) -> None:
        for record in records:
            self.offset += 1
            await self.role.take(Came(record.topic, partition, self.offset, record.key, record.value, record.headers))

    def verdicts(self) -> list[tuple[str, Activity]]:
        found = [decode(*record[:4]) for record in self.publisher.on(v1.STATE_NODE)]
        return [(one.verdict.node, one.verdict.activity) for one in found if isinstance(one, VerdictGiven)]


@pytest.fixture
def lockstep(tmp_path: Path) -> Bench:
    return Bench(tmp_path, lockstep=True)


@pytest.fixture
def live(tmp_path: Path) -> Bench:
    return Bench(tmp_path, lockstep=False)


def barrier(step: int) -> Record:
    return encode_barrier(v1.SAMPLE_DEVICE, Barrier(step, NOW + step * MINUTE), CLUSTER)


def at(step: int, busy: float, uid: str = "a") -> Record:
    return encode_sample(sample(uid, busy, NOW + step * MINUTE), CLUSTER)


async def test_in_lockstep_nothing_is_said_before_the_barrier(lockstep: Bench) -> None:
    await lockstep.feed(at(1, 0.9))
    assert lockstep.verdicts() == []
    await lockstep.feed(barrier(1))
    assert lockstep.verdicts() == [("a", Activity.BUSY)]


async def test_the_barrier_goes_on_behind_the_verdicts_and_names_its_partition(lockstep: Bench) -> None:
    await lockstep.feed(at(1, 0.9), barrier(1))
    last = decode(*lockstep.publisher.on(v1.STATE_NODE)[-1][:4])
    assert last == Barrier(1, NOW + MINUTE, "1")


async def test_a_verdict_that_does_not_change_is_told_once(lockstep: Bench) -> None:
    for step in range(1, 5):
        await lockstep.feed(at(step, 0.9), barrier(step))
    assert len(lockstep.verdicts()) == 1


async def test_a_utilisation_that_moves_by_more_than_five_points_is_told_again(lockstep: Bench) -> None:
    for step, busy in enumerate((0.90, 0.93, 0.80), start=1):
        await lockstep.feed(at(step, busy), barrier(step))
    assert len(lockstep.verdicts()) == 2


async def test_a_repeated_barrier_is_passed_on_again_without_new_verdicts(lockstep: Bench) -> None:
    await lockstep.feed(at(1, 0.9), barrier(1), barrier(1))
    found = [decode(*record[:4]) for record in lockstep.publisher.on(v1.STATE_NODE)]
    assert [type(one).__name__ for one in found] == ["VerdictGiven", "Barrier", "Barrier"]


async def test_live_samples_are_judged_as_they_come(live: Bench) -> None:
    now = datetime.now(UTC)
    await live.feed(encode_sample(sample("a", 0.9, now), CLUSTER))
    assert live.verdicts() == [("a", Activity.BUSY)]


async def test_a_node_that_falls_silent_turns_unknown_by_time_alone(live: Bench) -> None:
    now = datetime.now(UTC)
    await live.feed(encode_sample(sample("a", 0.9, now), CLUSTER))
    await live.role._look(1, live.role.windows[1], now + timedelta(hours=1))
    assert live.verdicts()[-1] == ("a", Activity.UNKNOWN)


async def test_a_verdict_that_was_not_acknowledged_is_told_again(live: Bench) -> None:
    now = datetime.now(UTC)
    live.publisher.away = True
    await live.feed(encode_sample(sample("a", 0.9, now), CLUSTER))
    live.publisher.away = False
    await live.feed(encode_sample(sample("a", 0.9, now + timedelta(seconds=15)), CLUSTER))
    assert live.verdicts() == [("a", Activity.BUSY)] * 2


async def test_a_verdict_that_was_not_acknowledged_before_its_partition_went_stops_nothing(live: Bench) -> None:
    live.publisher.away = True
    settle = live.publisher.settle

    async def gone(posted: Any, patience: float = 1.0, *, again: bool = True) -> None:
        live.role.windows.clear()
        await settle(posted, patience, again=again)

    live.publisher.settle = gone  # type: ignore[method-assign]  # the rebalance comes while the broker is awaited
    await live.feed(encode_sample(sample("a", 0.9, datetime.now(UTC)), CLUSTER))
    assert live.publisher.on(f"{v1.SAMPLE_DEVICE}.dlq") == []


async def test_another_policy_judges_each_node_from_its_next_sample_on(live: Bench) -> None:
    now = datetime.now(UTC)
    await live.feed(encode_sample(sample("a", 0.10, now), CLUSTER))
    assert live.verdicts() == [("a", Activity.BUSY)]
    lenient = replace(POLICY.activities, idle_below=0.3, busy_from=0.5)
    live.role.adopt(CLUSTER, replace(POLICY, activities=lenient))
    await live.feed(encode_sample(sample("a", 0.10, now + timedelta(seconds=15)), CLUSTER))
    assert live.verdicts()[-1] == ("a", Activity.IDLE)


async def test_a_node_that_says_nothing_under_another_policy_still_turns_unknown(live: Bench) -> None:
    now = datetime.now(UTC)
    await live.feed(encode_sample(sample("a", 0.9, now), CLUSTER))
    live.role.adopt(CLUSTER, replace(POLICY, activities=replace(POLICY.activities, busy_from=0.5)))
    await live.role._look(1, live.role.windows[1], now + timedelta(hours=1))
    assert live.verdicts()[-1] == ("a", Activity.UNKNOWN)


async def test_heartbeats_come_often_enough_for_a_policy_that_believes_nothing_for_long(live: Bench) -> None:
    impatient = replace(POLICY.activities, freshness=timedelta(seconds=12))
    live.role.adopt(CLUSTER, replace(POLICY, activities=impatient))
    for after in range(13):
        await live.role._beat(NOW + timedelta(seconds=after))
    assert len(live.publisher.on(v1.STATE_TELEMETRY)) == 4


@pytest.mark.parametrize(
    ("value", "stage"),
    [
        pytest.param(b"{", b"bytes", id="half a JSON object"),
        pytest.param(b"", b"bytes", id="nothing at all"),
        pytest.param(b'{"type": "io.gpu-rebalancer.sample.device.v1"}', b"envelope", id="no envelope"),
    ],
)
async def test_poison_becomes_a_dead_letter_with_its_origin_and_the_next_is_judged(
    lockstep: Bench, value: bytes, stage: bytes
) -> None:
    await lockstep.feed(Record(v1.SAMPLE_DEVICE, b"k", value, [("mine", b"1")]), at(1, 0.9), barrier(1))
    (letter,) = lockstep.publisher.on(f"{v1.SAMPLE_DEVICE}.dlq")
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["mine"]) == (b"k", value, b"1")
    assert (headers["dlq_topic"], headers["dlq_partition"]) == (v1.SAMPLE_DEVICE.encode(), b"1")
    assert headers["dlq_stage"] == stage
    assert lockstep.verdicts() == [("a", Activity.BUSY)]


async def test_a_sample_of_a_cluster_that_nobody_knows_is_a_dead_letter(lockstep: Bench) -> None:
    await lockstep.feed(encode_sample(sample("a", 0.9, NOW), "elsewhere"))
    assert len(lockstep.publisher.on(f"{v1.SAMPLE_DEVICE}.dlq")) == 1


async def test_a_node_that_speaks_again_is_never_told_as_of_before_its_silence(live: Bench) -> None:
    """Silence is judged as of now; the next sample was scraped a little earlier, and must not pass for old news."""
    began = datetime.now(UTC)
    await live.feed(encode_sample(sample("a", 0.01, began - timedelta(seconds=5)), CLUSTER))
    (window,) = live.role.windows.values()
    await live.role._look(1, window, began + timedelta(minutes=10))
    await live.feed(encode_sample(sample("a", 0.01, began), CLUSTER))
    told = [decode(*record[:4]) for record in live.publisher.on(v1.STATE_NODE)]
    given = [one.verdict for one in told if isinstance(one, VerdictGiven)]
    assert (given[-2].activity, given[-1].activity is Activity.UNKNOWN) == (Activity.UNKNOWN, False)
    assert given[-1].at >= given[-2].at
