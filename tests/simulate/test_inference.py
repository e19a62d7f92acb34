"""Services: autoscaled by load, emptied node by node, and the shape of their load."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.loads import Curve
from tests.simulate.worlds import CHAT, evict, pods_of, steps, world

FALLING = {"falling": {"20:00": 1.0, "20:20": 1.0, "20:21": 0.25, "23:00": 0.25}}


def falling(**service: Any) -> SimulatedCluster:
    spec = {**CHAT, "gpus": 2, "maximum": 4, "peak_gpus": 8, "curve": "falling", "spread": False, **service}
    return world(curves=FALLING, services=[spec])


@pytest.mark.parametrize(
    ("second", "share"),
    [(8 * 3600.0, 0.5), (7 * 3600.0, 0.0), (9 * 3600.0, 1.0), (23 * 3600.0, 0.5), (1 * 3600.0, 0.4)],
)
def test_a_curve_is_linear_between_its_points_and_over_midnight(second: float, share: float) -> None:
    curve = Curve({"07:00": 0.0, "09:00": 1.0, "21:00": 0.6, "22:00": 0.55})
    assert curve.at(second) == pytest.approx(share, abs=0.06)


def test_replicas_follow_the_load_down_only_after_the_stabilisation() -> None:
    cluster = falling(stabilise_seconds=300.0)
    steps(cluster, 25)
    assert len(pods_of(cluster, "chat")) == 4
    steps(cluster, 4)
    assert len(pods_of(cluster, "chat")) == 1


def test_replicas_never_fall_below_the_minimum() -> None:
    cluster = falling(minimum=3, stabilise_seconds=60.0)
    steps(cluster, 40)
    assert len(pods_of(cluster, "chat")) == 3


def test_a_service_that_never_scales_in_keeps_what_it_has_grown_to() -> None:
    cluster = falling(scale_in=False, stabilise_seconds=60.0)
    steps(cluster, 60)
    assert len(pods_of(cluster, "chat")) == 4


def test_scale_in_empties_the_emptiest_node_first() -> None:
    big = {**CHAT, "name": "anchor", "gpus": 6, "peak_gpus": 6}
    small = {**CHAT, "gpus": 2, "maximum": 2, "peak_gpus": 4, "curve": "falling", "stabilise_seconds": 60.0}
    cluster = world(curves={**FALLING, "flat": {"00:00": 1.0}}, services=[big, small])
    assert len({pod.node for pod in cluster.store.pods.values()}) == 2
    steps(cluster, 30)
    assert len({pod.node for pod in cluster.store.pods.values()}) == 1


def test_a_spike_rises_over_its_time_and_ends() -> None:
    spike = {"service": "chat", "at": 600, "seconds": 900, "gpus": 16, "rise_seconds": 120}
    cluster = world(services=[{**CHAT, "stabilise_seconds": 60.0}], spikes=[spike])
    seen = []
    for _ in range(40):
        cluster.step()
        seen.append(len(pods_of(cluster, "chat")))
    assert seen[9] == 1
    assert seen[12] == 3
    assert seen[30] == 1


def test_utilisation_is_the_load_over_what_is_in_service_at_the_target() -> None:
    cluster = world(services=[{**CHAT, "peak_gpus": 4}])
    steps(cluster, 1)
    sample = next(sample for sample in cluster.samples() if any(device.pod for device in sample.devices))
    total = sum(device.engine_active or 0.0 for device in sample.devices)
    assert total / 0.70 == pytest.approx(4.0, rel=0.1)


def test_an_evicted_replica_is_made_anew() -> None:
    cluster = world()
    before = pods_of(cluster, "chat")[0]
    evict(cluster, before)
    steps(cluster, 3)
    after = pods_of(cluster, "chat")
    assert [pod.ready for pod in after] == [True]
    assert after[0].uid != before.uid
