"""How stimuli change the state: snapshots, brakes, terms, approvals, and a restart that forgets nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Control
from rebalancer.core.instructions import AskSnapshot, Instruction, PublishPlan, RecordLoan, RecordPool
from rebalancer.core.policy import Signals
from rebalancer.core.stimuli import (
    DemandReported,
    FactObserved,
    HeartbeatHeard,
    PolicyAdopted,
    PolicyRefused,
    Restored,
    SnapshotBegan,
    SnapshotEnded,
    StreamLagged,
    TermBegan,
    VerdictGiven,
)
from rebalancer.core.telemetry import DemandSample, Heartbeat, Verdict
from rebalancer.core.units import Activity, Mode
from tests.core.away import away
from tests.core.build import Rig, budget, lent, node, policy, pool_policy, replica
from tests.core.test_reclaim import fleet, of, wants

POOL = "infer-a100"


def snapshot(rig: Rig, *facts: Any, count: int | None = None, name: str = "s", ended: str = "s") -> list[Instruction]:
    rig.tell(SnapshotBegan("node", name, rig.now), *(FactObserved(fact, rig.now) for fact in facts))
    return rig.tell(SnapshotEnded("node", ended, len(facts) if count is None else count, rig.now))


def test_what_a_complete_list_does_not_contain_is_gone() -> None:
    rig = away("n0", "n1")
    (record,) = snapshot(rig, lent(node("n1")))
    assert isinstance(record, RecordLoan)
    assert (record.loan.id, record.loan.phase.value) == ("loan-n0", "node-gone")
    assert list(rig.engine.state.inventory.nodes) == ["uid-n1"]


def test_the_same_news_in_a_list_counts_as_seen() -> None:
    rig = away("n0")
    assert snapshot(rig, lent(node("n0"))) == []
    assert list(rig.engine.state.inventory.nodes) == ["uid-n0"]


@pytest.mark.parametrize(
    ("count", "ended"),
    [(2, "s"), (1, "another")],
    ids=["a list with a hole", "an end without its beginning"],
)
def test_an_incomplete_list_deletes_nothing_and_is_asked_for_again(count: int, ended: str) -> None:
    rig = Rig()
    rig.see(node("n0"))
    (asked,) = snapshot(rig, node("n1"), count=count, ended=ended)
    assert isinstance(asked, AskSnapshot)
    assert asked.of == "node"
    assert sorted(rig.engine.state.inventory.nodes) == ["uid-n0", "uid-n1"]
    assert not rig.engine.state.synced.get("node")


def test_a_list_of_one_kind_leaves_the_others() -> None:
    rig = Rig()
    rig.see(budget("b", "a", 1), replica("chat"))
    snapshot(rig, node("n0"))
    assert rig.engine.state.inventory.uids("budget") == ["uid-budget-b"]
    assert rig.engine.state.synced == {"node": True}
    assert not rig.engine.state.complete(rig.now)


def test_the_picture_is_complete_with_nodes_and_pods_and_streams_up_to_date() -> None:
    rig = Rig()
    rig.sync(node("n0"))
    state = rig.engine.state
    assert state.complete(rig.now)
    rig.tell(StreamLagged(behind=True, lag_seconds=400))
    assert not state.complete(rig.now)
    rig.tell(StreamLagged(behind=False, lag_seconds=0))
    assert state.complete(rig.now)


def test_a_list_that_comes_to_no_end_makes_the_picture_incomplete_until_one_does() -> None:
    rig = Rig()
    rig.sync(node("n0"))
    state, freshness = rig.engine.state, rig.engine.state.policy.activities.freshness
    rig.tell(SnapshotBegan("pod", "first", rig.now))
    assert state.complete(rig.now + freshness)
    rig.tell(SnapshotBegan("pod", "again", rig.now + freshness))
    assert not state.complete(rig.now + freshness + timedelta(seconds=1))
    rig.tell(SnapshotEnded("pod", "again", 0, rig.now + freshness))
    assert state.complete(rig.now + 2 * freshness)


def test_terms_only_grow() -> None:
    rig = Rig()
    rig.tell(TermBegan(5), TermBegan(3))
    assert rig.engine.state.term == 5


def test_a_policy_is_in_force_at_once_and_pools_that_left_it_are_forgotten() -> None:
    rig = Rig(policy(pool_policy(), pool_policy("infer-l20")))
    rig.tell(PolicyRefused("pools: none", rig.now), PolicyAdopted(policy(pool_policy("infer-t4")), "d"))
    assert sorted(rig.engine.state.watches) == ["infer-t4", "train-a100"]
    assert rig.engine.state.refused_policy == ""


@pytest.mark.parametrize(
    ("signals", "kept"),
    [
        pytest.param(Signals(), [8.0] * 30, id="the same settings forget nothing"),
        pytest.param(Signals(history=timedelta(minutes=10)), [8.0] * 10, id="a shorter history keeps its end"),
        pytest.param(Signals(bucket=timedelta(seconds=30)), [], id="another bucket length forgets"),
    ],
)
def test_what_is_remembered_of_demand_follows_the_policy_at_once(signals: Signals, kept: list[float]) -> None:
    rig = Rig()
    watch = rig.engine.state.watches[POOL]
    for minute in range(30):
        watch.headroom.observe(8.0, rig.now + timedelta(minutes=minute))
    rig.tell(PolicyAdopted(replace(rig.engine.state.policy, signals=signals), "d"))
    assert rig.engine.state.watches[POOL] is watch
    assert list(watch.headroom.memory(POOL, rig.now, ()).history) == kept


def test_another_dwell_proves_nothing_before_it_was_watched() -> None:
    rig = Rig()
    watch, before = rig.engine.state.watches[POOL], rig.engine.state.policy
    began, dwell = rig.now + timedelta(days=1), timedelta(minutes=5)
    watch.spare.observe(16.0, began)
    watch.adopt(replace(before, activities=replace(before.activities, dwell=dwell)), before)
    watch.spare.observe(16.0, began + timedelta(minutes=1))
    assert watch.spare.minimum(began + dwell) is None
    assert watch.spare.minimum(began + timedelta(minutes=1) + dwell) == 16.0


def test_a_refused_policy_leaves_the_old_one() -> None:
    rig = Rig()
    before = rig.engine.state.policy
    rig.tell(PolicyRefused("pools: none", rig.now))
    assert (rig.engine.state.policy, rig.engine.state.refused_policy) == (before, "pools: none")


def test_late_verdicts_demands_and_heartbeats_change_nothing() -> None:
    rig = Rig()
    rig.sync(node("n0"))
    late = rig.now - timedelta(minutes=1)
    rig.tell(VerdictGiven(Verdict("uid-n0", Activity.BUSY, 4.0, 8, late, rig.now)))
    rig.tell(VerdictGiven(Verdict("uid-n0", Activity.IDLE, 0.0, 8, late, late)))
    rig.tell(DemandReported(DemandSample(POOL, 8, rig.now)), DemandReported(DemandSample(POOL, 99, late)))
    rig.tell(HeartbeatHeard(Heartbeat("w", rig.now, (0, 1), 1, 0)), HeartbeatHeard(Heartbeat("v", late, (0, 1), 1, 0)))
    state = rig.engine.state
    told = state.watches[POOL].told
    assert told is not None
    assert (state.verdicts["uid-n0"].activity, told.gpus) == (Activity.BUSY, 8)
    assert state.heartbeats == {0: rig.now, 1: rig.now}


def test_a_lent_nodes_utilisation_is_not_its_owners_demand() -> None:
    rig = Rig()
    rig.sync(node("n0"), lent(node("n1")))
    rig.busy(utilisation=5.0)
    watch = rig.engine.state.watches[POOL]
    assert watch.measured[0].total == 5.0
    rig.see(node("n1"), lent(node("n0")))
    assert sum(entry.total for entry in watch.measured.values()) == 0.0


@pytest.mark.parametrize(
    ("modes", "mode"),
    [({}, Mode.ACT), ({POOL: Mode.SHADOW}, Mode.SHADOW), ({"x": Mode.SHADOW}, Mode.ACT)],
    ids=["the policy's", "the operator's", "another pool's"],
)  # fmt: skip
def test_the_mode_in_force(modes: dict[str, Mode], mode: Mode) -> None:
    rig = Rig()
    rig.see(Control(modes=modes))
    assert rig.engine.state.mode(POOL) is mode
    assert rig.engine.state.mode("nobody-knows") is Mode.SHADOW


def test_approval_by_the_brakes_publishes_the_plan_once() -> None:
    rig = fleet(circuit_share=0.1)
    wants(rig, 40)
    rig.pass_time(1)
    wants(rig, 40)
    (held,) = of(rig.pass_time(1))
    rig.now += timedelta(seconds=1)
    published = rig.tell(FactObserved(Control(approved=(held.id, "unknown")), rig.now))
    assert [item.plan.awaits_approval for item in published if isinstance(item, PublishPlan)] == [False]
    rig.now += timedelta(seconds=1)
    assert rig.tell(FactObserved(Control(approved=(held.id,), by="x"), rig.now)) == []


def test_an_unsynced_memory_waits_for_a_live_list() -> None:
    rig = Rig()
    rig.tell(Restored((), (), (), (), (), synced=False, at=rig.now))
    assert not rig.engine.state.complete(rig.now)


def test_a_deletion_of_what_nobody_knew_changes_nothing() -> None:
    rig = Rig()
    rig.pass_time(0)
    rig.lose("budget", "uid-x")
    assert not rig.engine.dirty
    assert [item for item in rig.tell() if isinstance(item, RecordPool)] == []
