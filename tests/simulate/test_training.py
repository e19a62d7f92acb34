"""Gangs: progress, checkpoints, evictions, resubmission, and what a split looks like."""

from __future__ import annotations

from datetime import timedelta

from rebalancer.core.facts import PodPhase
from rebalancer.core.plan import Member
from rebalancer.core.protocol.calls import GiveNotice
from rebalancer.simulate.scenario import FaultSpec
from tests.simulate.worlds import evict, job, lend, member, pods_of, steps, world


def test_a_finished_job_holds_nothing_and_its_objects_go() -> None:
    cluster = world(jobs=[job(seconds=300.0)])
    steps(cluster, 6)
    assert [pod.phase for pod in pods_of(cluster, "tune")] == [PodPhase.SUCCEEDED]
    assert cluster.store.used["train-a100-00"] == 0
    steps(cluster, 2)
    assert pods_of(cluster, "tune") == []
    assert cluster.store.groups == {}


def test_a_running_gang_says_when_it_will_end() -> None:
    cluster = world(jobs=[job(seconds=600.0, start_seconds=30.0)])
    steps(cluster, 2)
    pod = pods_of(cluster, "tune")[0]
    assert pod.finishes_at == cluster.scenario.start + timedelta(seconds=631)


def test_an_evicted_gang_comes_back_as_new_pods_of_the_same_workload() -> None:
    cluster = world(jobs=[job(pods=2, gpus=4)])
    steps(cluster, 10)
    before = pods_of(cluster, "tune")
    for pod in before:
        evict(cluster, pod)
    steps(cluster, 3)
    after = pods_of(cluster, "tune")
    assert {pod.workload for pod in after} == {pod.workload for pod in before}
    assert {pod.gang for pod in after}.isdisjoint({pod.gang for pod in before})
    assert {pod.uid for pod in after}.isdisjoint({pod.uid for pod in before})


def test_work_saved_while_leaving_is_kept() -> None:
    cluster = world(jobs=[job(seconds=1200.0, checkpoint_seconds=20.0)])
    steps(cluster, 10)
    evict(cluster, pods_of(cluster, "tune")[0])
    steps(cluster, 3)
    pod = pods_of(cluster, "tune")[0]
    assert pod.finishes_at is not None
    assert (pod.finishes_at - cluster.scenario.start).total_seconds() < 1200 + 30 + 200
    assert cluster.books.lost_gpu_seconds == 0.0


def test_work_since_the_last_checkpoint_is_lost_if_the_grace_is_too_short() -> None:
    cluster = world(jobs=[job(checkpoint_seconds=60.0, checkpoint_period=300.0, start_seconds=29.0)])
    lend(cluster, "infer-a100-01")
    cluster.inject(FaultSpec("node-cordoned", 0, node="train-a100-00"))
    steps(cluster, 8)
    pod = pods_of(cluster, "tune")[0]
    assert pod.checkpointed_at == cluster.scenario.start + timedelta(seconds=330)
    evict(cluster, pod)
    assert cluster.books.lost_gpu_seconds == 150.0 * 8


def test_members_left_behind_hang_and_count_as_a_split_after_more_than_a_step() -> None:
    cluster = world(jobs=[job(pods=2, gpus=4)])
    steps(cluster, 5)
    first, second = pods_of(cluster, "tune")
    evict(cluster, first)
    steps(cluster, 1)
    assert len(cluster.books.gangs_split) == 0
    steps(cluster, 2)
    assert list(cluster.books.gangs_split) == [first.gang]
    assert cluster.store.pods[second.uid].phase is PodPhase.RUNNING
    cluster.step()
    busy = max(device.engine_active or 0.0 for s in cluster.samples() for device in s.devices if "tune" in device.pod)
    assert busy == 0.0


def test_an_elastic_gang_shrinks_goes_on_and_grows_again() -> None:
    cluster = world(jobs=[job(pods=2, gpus=4, min_pods=1)])
    steps(cluster, 5)
    first, second = pods_of(cluster, "tune")
    evict(cluster, first)
    steps(cluster, 1)
    assert cluster.store.pods[second.uid].phase is PodPhase.RUNNING
    steps(cluster, 3)
    assert len(pods_of(cluster, "tune")) == 2
    assert {pod.gang for pod in pods_of(cluster, "tune")} == {first.gang}
    assert cluster.books.gangs_split == {}


def test_a_gang_that_lost_a_node_starts_anew_as_a_whole() -> None:
    cluster = world(jobs=[job(pods=2)])
    lend(cluster, "infer-a100-01")
    steps(cluster, 5)
    lost = next(pod for pod in pods_of(cluster, "tune") if pod.node == "infer-a100-01")
    cluster.inject(FaultSpec("node-lost", 0, node="infer-a100-01"))
    steps(cluster, 4)
    assert {pod.gang for pod in pods_of(cluster, "tune")} == {lost.gang.replace("-0", "-1")}
    assert cluster.books.gangs_evicted == {}


def test_a_gang_that_asked_for_notice_saves_its_work_when_told() -> None:
    cluster = world(jobs=[job(notice_seconds=60, checkpoint_seconds=25.0)])
    steps(cluster, 5)
    pod = pods_of(cluster, "tune")[0]
    told_at = cluster.moment
    members: tuple[Member, ...] = (member(pod),)
    cluster.answer(GiveNotice(pod.gang, members, pod.top_owner, told_at + timedelta(seconds=60), "due"))
    steps(cluster, 1)
    assert cluster.store.pods[pod.uid].checkpointed_at == told_at + timedelta(seconds=25)


def test_a_stream_keeps_its_queue_filled_and_draws_the_same_again() -> None:
    stream = {
        "name": "s", "shapes": [[1, 8, 1], [2, 4, 1]], "hours": [0.2, 0.5], "keep_waiting": 3,
        "template": {"models": ["A100"]},
    }  # fmt: skip
    one, two = world(streams=[stream]), world(streams=[stream])
    steps(one, 30)
    steps(two, 30)
    waiting = {pod.gang for pod in one.store.pods.values() if pod.pending}
    assert len(waiting) >= 3
    assert list(one.store.pods) == list(two.store.pods)
