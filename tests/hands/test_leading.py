"""The act role as it runs on a cluster, with no broker to be had: who leads, under which epoch, and what comes home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from rebalancer.adapters.cluster.live import least_epoch
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_from_json, loan_mark_to_json
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.translate import read
from rebalancer.bootstrap import leading
from rebalancer.bootstrap.leading import LedAct, fits
from rebalancer.core.policy import Acting, Policy
from rebalancer.core.stimuli import OutcomeReported
from rebalancer.core.units import CLOSING, ON_LOAN
from rebalancer.settings import LeaseSettings, NoCluster, Settings
from tests.hands.fakeapi import Kube, direct, refusal
from tests.hands.things import FOREIGN, OWNER, RAW_OWNER, mark, raw_node
from tests.servers.ports import free_ports
from tests.streams.fakes import FakePublisher
from tests.streams.things import POLICY

NODE = "/api/v1/nodes/n1"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/ours/leases/gpu-rebalancer-act"
LEASE = LeaseSettings(duration=1.5, renew=1.0, retry=0.2)
QUICK = Acting(
    settle=timedelta(seconds=0.05),
    call_timeout=timedelta(seconds=0.5),
    poll=timedelta(seconds=0.05),
    retry_first=timedelta(seconds=0.1),
    kafka_silent=timedelta(seconds=0.3),
    quarantine_ttl=timedelta(seconds=0.5),
)
HASTY = Policy({name: replace(pool, owner_taint=OWNER) for name, pool in POLICY.pools.items()}, acting=QUICK)


class Two:
    """Two replicas of one installation; nothing answers where their broker should be."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self._at = f"127.0.0.1:{free_ports(1)[0]}"
        self.roles: list[LedAct] = []
        self.told: list[FakePublisher] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self) -> LedAct:
        settings = Settings(kafka=KafkaSettings(bootstrap=self._at, timeout=0.5), lease=LEASE)
        self.told.append(FakePublisher())
        publisher = cast("Publisher", self.told[-1])
        name = f"r{len(self.roles)}"
        watching = Watching(CollectorRegistry())
        role = LedAct(settings, direct(self.kube)[0], "ours", name, HASTY, publisher, Metrics(), watching)
        self.roles.append(role)
        self.tasks.append(asyncio.create_task(role.run()))
        return role

    async def end(self, which: int) -> None:
        self.tasks[which].cancel()
        with suppress(asyncio.CancelledError):
            await self.tasks[which]


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    both = Two(Kube())
    yield both
    for number in range(len(both.tasks)):
        await both.end(number)


async def until(true: Callable[[], bool], within: float = 15.0) -> None:
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - what is awaited happens in a server played in memory
            await asyncio.sleep(0.02)


def looks(kube: Kube) -> int:
    """How often the Lease was read."""
    return sum(one.path == LEASE_PATH for one in kube.asked_for("GET"))


def lent_node(kube: Kube) -> None:
    now = datetime.now(UTC)
    due = replace(mark("uid-n1", index=1), due=now, recall_at=now - timedelta(minutes=5))
    place = {"key": ON_LOAN, "value": "training", "effect": "NoSchedule"}
    kube.put(NODE, raw_node("n1", FOREIGN, place, annotations={LOAN: loan_mark_to_json(due)}))


async def test_a_loan_that_is_due_comes_home_although_no_broker_ever_answered(two: Two) -> None:
    """Also under a Lease that is new while the node's mark is not: the epoch goes above it."""
    lent_node(two.kube)
    role = two.begin()
    await until(lambda: two.kube.objects[NODE]["spec"].get("taints") == [FOREIGN, RAW_OWNER])
    assert LOAN not in two.kube.objects[NODE]["metadata"]["annotations"]
    said = [one.body["metadata"]["annotations"][LOAN] for one in two.kube.asked_for("PATCH")]
    marked = [loan_mark_from_json(one) for one in said if one is not None]
    assert [one.epoch for one in marked] == [4]
    assert (role.health.standby, role.health.alive) == (False, True)


async def test_a_closing_taint_that_a_crash_left_is_undone_after_its_quarantine(two: Two) -> None:
    two.kube.put(NODE, raw_node("n1", FOREIGN, RAW_OWNER, {"key": CLOSING, "effect": "NoSchedule"}))
    two.begin()
    await until(lambda: two.kube.objects[NODE]["spec"]["taints"] == [FOREIGN, RAW_OWNER])
    assert len(two.kube.asked_for("PATCH")) == 1
    assert LOAN not in two.kube.objects[NODE]["metadata"]["annotations"]


async def test_the_other_stands_by_ready_and_takes_over_under_a_higher_epoch(two: Two) -> None:
    first = two.begin()
    await until(lambda: not first.health.standby)
    before = looks(two.kube)
    second = two.begin()
    await until(lambda: looks(two.kube) >= before + 2)  # the holder itself only writes
    assert (second.health.standby, second.health.ready, second.health.alive) == (True, True, True)
    assert second.health.state()["standby"] is True
    await two.end(0)
    await until(lambda: not second.health.standby)
    lease = two.kube.objects[LEASE_PATH]["spec"]
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("r1", 2)


async def test_a_policy_reaches_whoever_leads_next(two: Two) -> None:
    first = two.begin()
    await until(lambda: not first.health.standby)
    slower = replace(HASTY, acting=replace(QUICK, poll=timedelta(seconds=0.07)))
    first.adopt_policy(slower)
    assert first._act is not None
    assert first._act.policy == slower


async def came_home_untold(two: Two) -> LedAct:
    """A loan was taken home while the broker took no word of it."""
    lent_node(two.kube)
    role = two.begin()
    two.told[0].away = True
    await until(lambda: two.kube.objects[NODE]["spec"].get("taints") == [FOREIGN, RAW_OWNER])
    await until(lambda: role._act is not None and role._act.actor.idle)
    two.told[0].records.clear()
    return role


def results(told: FakePublisher) -> list[tuple[str, str]]:
    contents = [read(one.topic, one.key, one.value, one.headers).content for one in told.records]
    return [(one.outcome.kind, one.outcome.result.value) for one in contents if isinstance(one, OutcomeReported)]


async def test_what_was_done_alone_is_told_although_another_leads_by_then(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "TELL_EVERY", 0.05)
    role = await came_home_untold(two)
    lease = two.kube.objects[LEASE_PATH]
    taken = {**lease["spec"], "holderIdentity": "other", "leaseTransitions": 90}
    two.kube.put(LEASE_PATH, {**lease, "spec": taken})
    await until(lambda: role.health.standby)
    two.told[0].away = False
    await until(lambda: ("restore", "done") in results(two.told[0]))
    assert role.health.standby
    assert results(two.told[0]).count(("restore", "done")) == 1


async def test_what_was_done_alone_is_offered_once_more_when_the_process_ends(two: Two) -> None:
    await came_home_untold(two)
    two.told[0].away = False
    await two.end(0)
    assert ("restore", "done") in results(two.told[0])


def test_a_call_that_never_fits_into_the_lease_is_wrong_usage() -> None:
    fits(LeaseSettings(), Policy({}))
    with pytest.raises(NoCluster, match="nothing could be written"):
        fits(LEASE, Policy({}))


async def test_an_unreadable_mark_fences_nobody_and_a_refused_list_is_no_epoch() -> None:
    kube = Kube()
    kube.put(NODE, raw_node("n1", annotations={LOAN: "{"}))
    assert await least_epoch(direct(kube)[0]) == 1
    kube.faults = [lambda _: refusal(403, "Forbidden", "no")]
    with pytest.raises(ConnectionError):
        await least_epoch(direct(kube)[0])
