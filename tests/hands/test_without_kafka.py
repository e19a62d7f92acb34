"""A process at a cluster that starts while no broker answers: what falls due comes home, and then all goes on."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_to_json
from rebalancer.adapters.streams.admin import apply
from rebalancer.adapters.streams.connection import KafkaSettings, Unreachable
from rebalancer.adapters.streams.loader import read_to_end
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import read
from rebalancer.bootstrap import withoutkafka
from rebalancer.bootstrap.leading import LedAct
from rebalancer.bootstrap.service import run
from rebalancer.core.plan import Outcome, Plan, Result
from rebalancer.core.protocol.fallback import ALONE
from rebalancer.core.stimuli import OutcomeReported
from rebalancer.core.units import ON_LOAN
from rebalancer.settings import Settings
from rebalancer.wire import v1
from tests.cluster.terms import Pool, policy
from tests.hands.fakeapi import Kube, served
from tests.hands.test_leading import LEASE_PATH, NODE, until
from tests.hands.things import FOREIGN, RAW_OWNER, mark, raw_node
from tests.servers.kafka import KafkaServer
from tests.servers.ports import free_ports


def settings(folder: Path, bootstrap: str, port: int, **more: Any) -> Settings:
    (folder / "policy.yaml").write_text(policy([Pool("infer-l20", "L20")], acting={"call_timeout": "900ms"}))
    given = {
        "cluster": "c", "roles": ["act"], "policy": folder / "policy.yaml",
        "kafka": {"bootstrap": bootstrap, "timeout": 1}, "http": {"host": "127.0.0.1", "port": port},
        "lease": {"duration": 3, "renew": 2, "retry": 0.3}, **more,
    }  # fmt: skip
    return Settings.model_validate(given)


async def status(port: int, page: str) -> int:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"http://127.0.0.1:{port}/{page}") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0


async def eventually(port: int, page: str, wanted: int) -> None:
    async with asyncio.timeout(30):
        while await status(port, page) != wanted:  # noqa: ASYNC110 - what is awaited is another task's answer
            await asyncio.sleep(0.1)


def holder(kube: Kube) -> object:
    """Who holds the Lease."""
    return kube.objects[LEASE_PATH]["spec"]["holderIdentity"]


async def told_to(bootstrap: str) -> tuple[list[Plan], list[Outcome]]:
    """Plans and outcomes as the broker has them."""
    kafka = KafkaSettings(bootstrap=bootstrap)
    loaded = await read_to_end(kafka, [v1.PLAN, v1.OUTCOME], Publisher(kafka).partition("c"))
    lie = [read(one.topic, one.key, one.value, one.headers).content for each in loaded.records.values() for one in each]
    return (
        [one for one in lie if isinstance(one, Plan)],
        [one.outcome for one in lie if isinstance(one, OutcomeReported)],
    )


async def test_a_loan_comes_home_although_the_process_began_without_a_broker_and_the_rest_begins_with_one(
    tmp_path: Path, own_kafka: KafkaServer
) -> None:
    """Alive and not ready until then; ready once a broker answers, which is told of all; ended by a signal as ever."""
    await apply(KafkaSettings(bootstrap=own_kafka.bootstrap))
    own_kafka.stop()
    kube, (port,) = Kube(), free_ports(1)
    now = datetime.now(UTC)
    due = replace(mark("uid-n1", index=1), due=now, recall_at=now - timedelta(minutes=5))
    place = {"key": ON_LOAN, "value": "training", "effect": "NoSchedule"}
    kube.put(NODE, raw_node("n1", FOREIGN, place, annotations={LOAN: loan_mark_to_json(due)}))
    async with served(kube, tmp_path):
        at = {"kubeconfig": tmp_path / "kubeconfig", "namespace": "ours"}
        running = asyncio.create_task(run(settings(tmp_path, own_kafka.bootstrap, port, kubernetes=at)))
        await until(lambda: kube.objects[NODE]["spec"].get("taints") == [FOREIGN, RAW_OWNER], within=40)
        assert (await status(port, "healthz"), await status(port, "readyz")) == (200, 503)
        alone = holder(kube)
        await asyncio.to_thread(own_kafka.start)
        await eventually(port, "readyz", 200)
        plans, outcomes = await told_to(own_kafka.bootstrap)
        await until(lambda: holder(kube) not in ("", None, alone))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(running, 20)
    (plan,) = plans
    assert plan.id.startswith(ALONE)
    finished = [(one.plan, one.kind) for one in outcomes if one.result is Result.DONE]
    assert finished == [(plan.id, "close"), (plan.id, "restore")]
    assert holder(kube) in ("", None)


async def test_without_a_cluster_a_missing_broker_ends_the_process_and_says_which_address(tmp_path: Path) -> None:
    port, http = free_ports(2)
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        await run(settings(tmp_path, f"127.0.0.1:{port}", http, simulate="demo"))


class Alone:
    """What was done alone, taken at the so-manieth offer."""

    def __init__(self, taken_at: float) -> None:
        self.taken_at, self.offers = taken_at, 0

    async def back(self) -> bool:
        self.offers += 1
        return self.offers >= self.taken_at


@pytest.mark.parametrize(
    ("taken_at", "most"),
    [
        pytest.param(3, 3, id="a broker that is not ready at once"),
        pytest.param(float("inf"), 20, id="one that never takes it, for want of topics or rights"),
    ],
)
async def test_what_was_done_alone_is_offered_until_taken_but_not_for_ever(
    taken_at: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withoutkafka, "PAUSE", 0.01)
    monkeypatch.setattr(withoutkafka, "TELLING", 0.2)
    alone = Alone(taken_at)
    await asyncio.wait_for(withoutkafka._told(cast("LedAct", alone)), 5)
    assert 3 <= alone.offers <= most
