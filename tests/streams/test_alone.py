"""An act without Kafka: the brakes that stand in the cluster are the ones it obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from rebalancer.adapters.brakestold import BrakesTold
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.act import Act
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.outbox import brakes_now, due_now
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.core.facts import Control, GangSpec, Namespace
from rebalancer.core.ports import Hands
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved, SnapshotBegan, SnapshotEnded
from tests.core.protocol.fake import POLICY, T0, lent, pod
from tests.streams.fakes import FakePublisher
from tests.streams.things import CLUSTER

LONG = timedelta(hours=1)


class Seeing:
    """Eyes with these facts; a kind that is ``broken`` cannot be seen."""

    def __init__(self, facts: Sequence[Fact], *control: Control, broken: FactKind | None = None) -> None:
        self.facts, self.controls, self.broken = facts, control, broken

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        if of == self.broken:
            raise ConnectionResetError(of)
        return self.controls if of == "control" else [one for one in self.facts if type(one).__name__.lower() == of]

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        return ()


@pytest.mark.parametrize(
    ("eyes", "holds"),
    [
        pytest.param(Seeing([], Control(paused=True, by="ada")), "ada", id="what stands in the cluster"),
        pytest.param(Seeing([]), "before", id="what was known where there is no control object"),
        pytest.param(Seeing([], broken="control"), "before", id="what was known where it cannot be read"),
    ],
)
async def test_which_brakes_hold_without_kafka(eyes: Seeing, holds: str) -> None:
    assert (await brakes_now(eyes, Control(by="before"))).by == holds


@pytest.mark.parametrize(
    ("control", "plans"),
    [
        pytest.param(Control(), 0, id="nothing is due and nothing called"),
        pytest.param(Control(recall_nodes=("n1",)), 1, id="the node is recalled"),
        pytest.param(Control(recall_nodes=("n2",)), 0, id="another one is"),
        pytest.param(Control(retired=True), 1, id="all of it is retired"),
    ],
)
async def test_what_the_brakes_call_home_is_planned_from_the_marks(control: Control, plans: int) -> None:
    eyes = Seeing([lent("n1"), pod("p0")], control)
    assert len(await due_now(eyes, POLICY, T0, 0, LONG, control)) == plans


async def test_a_recall_in_the_cluster_is_begun_once_kafka_has_been_silent_for_the_bound() -> None:
    eyes = Seeing([lent("n1"), pod("p0")], Control(recall_all=True, by="ada"))
    act = Act(
        KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), eyes, cast("Publisher", FakePublisher()), Metrics()
    )
    now = datetime(2020, 1, 1, tzinfo=UTC)  # long before any loan of these is due
    await act.alone(now)
    assert act.actor.idle
    assert act.actor.brakes.recall_all
    await act.alone(now + POLICY.acting.kafka_silent)
    assert not act.actor.idle


async def test_brakes_that_cannot_be_read_keep_nothing_from_coming_home() -> None:
    mark = lent("n1").mark
    assert mark is not None
    eyes = Seeing([lent("n1"), pod("p0")], broken="control")
    act = Act(
        KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), eyes, cast("Publisher", FakePublisher()), Metrics()
    )
    await act.alone(mark.due)
    assert not act.actor.idle


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param(FactObserved(Control(paused=True), T0), Control(paused=True), id="as they stand"),
        pytest.param(SnapshotEnded("control", "s", 0, T0), Control(), id="a full list without the object"),
        pytest.param(SnapshotEnded("control", "s", 1, T0), None, id="a full list with the object, which was told"),
        pytest.param(SnapshotEnded("node", "s", 0, T0), None, id="a list of something else"),
    ],
)
def test_what_a_record_says_about_the_brakes(content: object, told: Control | None) -> None:
    assert BrakesTold().read(content) == told


PAUSED = FactObserved(Control(paused=True), T0)
BEGAN, EMPTY = SnapshotBegan("control", "s", T0), SnapshotEnded("control", "s", 0, T0)


@pytest.mark.parametrize(
    ("records", "holds"),
    [
        pytest.param((PAUSED, BEGAN, EMPTY), Control(), id="told before a list that has none any more"),
        pytest.param((BEGAN, PAUSED, EMPTY), None, id="told while a list was read, which then left it out"),
        pytest.param((BEGAN, PAUSED, EMPTY, BEGAN, EMPTY), Control(), id="gone by the next list"),
    ],
)
def test_a_brake_put_on_while_a_list_is_read_holds(records: Sequence[object], holds: Control | None) -> None:
    told = BrakesTold()
    assert [told.read(one) for one in records][-1] == holds


async def test_a_look_at_a_large_cluster_may_take_longer_than_one_call() -> None:
    mark = lent("n1").mark
    assert mark is not None

    class Many(Seeing):
        async def snapshot(self, of: FactKind) -> Sequence[Fact]:
            await asyncio.sleep(0.02)  # as long as its pages take
            return await super().snapshot(of)

    hasty = replace(POLICY, acting=replace(POLICY.acting, call_timeout=timedelta(milliseconds=10)))
    eyes, publisher = Many([lent("n1"), pod("p0")]), cast("Publisher", FakePublisher())
    act = Act(KafkaSettings(), CLUSTER, hasty, cast("Hands", None), eyes, publisher, Metrics())
    await act.alone(mark.due)
    assert not act.actor.idle


async def test_what_was_done_alone_is_all_told_or_said_not_to_be() -> None:
    publisher, eyes = FakePublisher(), Seeing([lent("n1"), pod("p0")], Control(recall_all=True))
    act = Act(KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), eyes, cast("Publisher", publisher), Metrics())
    mark = lent("n1").mark
    assert mark is not None
    await act.alone(mark.due)
    publisher.away = True
    assert not await act.back()
    publisher.away = False
    assert await act.back()


class Governed(Seeing):
    """Eyes that also see a namespace and a gang object."""

    def __init__(self, facts: Sequence[Fact], *, space: bool = False, gang: bool = False) -> None:
        super().__init__(facts, Control(recall_all=True))
        self.others: dict[FactKind, Fact] = {
            "namespace": Namespace("uid-ns", "ml", opted_out=space),
            "group": GangSpec("uid-gang", "train", "ml", 1, 1, opted_out=gang),
        }
        self.asked: list[FactKind] = []

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        self.asked.append(of)
        return [self.others[of]] if of in self.others else await super().snapshot(of)


@pytest.mark.parametrize(
    ("space", "gang", "spares", "stays"),
    [
        pytest.param(True, False, True, True, id="the namespace did"),
        pytest.param(False, True, True, True, id="the gang object did"),
        pytest.param(False, False, True, False, id="nobody did"),
        pytest.param(True, True, False, False, id="both did, and the policy takes them all the same"),
    ],
)
async def test_without_kafka_who_opted_out_keeps_a_due_node_where_the_policy_spares_them(
    space: bool, gang: bool, spares: bool, stays: bool
) -> None:
    mark = lent("n1").mark
    assert mark is not None
    eyes, publisher = Governed([lent("n1"), pod("p0")], space=space, gang=gang), cast("Publisher", FakePublisher())
    act = Act(KafkaSettings(), CLUSTER, POLICY, cast("Hands", None), eyes, publisher, Metrics())
    act.adopt_policy(replace(POLICY, pace=replace(POLICY.pace, recall_while_paused=not spares)))
    await act.alone(mark.due)
    assert act.actor.idle is stays
    assert ("group" in eyes.asked) is spares  # nobody is listed whose word would not count
