"""The books: loans from node marks, work on lent nodes, waits, shortage beyond the run without lending."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.core.facts import Taint
from rebalancer.core.units import CLOSING
from rebalancer.simulate.cluster import SimulatedCluster
from tests.simulate.worlds import CHAT, evict, job, lend, patch, pods_of, steps, take_back, world


def lent_out(minutes: float = 60, **overrides: Any) -> SimulatedCluster:
    """Own training node full, one node lent, a gang of one on it."""
    jobs = [job("own", at=-200.0), job("tune", at=0.0)]
    cluster = world(**{"jobs": jobs, **overrides})
    lend(cluster, "infer-a100-02", minutes)
    steps(cluster, 10)
    return cluster


def close(cluster: SimulatedCluster, name: str) -> None:
    node = cluster.store.nodes[name]
    patch(cluster, node, (*node.taints, Taint(CLOSING)), node.loan)


def test_a_loan_lasts_from_the_lending_patch_to_the_restoring_one() -> None:
    cluster = lent_out()
    take_back(cluster, "infer-a100-02")
    steps(cluster, 5)
    figures = cluster.summary()
    assert figures["gpu_hours_lent"] == pytest.approx(8 * 600 / 3600)
    assert (figures["loans_opened"], figures["loans_open_at_end"]) == (1, 0)


def test_a_loan_does_not_count_while_its_node_cannot_be_used() -> None:
    fault = {"kind": "node-cordoned", "at": 120, "seconds": 240, "node": "infer-a100-02"}
    figures = lent_out(faults=[fault]).summary()
    assert figures["gpu_hours_lent"] == pytest.approx(8 * (600 - 240) / 3600)


def test_the_return_is_timed_from_closed_to_restored() -> None:
    cluster = lent_out()
    close(cluster, "infer-a100-02")
    evict(cluster, pods_of(cluster, "tune")[0])
    steps(cluster, 2)
    take_back(cluster, "infer-a100-02")
    assert cluster.summary()["slowest_return_seconds"] == 120.0


def test_a_loan_whose_closing_was_called_off_has_not_begun_to_return() -> None:
    cluster = lent_out()
    close(cluster, "infer-a100-02")
    steps(cluster, 3)
    lend(cluster, "infer-a100-02")
    close(cluster, "infer-a100-02")
    steps(cluster, 1)
    take_back(cluster, "infer-a100-02")
    assert cluster.summary()["returns_seconds"] == [60.0]


def test_load_drain_and_work_on_lent_nodes_are_booked() -> None:
    cluster = lent_out()
    evict(cluster, pods_of(cluster, "tune")[0])
    steps(cluster, 1)
    figures = cluster.summary()
    first, again_since_second_51 = 30, 9
    assert figures["gpu_hours_loading"] == pytest.approx(8 * (first + again_since_second_51) / 3600)
    assert figures["gpu_hours_draining"] == pytest.approx(8 * 20 / 3600)
    assert figures["gpu_hours_trained_on_loan"] == pytest.approx(8 * (600 - 31) / 3600)
    assert (figures["gangs_evicted"], figures["pods_evicted"], figures["gangs_split"]) == (1, 1, 0)


def test_what_is_still_out_at_its_due_time_is_overdue_with_its_trainers() -> None:
    figures = lent_out(minutes=5).summary()
    assert (figures["loans_overdue"], figures["trainers_left_at_due"]) == (1, 1)


def test_a_renewed_loan_is_due_at_its_new_time_only() -> None:
    cluster = lent_out(minutes=15)
    node = cluster.store.nodes["infer-a100-02"]
    assert node.loan is not None
    later = replace(node.loan, due=node.loan.due.replace(hour=21, minute=0))
    patch(cluster, node, node.taints, later)
    steps(cluster, 10)
    assert cluster.summary()["loans_overdue"] == 0
    steps(cluster, 60)
    assert cluster.summary()["loans_overdue"] == 1


def test_a_node_that_goes_away_ends_its_loan_without_a_return_time() -> None:
    fault = {"kind": "node-lost", "at": 300, "node": "infer-a100-02"}
    figures = lent_out(faults=[fault]).summary()
    assert (figures["loans_open_at_end"], figures["returns_seconds"]) == (0, [])


def test_shortage_is_what_lending_took_from_inference() -> None:
    spike = {"service": "chat", "at": 300, "seconds": 600, "gpus": 16}
    cluster = world(spikes=[spike], services=[{**CHAT, "start_seconds": 59.0}])
    for name in ("infer-a100-01", "infer-a100-02"):
        lend(cluster, name)
    steps(cluster, 20)
    figures = cluster.summary()
    assert figures["shortage"] > 0.3
    assert figures["shortage_outside_spike"] < figures["shortage"]
    assert figures["max_wait_in_spike_seconds"] > 500


def test_a_run_that_touches_nothing_has_no_shortage_though_replicas_take_time_to_start() -> None:
    spike = {"service": "chat", "at": 300, "seconds": 600, "gpus": 16}
    cluster = world(spikes=[spike])
    steps(cluster, 20)
    figures = cluster.summary()
    assert (figures["shortage"], figures["max_wait_in_spike_seconds"], figures["capture"]) == (0.0, 0.0, 0.0)


def test_capture_is_what_was_lent_without_its_losses_over_the_optimum() -> None:
    cluster = lent_out()
    steps(cluster, 110)
    figures = cluster.summary()
    spare, seconds, cost = 2, 7200, 30 + 20
    assert figures["gpu_hours_optimum"] == pytest.approx(spare * 8 * (seconds - cost) / 3600)
    expected = (8 * 7200 - 8 * 30) / (spare * 8 * (seconds - cost))
    assert figures["capture"] == pytest.approx(expected, rel=0.02)
