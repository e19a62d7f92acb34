"""Act on the real broker: an old decider is refused, a restart does nothing twice, poison stops nobody."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import TermRecord, decode, encode_plan, encode_term
from rebalancer.core.plan import FINAL, CloseNode, Method, Outcome, Plan, Result
from rebalancer.core.protocol.calls import AnswerKind
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved, OutcomeReported
from rebalancer.core.units import Mode
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.servers.kafka import KafkaServer
from tests.streams.fakes import Noting
from tests.streams.stage import Stage, eventually, staged, until
from tests.streams.things import CLUSTER, MINUTE, POLICY

pytestmark = pytest.mark.kafka


class Cluster(Noting):
    """Answers that the node is gone, which ends every step at once."""

    def __init__(self) -> None:
        super().__init__(AnswerKind.GONE)

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        del of
        return ()

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        return ()


@pytest.fixture
async def stage(own_kafka: KafkaServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(own_kafka, tmp_path) as found:
        yield found


@asynccontextmanager
async def acting(stage: Stage, hands: Cluster) -> AsyncIterator[Act]:
    async with Publisher(stage.kafka) as publisher:
        act = Act(stage.kafka, CLUSTER, POLICY, hands, hands, publisher, Metrics())
        task = asyncio.create_task(act.run())
        try:
            await until(act.ready.is_set)
            yield act
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def closing(name: str, term: int) -> Record:
    now = datetime.now(UTC)
    because = Because(Reason.LOAN_DUE, {"node": name})
    step = CloseNode(f"loan-{name}", f"uid-{name}", name)
    plan = Plan(
        name, "infer-l20", Method.RETURN, Mode.ACT, because, (step,), now, now + 10 * MINUTE, pressing=True, term=term
    )
    return encode_plan(plan, CLUSTER)


async def outcomes(stage: Stage) -> list[Outcome]:
    found = [decode(one.topic, one.key, one.value, one.headers) for one in await stage.lying(v1.OUTCOME)]
    return [one.outcome for one in found if isinstance(one, OutcomeReported)]


async def ended(stage: Stage, *plans: str) -> dict[str, Result]:
    """How each plan's step ended, once all these have."""
    final = [one for one in await outcomes(stage) if one.result in FINAL]
    ends: dict[str, Result] = {one.plan: one.result for one in final}
    return ends if set(plans) <= set(ends) else {}


async def test_a_decider_whose_term_is_over_is_refused(stage: Stage) -> None:
    hands = Cluster()
    async with acting(stage, hands):
        (old,) = await stage.publisher.send([encode_term(TermRecord("old", datetime.now(UTC)), CLUSTER)], CLUSTER)
        (new,) = await stage.publisher.send([encode_term(TermRecord("new", datetime.now(UTC)), CLUSTER)], CLUSTER)
        await stage.send(closing("late", old.offset), closing("good", new.offset))
        await eventually(lambda: ended(stage, "late", "good"))
    told = {one.plan: one for one in await outcomes(stage)}
    assert told["late"].because.reason is Reason.STALE_TERM
    assert {getattr(call, "node_name", "") for call in hands.asked} == {"good"}


async def test_after_a_restart_what_is_final_is_not_done_again(stage: Stage) -> None:
    await stage.send(encode_term(TermRecord("d", datetime.now(UTC)), CLUSTER))
    first, second = Cluster(), Cluster()
    async with acting(stage, first):
        await stage.send(closing("a", 0))
        await eventually(lambda: ended(stage, "a"))
    before = await outcomes(stage)
    async with acting(stage, second):
        await stage.send(closing("a", 0), closing("b", 0))
        await eventually(lambda: ended(stage, "a", "b"))
    assert {getattr(call, "node_name", "") for call in first.asked} == {"a"}
    assert {getattr(call, "node_name", "") for call in second.asked} == {"b"}
    assert [one for one in await outcomes(stage) if one.plan == "a"] == before


async def test_a_plan_that_cannot_be_read_is_a_dead_letter_and_the_next_is_carried_out(stage: Stage) -> None:
    async with acting(stage, Cluster()):
        await stage.send(Record(v1.PLAN, b"infer-l20", b"{}", []), closing("a", 0))
        await eventually(lambda: ended(stage, "a"))
    letters = await stage.lying(f"{v1.PLAN}.dlq")
    assert [dict(one.headers)["dlq_stage"] for one in letters] == [b"envelope"]
