"""What exporters say of honest nodes, natively and as text."""

from __future__ import annotations

import asyncio

from rebalancer.core.ports import World
from rebalancer.simulate.cluster import SimulatedCluster
from tests.simulate.worlds import job, steps, world


def busy_world() -> SimulatedCluster:
    cluster = world(jobs=[job(pods=1, gpus=4)])
    steps(cluster, 5)
    return cluster


def test_a_training_node_is_busy_where_its_gang_runs_and_idle_elsewhere() -> None:
    sample = next(item for item in busy_world().samples() if item.node_name == "train-a100-00")
    levels = [device.engine_active or 0.0 for device in sample.devices]
    assert sample.expected == len(levels) == 8
    assert min(levels[:4]) > 0.8
    assert max(levels[4:]) == 0.0


def test_energy_only_grows() -> None:
    cluster = busy_world()
    seen = []
    for _ in range(3):
        cluster.step()
        seen.append([device.energy or 0.0 for device in cluster.samples()[0].devices])
    assert all(a < b < c for a, b, c in zip(*seen, strict=True))


def test_pages_carry_the_same_values_as_samples() -> None:
    one, two = busy_world(), busy_world()
    sample = next(item for item in one.samples() if item.node_name == "train-a100-00")
    lines = two.pages()["train-a100-00"].splitlines()
    row = next(line for line in lines if line.startswith('DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2"'))
    assert float(row.rsplit(" ", 1)[1]) == sample.devices[2].engine_active
    assert 'Hostname="train-a100-00"' in row
    assert 'namespace="research"' in row
    assert sum(1 for line in lines if line.startswith("# TYPE")) == 7


def test_the_demand_topic_tells_the_present_load() -> None:
    cluster = world(demand_topic=["infer-a100"])
    steps(cluster, 1)
    assert [(item.pool, item.gpus, item.at) for item in cluster.demands()] == [("infer-a100", 8.0, cluster.moment)]
    assert list(world().demands()) == []


def test_the_world_can_be_driven_through_the_port() -> None:
    cluster = busy_world()
    port: World = cluster

    async def look() -> tuple[int, int]:
        return len(await port.snapshot("node")), len(await port.changes())

    nodes, changes = asyncio.run(look())
    assert nodes == 4
    assert changes > nodes
    assert cluster.step_number == 5
