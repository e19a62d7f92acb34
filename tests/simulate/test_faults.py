"""Trouble on request: each kind begins, is visible as it would be in a cluster, and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rebalancer.core.facts import Node, Taint
from rebalancer.core.protocol.calls import AnswerKind
from rebalancer.core.stimuli import FactDeleted, FactObserved
from rebalancer.core.telemetry import NodeSample
from rebalancer.simulate.cluster import SimulatedCluster
from tests.simulate.worlds import evict, job, lend, pods_of, steps, take_back, world

OWNED = Taint("workload", "inference")


def faulty(kind: str, at: float = 60, seconds: float = 120, **more: Any) -> SimulatedCluster:
    return world(jobs=[job()], faults=[{"kind": kind, "at": at, "seconds": seconds, **more}])


def sampled(cluster: SimulatedCluster, number: int) -> list[dict[str, NodeSample]]:
    """Samples by node name, step by step."""
    seen = []
    for _ in range(number):
        cluster.step()
        seen.append({sample.node_name: sample for sample in cluster.samples()})
    return seen


def of_nodes(told: Sequence[FactObserved | FactDeleted]) -> list[Node]:
    return [item.fact for item in told if isinstance(item, FactObserved) and isinstance(item.fact, Node)]


def test_a_silent_exporter_says_nothing_and_the_others_go_on() -> None:
    seen = sampled(faulty("exporter-silent", node="infer-a100-01"), 5)
    assert ["infer-a100-01" in step for step in seen] == [False, False, True, True, True]
    assert all("infer-a100-00" in step for step in seen)


def test_silence_of_all_leaves_no_sample() -> None:
    assert [len(step) for step in sampled(faulty("exporter-silent"), 4)] == [0, 0, 4, 4]


def test_a_frozen_exporter_repeats_itself_under_fresh_times() -> None:
    cluster = faulty("exporter-frozen", at=90, node="infer-a100-01")
    seen = [step["infer-a100-01"] for step in sampled(cluster, 5)]
    assert seen[0].devices == seen[1].devices == seen[2].devices
    assert seen[2].devices != seen[3].devices
    assert len({sample.at for sample in seen}) == 5


def test_an_idle_exporter_never_repeats_itself() -> None:
    seen = [step["infer-a100-02"] for step in sampled(world(), 5)]
    assert len({sample.devices for sample in seen}) == 5
    assert max(device.engine_active or 0.0 for sample in seen for device in sample.devices) == 0.0


def test_a_lost_node_takes_its_pods_along_and_comes_back_as_another() -> None:
    cluster = faulty("node-lost", at=240, seconds=180, node="train-a100-00")
    before = cluster.store.nodes["train-a100-00"].uid
    steps(cluster, 5)
    assert "train-a100-00" not in cluster.store.nodes
    assert not any(pod.node for pod in pods_of(cluster, "tune"))
    steps(cluster, 3)
    assert cluster.store.nodes["train-a100-00"].uid != before


def test_a_replaced_node_has_the_same_name_and_another_uid() -> None:
    cluster = faulty("node-replaced", at=60, seconds=0, node="infer-a100-02", delay_seconds=45)
    before = cluster.store.nodes["infer-a100-02"].uid
    steps(cluster, 1)
    assert "infer-a100-02" not in cluster.store.nodes
    steps(cluster, 1)
    assert cluster.store.nodes["infer-a100-02"].uid != before


def test_a_cordoned_node_is_opened_again() -> None:
    cluster = faulty("node-cordoned", node="infer-a100-00")
    steps(cluster, 1)
    assert cluster.store.nodes["infer-a100-00"].cordoned is True
    steps(cluster, 2)
    assert cluster.store.nodes["infer-a100-00"].cordoned is False


def test_the_first_lent_node_can_be_meant() -> None:
    cluster = faulty("node-not-ready", at=100, node="@lent")
    steps(cluster, 1)
    lend(cluster, "infer-a100-02")
    steps(cluster, 1)
    assert [node.name for node in cluster.store.nodes.values() if not node.ready] == ["infer-a100-02"]


def test_after_a_watch_gap_all_that_exists_is_told_and_all_that_vanished_too() -> None:
    cluster = faulty("watch-gap", at=120, seconds=240)
    assert cluster.take_snapshot_due() is True
    steps(cluster, 1)
    cluster.drain()
    pod = pods_of(cluster, "tune")[0]
    steps(cluster, 1)
    evict(cluster, pod)
    steps(cluster, 3)
    assert list(cluster.drain()) == []
    steps(cluster, 2)
    told = cluster.drain()
    assert pod.uid in [item.uid for item in told if isinstance(item, FactDeleted)]
    assert len(of_nodes(told)) == 4
    assert cluster.take_snapshot_due() is True
    assert cluster.take_snapshot_due() is False


def test_the_first_drain_tells_everything_unless_a_full_list_was_taken() -> None:
    one, two = world(), world()
    two.take_snapshot_due()
    assert len(of_nodes(one.drain())) == 4
    assert list(two.drain()) == []
    assert len(two.listing("node")) == 4


def test_duplicates_come_twice_and_change_nothing_else() -> None:
    cluster = faulty("facts-duplicated", at=1, seconds=3600)
    cluster.take_snapshot_due()
    steps(cluster, 1)
    told = list(cluster.drain())
    assert told
    assert told[::2] == told[1::2]


def test_late_facts_come_later_with_their_own_times() -> None:
    late, clean = faulty("facts-late", at=1, seconds=3600, delay_seconds=120), world(jobs=[job()])
    late.take_snapshot_due()
    clean.take_snapshot_due()
    steps(late, 1)
    assert list(late.drain()) == []
    steps(late, 2)
    steps(clean, 1)
    assert list(late.drain()) == list(clean.drain())


def test_reordered_facts_are_the_same_facts() -> None:
    mixed = world(jobs=[job(pods=2, gpus=4)], faults=[{"kind": "facts-reordered", "at": 1}])
    clean = world(jobs=[job(pods=2, gpus=4)])
    for cluster in (mixed, clean):
        cluster.take_snapshot_due()
        steps(cluster, 2)
    one, two = list(mixed.drain()), list(clean.drain())
    assert one != two
    assert sorted(map(repr, one)) == sorted(map(repr, two))


def test_an_outsider_puts_his_taint_back_a_second_later_until_he_tires() -> None:
    cluster = faulty("outsider-taint", at=60, seconds=300, node="infer-a100-00", taint="workload=inference")
    steps(cluster, 1)
    assert lend(cluster, "infer-a100-00").kind is AnswerKind.OK
    steps(cluster, 1)
    assert OWNED in cluster.store.nodes["infer-a100-00"].taints
    steps(cluster, 5)
    lend(cluster, "infer-a100-00")
    steps(cluster, 2)
    assert OWNED not in cluster.store.nodes["infer-a100-00"].taints


def test_kafka_is_away_for_as_long_as_declared() -> None:
    cluster = faulty("kafka-away")
    seen = []
    for _ in range(4):
        cluster.step()
        seen.append(cluster.kafka_away())
    assert seen == [True, True, False, False]


def test_a_hanging_finalizer_holds_a_pod_beyond_its_grace() -> None:
    cluster = faulty("finalizer-hangs", at=120, seconds=600, target="research/tune")
    steps(cluster, 2)
    pod = pods_of(cluster, "tune")[0]
    evict(cluster, pod)
    steps(cluster, 5)
    assert pod.uid in cluster.store.pods
    steps(cluster, 6)
    assert pod.uid not in cluster.store.pods


def test_a_budget_closes_and_opens_again() -> None:
    gang = job(budget={"min_available": 0})
    fault = {"kind": "budget-closed", "at": 120, "seconds": 60, "target": "research/tune"}
    cluster = world(jobs=[gang], faults=[fault])
    steps(cluster, 2)
    assert evict(cluster, pods_of(cluster, "tune")[0]).kind is AnswerKind.BLOCKED
    steps(cluster, 1)
    assert evict(cluster, pods_of(cluster, "tune")[0]).kind is AnswerKind.OK


def test_brakes_are_set_and_put_back_and_people_may_use_them_too() -> None:
    cluster = faulty("control", changes={"paused": True, "by": "ops", "modes": {"infer-a100": "shadow"}})
    steps(cluster, 1)
    paused = cluster.store.control
    steps(cluster, 2)
    released = cluster.store.control
    cluster.control(recall_nodes=["infer-a100-00"], by="ops")
    assert (paused.paused, paused.modes, released.paused) == (True, {"infer-a100": "shadow"}, False)
    assert cluster.store.control.recall_nodes == ("infer-a100-00",)


def test_a_squatter_takes_a_gpu_of_a_lent_node_without_having_opted_in() -> None:
    cluster = faulty("squatter", at=60, node="infer-a100-02")
    steps(cluster, 1)
    stray = pods_of(cluster, "stray")[0]
    assert (stray.node, stray.held, stray.reclaimable) == ("infer-a100-02", 1, False)
    steps(cluster, 3)
    assert pods_of(cluster, "stray") == []


def test_take_back_restores_the_owner() -> None:
    cluster = world()
    lend(cluster, "infer-a100-00")
    take_back(cluster, "infer-a100-00")
    assert cluster.store.nodes["infer-a100-00"].taints == (OWNED,)
    assert cluster.store.nodes["infer-a100-00"].loan is None
