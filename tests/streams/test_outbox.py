"""What act could not tell yet: kept in order, bounded, counted where it is dropped, and never holding act up."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaTimeoutError

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import outbox
from rebalancer.adapters.streams.outbox import Outbox
from rebalancer.adapters.streams.publish import Posted, Publisher
from rebalancer.adapters.translate import read
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import OutcomeReported
from rebalancer.wire.envelope import Record
from tests.streams.fakes import FakePublisher
from tests.streams.things import CLUSTER

NOW = datetime(2026, 7, 1, tzinfo=UTC)
DROPPED = "gpu_rebalancer_outbox_dropped_total"


def outcome(number: int) -> Outcome:
    because = Because(Reason.CONFIRMED)
    return Outcome(f"p{number}", "infer-l20", 0, "restore", "n1", Result.DONE, because, NOW, loan="l1")


def steps(told: FakePublisher) -> list[str]:
    """Of which plans outcomes were told, in order."""
    contents = [read(one.topic, one.key, one.value, one.headers).content for one in told.records]
    return [said.outcome.plan for said in contents if isinstance(said, OutcomeReported)]


class Hanging(FakePublisher):
    """Posting waits for room that never comes."""

    async def post_to(self, record: Record, partition: int) -> Posted:
        await asyncio.sleep(3600)
        return await super().post_to(record, partition)


class Refusing(FakePublisher):
    """Posting waits and is refused, as with a full buffer; `takes` so many before."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self.takes, self.offered = takes, 0

    async def post_to(self, record: Record, partition: int) -> Posted:
        self.offered += 1
        if len(self.records) < self.takes:
            return await super().post_to(record, partition)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(KafkaTimeoutError())
        answer.exception()
        return Posted(record, partition, answer)


def of(told: FakePublisher, metrics: Metrics | None = None) -> Outbox:
    return Outbox(cast("Publisher", told), CLUSTER, metrics or Metrics())


async def test_flushing_ends_in_time_although_posting_hangs_and_everything_still_waits() -> None:
    box = of(Hanging())
    box.add([outcome(1), outcome(2)])
    began = time.monotonic()
    await asyncio.wait_for(box.flush(0.1), 5)
    assert time.monotonic() - began < 2.0
    assert box.waiting == 2


async def test_what_is_too_much_to_wait_is_dropped_oldest_first_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BUFFER", 3)
    metrics, told = Metrics(), FakePublisher()
    assert metrics.registry.get_sample_value(DROPPED, {"record": "outcome"}) == 0
    assert metrics.registry.get_sample_value(DROPPED, {"record": "plan"}) == 0
    box = of(told, metrics)
    box.add(outcome(number) for number in range(5))
    assert metrics.registry.get_sample_value(DROPPED, {"record": "outcome"}) == 2
    await box.flush(1.0)
    assert steps(told) == ["p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("portion", "taken"),
    [pytest.param(2, 7, id="in several portions"), pytest.param(500, 7, id="at once")],
)
async def test_all_that_waits_is_told_in_order(portion: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "PORTION", portion)
    told = FakePublisher()
    box = of(told)
    box.add(outcome(number) for number in range(taken))
    await asyncio.gather(box.flush(1.0), box.flush(1.0))
    assert steps(told) == [f"p{number}" for number in range(taken)]
    assert box.empty


async def test_offering_ends_with_the_first_record_that_is_refused() -> None:
    class Strict(Refusing):
        async def settle(self, posted: Any, patience: float = 1.0, *, again: bool = True) -> None:
            del patience, again
            self.away = any(one.refused for one in posted)
            await super().settle(posted)

    told = Strict(0)
    box = of(told)
    box.add(outcome(number) for number in range(50))
    await box.flush(1.0)
    assert (told.offered, box.waiting) == (1, 50)
    told.takes = 100
    await box.flush(1.0)
    assert box.empty
