"""Decide on the real broker: loading, terms, tombstones, poison, the journal, rebalances, kills and outages."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rebalancer.adapters.streams.journal import read_journal, replay
from rebalancer.adapters.translate import TermRecord, encode_deleted, encode_fact
from rebalancer.core.engine import Engine
from rebalancer.core.stimuli import FactDeleted, FactObserved, Restored, TermBegan
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.servers.kafka import KafkaServer
from tests.streams.stage import Stage, eventually, known, of_kind, staged, until
from tests.streams.things import CLUSTER, POLICY, node

pytestmark = pytest.mark.kafka
NODES = v1.FACT_TOPICS["node"]


@pytest.fixture
async def stage(own_kafka: KafkaServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(own_kafka, tmp_path) as found:
        yield found


def fact(uid: str) -> Record:
    now = datetime.now(UTC)
    return encode_fact(node(uid, now), CLUSTER, now)


async def test_what_lay_there_is_known_before_the_first_event_and_a_restart_forgets_nothing(stage: Stage) -> None:
    await stage.nodes(*(f"n{one}" for one in range(200)))
    async with stage.decide() as role:
        assert len(known(role)) == 200
        await stage.send(fact("new"), encode_deleted(FactDeleted("node", "n0", datetime.now(UTC)), CLUSTER))
        await until(lambda: "new" in known(role) and "n0" not in known(role))
        first = role.decider(CLUSTER)
    async with stage.decide() as again:
        assert known(again) == {"new", *(f"n{one}" for one in range(1, 200))}
        second = again.decider(CLUSTER)
        assert first is not None
        assert second is not None
        assert second.term > first.term
    terms = of_kind(await stage.lying(v1.PLAN), TermRecord)
    assert [one.offset for one in terms] == [first.term, second.term]


async def test_poison_goes_beside_its_topic_with_its_origin_and_the_stream_goes_on(stage: Stage) -> None:
    async with stage.decide() as role:
        poison = Record(NODES, b"bad", b'{"half":', [("mine", b"1")])
        await stage.send(fact("a"), poison, Record(NODES, b"", None, []), fact("b"))
        await until(lambda: known(role) == {"a", "b"})
        letters = await eventually(lambda: stage.lying(f"{NODES}.dlq"))
    headers = dict(letters[0].headers)
    assert (letters[0].key, letters[0].value) == (b"bad", b'{"half":')
    assert {name: headers[name] for name in ("mine", "dlq_topic", "dlq_partition", "dlq_offset", "dlq_stage")} == {
        "mine": b"1",
        "dlq_topic": NODES.encode(),
        "dlq_partition": str(stage.partition).encode(),
        "dlq_offset": b"1",
        "dlq_stage": b"bytes",
    }


async def test_the_journal_holds_what_was_handled_in_order_and_folds_to_the_same_engine(stage: Stage) -> None:
    await stage.nodes("a")
    async with stage.decide() as role:
        await stage.send(fact("b"))
        await until(lambda: known(role) == {"a", "b"})

        async def journaled() -> bool:
            entries = await read_journal(stage.kafka, CLUSTER, stage.partition)
            return any(isinstance(one.stimulus, FactObserved) and one.stimulus.fact.uid == "b" for one in entries)

        await eventually(journaled)
    entries = await read_journal(stage.kafka, CLUSTER, stage.partition)
    kinds = [type(one.stimulus) for one in entries]
    assert kinds.index(Restored) < kinds.index(FactObserved) < kinds.index(TermBegan)
    engines: list[Engine] = []

    def make(policy: object) -> Engine:
        engines.append(Engine(CLUSTER, policy))  # type: ignore[arg-type]  # it is the journal's policy
        return engines[-1]

    replay(entries, make)
    assert set(engines[-1].state.inventory.nodes) == {"a", "b"}


async def test_a_second_worker_takes_partitions_over_and_gives_them_back_without_losing_a_fact(stage: Stage) -> None:
    await stage.nodes("a")
    async with stage.decide("d0", partitions=4) as first:
        async with stage.decide("d1", partitions=2) as second:
            await until(lambda: len(first.desks) == 2 and len(second.desks) == 2)
            await stage.send(fact("b"))
            await until(lambda: {"a", "b"} in (known(first), known(second)))
            assert known(first) == set() or known(second) == set()
        await until(lambda: len(first.desks) == 4 and known(first) == {"a", "b"}, 30)
        terms = [one.offset for one in of_kind(await stage.lying(v1.PLAN), TermRecord)]
        decider = first.decider(CLUSTER)
        assert decider is not None
        assert decider.term == terms[-1]


async def test_a_broker_that_is_away_is_waited_for(stage: Stage) -> None:
    async with stage.decide() as role:
        await stage.send(fact("a"))
        await until(lambda: known(role) == {"a"})
        await asyncio.to_thread(stage.server.stop)
        await asyncio.sleep(3)  # long enough for every connection to notice
        await asyncio.to_thread(stage.server.start)
        await stage.send(fact("b"))
        await until(lambda: "b" in known(role), 40)
        assert known(role) == {"a", "b"}


async def test_a_policy_that_is_refused_or_adopted_does_not_cost_the_desk_its_state(stage: Stage) -> None:
    await stage.nodes("a")
    async with stage.decide() as role:
        desk = role.desks[stage.partition]
        await role.refuse(CLUSTER, "policy.yaml:3: no such pool")
        await until(lambda: role.decider(CLUSTER).engine.state.refused_policy)  # type: ignore[union-attr]  # it is loaded
        await role.adopt(CLUSTER, POLICY, "another")
        await until(lambda: not role.decider(CLUSTER).engine.state.refused_policy)  # type: ignore[union-attr]  # as above
        await stage.send(fact("b"))
        await until(lambda: known(role) == {"a", "b"})
        await stage.send(fact("c"))
        await until(lambda: known(role) == {"a", "b", "c"})
        assert role.desks[stage.partition] is desk


CHILD = """
import asyncio, sys
from pathlib import Path
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.decide import Decide
from rebalancer.adapters.streams.publish import Publisher
from tests.streams.things import CLUSTER, POLICY

async def main(bootstrap, group, folder):
    kafka = KafkaSettings(bootstrap=bootstrap)
    async with Publisher(kafka, 4) as publisher:
        settings = AppSettings(group, kafka, data_dir=Path(folder))
        role = Decide(settings, {CLUSTER: (POLICY, "test")}, publisher, Metrics(), name="child")
        await role.start()
        await role.ready()
        print("ready", flush=True)
        await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_worker_that_is_killed_is_succeeded_by_one_that_knows_everything(stage: Stage) -> None:
    await stage.nodes("a")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, stage.server.bootstrap, f"decide-{stage.group}", str(stage.folder / "child"),
        stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"ready" not in await child.stdout.readline():
                pass
        await stage.send(fact("b"))
        before = len(of_kind(await stage.lying(v1.PLAN), TermRecord))
    finally:
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
    began = datetime.now(UTC)
    async with stage.decide("d1") as role:
        await until(lambda: known(role) == {"a", "b"}, 30)
        assert datetime.now(UTC) - began < timedelta(seconds=30)
    assert len(of_kind(await stage.lying(v1.PLAN), TermRecord)) == before + 1
