"""The clairvoyant optimum against cases worked out by hand, and against trying every set of loans."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.simulate.clairvoyant import clairvoyant, floor_of, run_lengths, spare_nodes

ALWAYS = np.ones(6, dtype=np.bool_)


@pytest.mark.parametrize(
    ("demand", "cost", "permitted", "expected"),
    [
        pytest.param([0, 0, 0, 0, 0, 0], 0.0, ALWAYS, 8 * 3 * 360, id="nothing asked for: all but the floor, always"),
        pytest.param([0, 0, 0, 0, 0, 0], 60.0, ALWAYS, 8 * 3 * 300, id="each loan pays its cost once"),
        pytest.param([32, 32, 32, 32, 32, 32], 0.0, ALWAYS, 0, id="everything asked for: nothing to lend"),
        pytest.param([25, 25, 24, 24, 25, 25], 0.0, ALWAYS, 8 * 120, id="a node is spare only when it is wholly so"),
        pytest.param([16, 16, 32, 32, 16, 16], 60.0, ALWAYS, 8 * 2 * (60 + 60), id="two runs are two loans each"),
        pytest.param([16, 16, 24, 24, 16, 16], 60.0, ALWAYS, 8 * (300 + 60 + 60), id="one node stays through"),
        pytest.param([16, 32, 16, 32, 16, 32], 60.0, ALWAYS, 0, id="runs that do not pay are left"),
        pytest.param([16, 32, 16, 32, 16, 32], 90.0, ALWAYS, 0, id="nor is anything paid for them"),
        pytest.param(
            [0, 0, 0, 0, 0, 0], 0.0, np.array([0, 0, 1, 1, 0, 0], dtype=np.bool_), 8 * 3 * 120, id="only when permitted"
        ),
        pytest.param([40, 40, 40, 40, 40, 40], 0.0, ALWAYS, 0, id="more asked for than there is"),
    ],
)
def test_the_optimum_of(demand: list[float], cost: float, permitted: np.ndarray, expected: float) -> None:
    got = clairvoyant(np.array(demand, dtype=np.float64), 4, 8, 1, permitted, dt=60.0, cost=cost)
    assert got == pytest.approx(expected)


@settings(max_examples=40, deadline=None)  # three nodes with every pattern take their time on a busy machine
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.5]))
def test_no_choice_of_loans_brings_more(spare: list[int], cost: float) -> None:
    """One GPU a node and one second a step; every node's every on-off pattern is tried."""
    demand = 3.0 - np.array(spare, dtype=np.float64)
    got = clairvoyant(demand, 3, 1, 0, np.ones(len(spare), dtype=np.bool_), dt=1.0, cost=cost)
    patterns = [np.array(bits, dtype=np.bool_) for bits in product((False, True), repeat=len(spare))]
    best: dict[tuple[int, ...], float] = {tuple([0] * len(spare)): 0.0}
    for _ in range(3):
        grown: dict[tuple[int, ...], float] = {}
        for used, worth in best.items():
            for bits in patterns:
                total = tuple(np.array(used) + bits)
                if all(number <= limit for number, limit in zip(total, spare, strict=True)):
                    value = worth + float((run_lengths(bits) - cost).sum())
                    grown[total] = max(grown.get(total, value), value)
        best = grown
    assert got == pytest.approx(max(best.values()))


@pytest.mark.parametrize(
    ("nodes", "least", "share", "floor"),
    [(16, 1, 0.20, 4), (3, 1, 0.20, 1), (10, 1, 0.20, 2), (10, 5, 0.20, 5), (2, 5, 0.0, 2), (10, 0, 0.0, 0)],
)
def test_the_floor_is_the_larger_of_a_number_and_a_share(nodes: int, least: int, share: float, floor: int) -> None:
    assert floor_of(nodes, least, share) == floor


def test_spare_nodes_never_go_below_the_floor_or_below_nothing() -> None:
    spare = spare_nodes(np.array([0.0, 31.0, 99.0, 16.0]), 4, 8, 1, np.array([True, True, True, False]))
    assert spare.tolist() == [3, 0, 0, 0]
