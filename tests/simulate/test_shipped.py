"""The shipped days as they are meant: big enough, calm without an actor, with a policy that is legal."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from rebalancer.core.policy import problems
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.simulate.cluster import SimulatedCluster, live_without
from rebalancer.simulate.demo import demo
from rebalancer.simulate.files import shipped
from rebalancer.simulate.policies import policy_of
from rebalancer.simulate.reckoning import permitted_steps
from rebalancer.simulate.scenario import Scenario

DAYS = ("demo", "evening_peak", "four_hours")


def local(scenario: Scenario, step: int) -> time:
    """Local time of day at the beginning of a step."""
    moment = scenario.start.timestamp() + step * scenario.step_seconds
    return datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(scenario.zone)).time()


def test_these_days_are_shipped() -> None:
    assert shipped() == DAYS


@pytest.mark.parametrize("name", DAYS)
def test_a_shipped_day_has_a_legal_policy(name: str) -> None:
    policy = policy_of(demo(name=name), Mode.SHADOW)
    assert problems(policy) == ()
    assert {pool.mode for pool in policy.pools.values()} == {Mode.SHADOW}


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_an_actor_no_replica_ever_waits_for_a_place(name: str, seed: int) -> None:
    books = live_without(demo(seed, name=name))
    waited = [book.waited(1e9) for book in books.waits.values() if book.created >= 0]
    assert len(waited) > 5
    assert max(waited) == 0.0


def test_the_demo_fleet_is_the_one_promised() -> None:
    cluster = SimulatedCluster(demo())
    nodes = list(cluster.store.nodes.values())
    assert {node.pool for node in nodes} == {"train-h100", "train-a100", "infer-a100", "infer-l20", "cpu-batch"}
    assert sum(1 for node in nodes if node.gpus == 8) == 48
    training = [pod for pod in cluster.store.pods.values() if pod.owner is OwnerClass.TRAINING]
    declared = {value for pod in training for term in pod.node_terms for item in term for value in item.values}
    assert {"A100", "H100", "L20"} <= declared


def test_the_demo_wants_lent_nodes_all_night_and_needs_them_back_in_the_spike() -> None:
    cluster = SimulatedCluster(demo())
    wanted, demand = [], []
    for _ in range(cluster.scenario.steps):
        cluster.step()
        pods = cluster.store.pods.values()
        wanted.append(sum(1 for pod in pods if pod.pending and pod.reclaimable))
        demand.append(cluster.books.series.asked["infer-a100"][-1])
    times = [local(cluster.scenario, step) for step in range(len(demand))]
    night = [gpus for gpus, clock in zip(demand, times, strict=True) if time(1) <= clock < time(3)]
    spike = [gpus for gpus, clock in zip(demand, times, strict=True) if time(3, 5) <= clock < time(3, 25)]
    assert min(wanted) > 0
    assert max(night) <= 48
    assert min(spike) >= max(night) + 32


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("demo", time(20), time(6, 44)), ("evening_peak", time(9), time(15, 59)), ("four_hours", time(22), time(0, 59))],
)
def test_lending_is_permitted_from_the_window_to_its_end(name: str, first: time, last: time) -> None:
    scenario = demo(name=name)
    pool = next(pool for pool in scenario.pools if pool.lends_to)
    permitted = permitted_steps(scenario, pool).nonzero()[0]
    assert (local(scenario, int(permitted[0])), local(scenario, int(permitted[-1]))) == (first, last)


def test_length_and_seed_may_be_chosen() -> None:
    scenario = demo(7, 0.5)
    assert (scenario.seed, scenario.steps) == (7, 720)
