"""What a pool wants and what stands ready: three sources of demand, and room that is really there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core import ledger
from rebalancer.core.demand import Demand, Homes, PoolWatch, measured_gpus, told_gpus
from rebalancer.core.facts import Requirement, Taint
from rebalancer.core.look import Look, empty_room, look, owner_taints
from rebalancer.core.plan import Method
from rebalancer.core.stimuli import DemandReported, HeartbeatHeard, VerdictGiven
from rebalancer.core.telemetry import DemandSample, Heartbeat, Verdict
from rebalancer.core.units import CLOSING, ON_LOAN, Activity, Mode
from tests.core.build import OWNER_TAINT, START, Rig, gang, lent, node, policy, pool_policy, replica
from tests.core.test_ledger import HOME, LEND, plan_of

POOL = "infer-a100"
BASE = Demand(requested=8, measured=0, told=0, pending=0, held=8, headroom=4, blind=False)


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        pytest.param({}, 8, id="what pods request"),
        pytest.param({"measured": 10}, 10, id="what they use, over the target"),
        pytest.param({"measured": 99}, 12, id="never beyond what is held and the headroom"),
        pytest.param({"told": 20}, 20, id="what the demand topic says"),
        pytest.param({"requested": 30, "told": 20, "measured": 99}, 30, id="the largest of the three"),
    ],
)
def test_demand_is_the_largest_of_three(changes: dict[str, Any], gpus: float) -> None:
    assert replace(BASE, **changes).gpus == gpus


def seen(rig: Rig, pods: Any = ()) -> Look:
    found = look(rig.engine.state, POOL, list(pods), rig.now)
    assert found is not None
    return found


def fleet(**changes: Any) -> Rig:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0, **changes)))
    rig.sync(node("n0"), node("n1"), lent(node("n2")), replica("chat", on="n0", gpus=6))
    return rig


def test_the_demand_of_a_pool() -> None:
    rig = fleet(target_utilisation=0.5)
    rig.busy("n0", utilisation=5.0)
    rig.tell(DemandReported(DemandSample(POOL, 3.5, rig.now)))
    found = seen(rig, [replica("new", gpus=2)]).demand
    assert (found.requested, found.measured, found.told, found.pending, found.held) == (8.0, 10.0, 3.5, 2, 6)
    assert (found.blind, round(found.headroom, 3)) == (False, 2.4)


@pytest.mark.parametrize(("later", "heard"), [(180, True), (181, False)], ids=["fresh", "stale"])
def test_what_is_stale_is_not_demand(later: int, heard: bool) -> None:
    rig = fleet()
    rig.busy("n0", utilisation=7.0)
    rig.tell(DemandReported(DemandSample(POOL, 3.5, rig.now)))
    rig.now += timedelta(seconds=later)
    found = seen(rig).demand
    assert (found.blind, found.told, found.measured) == (not heard, 3.5 * heard, 10.0 * heard)


def test_a_pool_without_any_verdict_is_blind() -> None:
    found = seen(fleet()).demand
    assert (found.blind, found.measured) == (True, 0.0)


def test_partitions_are_fresh_by_themselves() -> None:
    watch, freshness = PoolWatch(policy(), 16), timedelta(minutes=3)
    old = START - timedelta(minutes=4)
    for uid, partition, gpus in (("a", 0, 3.0), ("b", 1, 4.0), ("c", 2, 5.0)):
        watch.count(uid, Verdict(uid, Activity.BUSY, gpus, 8, START, START, partition))
    assert measured_gpus(watch, {0: START, 1: old, 2: START}, START, freshness) == 8.0
    assert measured_gpus(watch, {1: old}, START, freshness) is None
    watch.count("a", None)
    assert measured_gpus(watch, {0: START}, START, freshness) is None


@pytest.mark.parametrize(
    ("changes", "total"),
    [({}, 5.0), ({"utilisation": None}, 0.0), ({"activity": Activity.UNKNOWN}, 0.0), ({"partition": 3}, 5.0)],
    ids=["replaces the one before", "without a number", "unknown", "from another partition"],
)
def test_a_nodes_newest_verdict_counts(changes: dict[str, Any], total: float) -> None:
    watch = PoolWatch(policy(), 16)
    watch.count("a", Verdict("a", Activity.BUSY, 3.0, 8, START, START))
    watch.count("a", replace(Verdict("a", Activity.BUSY, 5.0, 8, START, START), **changes))
    assert sum(entry.total for entry in watch.measured.values()) == total
    assert sum(entry.nodes for entry in watch.measured.values()) == (1 if total else 0)


def test_the_demand_topic_may_be_silent() -> None:
    assert told_gpus(PoolWatch(policy(), 16), START, timedelta(minutes=3)) == 0.0


# -- whose pods ----------------------------------------------------------------------------------------------


def test_a_waiting_pod_belongs_to_the_first_inference_pool_that_its_terms_accept() -> None:
    rig = Rig(policy(pool_policy(), pool_policy("infer-l20"), pool_policy("empty")))
    rig.see(node("n0"), node("l0", pool="infer-l20", labels={"gpu-model": "L20"}), node("t0", pool="train-a100"))
    either, l20 = ((Requirement("gpu-model", "In", (*names,)),) for names in (("A100", "L20"), ("L20",)))
    state = rig.engine.state
    rig.see(
        replica("old", node_terms=(either,), created_at=START - timedelta(hours=9)),
        replica("new", node_terms=(either,)),
        replica("small", node_terms=(l20,)),
        replica("nowhere", node_terms=((Requirement("gpu-model", "In", ("H100",)),),)),
        *gang("training"),
    )
    homes = Homes()
    pools = sorted({*state.inventory.members, *state.policy.pools})
    found = {pool: homes.waiting(pool, state.inventory, state.policy) for pool in pools}
    assert {pool: [pod.name for pod in pods] for pool, pods in found.items() if pods} == {
        POOL: ["old", "new"], "infer-l20": ["small"],
    }  # fmt: skip


def test_homes_are_looked_up_again_when_labels_change() -> None:
    rig, homes = Rig(), Homes()
    pod, state = replica("chat"), rig.engine.state
    assert homes.of(pod, state.inventory, state.policy) is None
    rig.see(node("n0"))
    assert homes.of(pod, state.inventory, state.policy) == POOL


# -- what stands ready ---------------------------------------------------------------------------------------


def test_ready_are_usable_nodes_at_home() -> None:
    rig = fleet()
    rig.see(node("n3", cordoned=True))
    assert (seen(rig).ready, seen(rig).returning) == (16, 0)


def test_a_node_that_is_being_lent_is_not_ready() -> None:
    rig = fleet()
    ledger.adopt(rig.engine.state, plan_of(LEND, method=Method.LEND), rig.now)
    assert seen(rig).ready == 8


def test_a_node_on_its_way_home_is_returning() -> None:
    rig = fleet()
    steps = [replace(step, node="uid-n2", node_name="n2", loan="loan-n2") for step in (HOME[0], HOME[2])]
    ledger.adopt(rig.engine.state, plan_of(*steps), rig.now)
    assert (seen(rig).ready, seen(rig).returning) == (16, 8)


def test_a_pod_that_fits_a_node_on_its_way_home_has_no_room_now_but_is_provided_for() -> None:
    rig = fleet()
    rig.see(replica("full", on="n1"))
    steps = [replace(step, node="uid-n2", node_name="n2", loan="loan-n2") for step in (HOME[0], HOME[2])]
    ledger.adopt(rig.engine.state, plan_of(*steps), rig.now)
    pods = [replica("one"), replica("two")]
    found = seen(rig, pods)
    assert ([pod.name for pod in found.unmet_now], [pod.name for pod in found.unmet]) == (["one", "two"], ["two"])


def test_a_plan_that_waits_for_a_person_brings_nothing_home() -> None:
    rig = fleet()
    steps = [replace(step, node="uid-n2", node_name="n2", loan="loan-n2") for step in (HOME[0], HOME[2])]
    ledger.adopt(rig.engine.state, plan_of(*steps, awaits_approval=True), rig.now)
    assert seen(rig).returning == 0


def test_a_virtual_loan_takes_ready_gpus_in_the_ledger_and_no_room_from_pods() -> None:
    rig = fleet(mode=Mode.SHADOW)
    step = replace(LEND, node="uid-n1", node_name="n1")
    ledger.adopt(rig.engine.state, plan_of(step, method=Method.LEND, mode=Mode.SHADOW), rig.now)
    found = seen(rig, [replica("one")])
    assert (found.ready, found.unmet_now) == (8, ())


def test_what_is_lendable_is_the_least_spare_of_the_dwell_less_what_is_away() -> None:
    rig, spare = fleet(), []
    for minute in range(21):
        if minute == 5:
            rig.see(replica("burst", on="n1", gpus=4))
        if minute == 6:
            rig.lose("pod", "uid-burst")
        found = seen(rig)
        spare.append(16 + 8 - found.demand.gpus - found.demand.headroom)
        rig.now += timedelta(minutes=1)
    assert found.lendable == min(spare) - 8
    assert spare.index(min(spare)) == 5


def test_nothing_is_lendable_before_a_whole_dwell_was_watched() -> None:
    assert seen(fleet()).lendable == -8


def test_a_pool_that_the_policy_does_not_know_is_not_looked_at() -> None:
    assert look(Rig().engine.state, "unknown", [], START) is None


def test_the_taints_of_a_node_at_home() -> None:
    item = node("n0", taints=(Taint("rack"), Taint(CLOSING), Taint(ON_LOAN, "training")))
    assert owner_taints(item, OWNER_TAINT) == (Taint("rack"), OWNER_TAINT)
    assert owner_taints(node("n0"), OWNER_TAINT) == (OWNER_TAINT,)
    assert owner_taints(item, None) == (Taint("rack"),)
    assert (empty_room(item, None).free, empty_room(item, None).guests) == (8, [])


def test_a_heartbeat_keeps_what_it_covers_fresh() -> None:
    rig = fleet()
    rig.tell(VerdictGiven(Verdict("uid-n0", Activity.BUSY, 7.0, 8, rig.now, rig.now, 2)))
    rig.now += timedelta(minutes=10)
    rig.tell(HeartbeatHeard(Heartbeat("w", rig.now, (1,), 1, 0)))
    assert seen(rig).demand.blind
    rig.tell(HeartbeatHeard(Heartbeat("w", rig.now, (2,), 1, 0)))
    assert not seen(rig).demand.blind


def test_a_picture_that_fills_over_minutes_teaches_no_rise_of_demand() -> None:
    """Or the first lists after a start would be the steepest rise ever seen, and hold back every node for a day."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.see(*(node(f"n{number}") for number in range(4)))
    rig.pass_time()
    rig.sync(*(replica(f"chat-{number}", on=f"n{number}", gpus=8) for number in range(3)))
    rig.watch(60)
    assert seen(rig).demand.headroom <= 0.1 * 32
