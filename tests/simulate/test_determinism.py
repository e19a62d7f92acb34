"""The same seed is the same day: on any hash seed, with a driver that acts or without."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.demo import demo
from tests.simulate.worlds import evict, lend

STEPS = 90


def fingerprint(seed: int, name: str = "four_hours") -> str:
    """A hash over everything that a driver sees, while nodes are lent and gangs evicted on the way."""
    cluster = SimulatedCluster(demo(seed, name=name))
    seen = hashlib.sha256()
    for step in range(STEPS):
        cluster.step()
        seen.update(repr(list(cluster.drain())).encode())
        seen.update(repr(cluster.samples()).encode())
        seen.update(repr(cluster.demands()).encode())
        _meddle(cluster, step)
    return seen.hexdigest()


def _meddle(cluster: SimulatedCluster, step: int) -> None:
    if step == 50:
        lend(cluster, "infer-a100-07")
    for pod in [pod for pod in cluster.store.pods.values() if step == 70 and pod.reclaimable and pod.node]:
        evict(cluster, pod)


def test_the_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    assert fingerprint(1) == fingerprint(1)
    assert fingerprint(1) != fingerprint(2)


def test_the_stream_does_not_depend_on_the_hash_seed() -> None:
    script = "from tests.simulate.test_determinism import fingerprint; print(fingerprint(1))"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for seed in ("0", "4242")
    }
    assert found == {fingerprint(1)}


def test_loads_do_not_depend_on_what_is_done_to_the_cluster() -> None:
    still, used = (SimulatedCluster(demo(1, name="four_hours")) for _ in range(2))
    for step in range(STEPS):
        still.step()
        used.step()
        _meddle(used, step)
    assert used.books.series.asked == still.books.series.asked
