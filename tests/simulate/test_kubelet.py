"""Times of pods on nodes: start, grace, checkpoint, finalizers, nodes that go away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Pod, PodPhase
from rebalancer.core.stimuli import FactDeleted, FactObserved
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.scenario import FaultSpec
from tests.simulate.worlds import evict, job, pods_of, steps, world


def running(**overrides: Any) -> tuple[SimulatedCluster, Pod]:
    """A world whose single job has run for a while, and its pod."""
    cluster = world(jobs=[job(**overrides)])
    steps(cluster, 10)
    cluster.drain()
    return cluster, pods_of(cluster, "tune")[0]


def left_after(cluster: SimulatedCluster, pod: Pod, *, within: int = 10) -> float:
    """Seconds from now until the pod was told to be gone."""
    begun = cluster.moment
    steps(cluster, within)
    gone = [told for told in cluster.drain() if isinstance(told, FactDeleted) and told.uid == pod.uid]
    return (gone[0].at - begun).total_seconds()


@pytest.mark.parametrize(
    ("grace", "checkpoint", "seconds"),
    [
        pytest.param(30, 20.0, 20.0, id="a checkpoint that fits the grace ends the pod early"),
        pytest.param(30, 45.0, 30.0, id="a checkpoint that does not fit is cut off"),
        pytest.param(300, 90.0, 90.0, id="a long grace lets a long checkpoint finish in a later step"),
        pytest.param(30, 0.0, 0.0, id="nothing to save leaves at once"),
    ],
)
def test_an_evicted_pod_is_gone_when_its_work_or_its_grace_is_over(
    grace: int, checkpoint: float, seconds: float
) -> None:
    cluster, pod = running(grace_seconds=grace, checkpoint_seconds=checkpoint)
    evict(cluster, pod)
    assert cluster.store.pods[pod.uid].deleting_at == cluster.moment + timedelta(seconds=grace)
    assert left_after(cluster, pod) == seconds


def test_a_bound_pod_runs_after_its_start_time_and_the_fact_says_when() -> None:
    cluster = world(jobs=[job(at=0.0, start_seconds=70.0)])
    cluster.take_snapshot_due()
    steps(cluster, 3)
    told = [item for item in cluster.drain() if isinstance(item, FactObserved) and isinstance(item.fact, Pod)]
    ran = [item for item in told if isinstance(item.fact, Pod) and item.fact.phase is PodPhase.RUNNING]
    assert ran[0].at == cluster.scenario.start + timedelta(seconds=71)


def test_a_terminating_pod_holds_its_gpus_until_it_is_gone() -> None:
    cluster, pod = running(grace_seconds=300, checkpoint_seconds=200.0)
    evict(cluster, pod)
    steps(cluster, 2)
    assert cluster.store.used["train-a100-00"] == 8
    steps(cluster, 2)
    assert pod.uid not in cluster.store.pods


def test_a_finalizer_that_hangs_keeps_the_pod_until_it_lets_go() -> None:
    cluster, pod = running(hangs=True)
    evict(cluster, pod)
    steps(cluster, 20)
    assert cluster.store.pods[pod.uid].held == 8
    cluster.inject(FaultSpec("finalizer-released", 0, target=pod.gang))
    assert pod.uid not in cluster.store.pods


def test_pods_on_a_silent_node_are_not_ready_at_once_and_gone_after_five_minutes() -> None:
    cluster, pod = running()
    cluster.inject(FaultSpec("node-not-ready", 0, node="train-a100-00"))
    assert cluster.store.pods[pod.uid].ready is False
    steps(cluster, 4)
    assert pod.uid in cluster.store.pods
    steps(cluster, 2)
    assert pod.uid not in cluster.store.pods


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    cluster, pod = running()
    cluster.inject(FaultSpec("node-not-ready", 0, node="train-a100-00", seconds=120))
    steps(cluster, 8)
    assert cluster.store.pods[pod.uid].ready is True
