"""Headroom: what was seen to rise, what stands in before, and the loop that holds the shortage budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.headroom import (
    TAIL_LEAST,
    TAIL_MOST,
    Headroom,
    return_seconds,
    rises_within,
    upper_quantile,
)

START = datetime(2026, 3, 3, tzinfo=UTC)
BUCKET = timedelta(minutes=1)
DAY = 1440


def pool(capacity: float = 512.0, prior: float = 0.1) -> Headroom:
    return Headroom(BUCKET, timedelta(days=2), prior, capacity)


def watched(demand: list[float], first: datetime = START) -> Headroom:
    headroom = pool()
    for minute, gpus in enumerate(demand):
        headroom.observe(gpus, first + minute * BUCKET)
    return headroom


RISES = {
    "a step up is seen from every bucket within reach": ([0, 0, 0, 5, 5], 2, [0, 5, 5]),
    "a fall is no rise": ([9, 5, 1], 1, [0, 0]),
    "the highest within reach counts, not the last": ([0, 7, 2, 2], 2, [7, 0]),
    "the last buckets' return time is not over": ([0, 0, 9], 2, [9]),
    "a gap is not a fall to nothing": ([5, nan, 6, 6], 2, [1]),
    "a gap with nothing known after it says nothing": ([5, nan, nan, 6], 2, []),
    "one bucket says nothing": ([5], 1, []),
    "nothing says nothing": ([], 3, []),
}


@pytest.mark.parametrize(("maxima", "steps", "rises"), RISES.values(), ids=RISES)
def test_rises_within_the_return_time(maxima: list[float], steps: int, rises: list[float]) -> None:
    found = rises_within(np.array(maxima, dtype=np.float64), steps)
    assert [rise for rise in found if rise > 0] == [rise for rise in rises if rise > 0]
    assert all(rise >= 0 for rise in found)


QUANTILES = {
    "the largest at 1": (1.0, 10.0),
    "one of ten may exceed it at 0.9": (0.9, 9.0),
    "half may exceed the median": (0.5, 5.0),
    "a tail smaller than one sample allows none": (0.999, 10.0),
    "the smallest at 0": (0.0, 1.0),
}


@pytest.mark.parametrize(("quantile", "value"), QUANTILES.values(), ids=QUANTILES)
def test_upper_quantile(quantile: float, value: float) -> None:
    assert upper_quantile(np.arange(1.0, 11.0), quantile) == value


def test_the_quantile_of_nothing_is_nothing() -> None:
    assert upper_quantile(np.array([]), 0.99) == 0.0


def test_before_anything_was_seen_the_prior_stands_in() -> None:
    assert pool().rise(120) == pytest.approx(51.2)


def test_the_prior_fades_over_a_day() -> None:
    half, whole = watched([100.0] * (DAY // 2 + 4)), watched([100.0] * (DAY + 4))
    assert half.rise(120) == pytest.approx(25.6, abs=0.1)
    assert whole.rise(120) == 0.0


def test_what_was_seen_counts_at_once_even_beside_the_prior() -> None:
    assert watched([100.0] * 5 + [300.0] * 5).rise(120) == 200.0


def test_headroom_is_never_more_than_the_pool() -> None:
    headroom = watched([0.0] * 5 + [900.0] * 5)
    assert headroom.rise(120) == 512.0


def test_a_rise_within_a_longer_return_time_is_no_smaller() -> None:
    headroom = watched([float(100 + minute % 60) for minute in range(DAY + 40)])
    found = [headroom.rise(seconds) for seconds in (60, 120, 121, 600, 1800)]
    assert found == sorted(found)
    assert found[:3] == [1.0, 2.0, 3.0]


def test_within_a_bucket_the_largest_holds_and_older_buckets_are_closed() -> None:
    headroom = watched([100.0, 100.0, 100.0])
    headroom.observe(140.0, START + 2 * BUCKET + timedelta(seconds=20))
    headroom.observe(120.0, START + 2 * BUCKET + timedelta(seconds=40))
    headroom.observe(500.0, START)
    memory = headroom.memory("infer-a100", START, ())
    assert memory.history == (100.0, 100.0, 140.0)


def test_buckets_without_observations_are_gaps() -> None:
    headroom = watched([100.0])
    headroom.observe(90.0, START + 3 * BUCKET)
    memory = headroom.memory("infer-a100", START, ())
    assert [isnan(value) for value in memory.history] == [False, True, True, False]
    assert memory.until == START + 3 * BUCKET


def test_a_year_of_silence_costs_no_more_than_the_history() -> None:
    headroom = watched([100.0])
    headroom.observe(90.0, START + timedelta(days=365))
    assert len(headroom.memory("infer-a100", START, ()).history) == 2 * DAY


def test_shortage_above_the_budget_raises_the_quantile_and_below_lowers_it() -> None:
    short, calm = pool(), pool()
    short.account(5_000.0, 400.0 * 3600, 1e-3)
    calm.account(0.0, 400.0 * 3600, 1e-3)
    assert calm.quantile < pool().quantile < short.quantile
    assert short.shortage == pytest.approx(5_000.0 / (400.0 * 3600))


@pytest.mark.parametrize(("shortage", "tail"), [(1e12, TAIL_LEAST), (0.0, TAIL_MOST)], ids=["least", "most"])
def test_the_loop_is_bounded(shortage: float, tail: float) -> None:
    headroom = pool()
    for _ in range(100):
        headroom.account(shortage, 400.0 * 86_400, 1e-3)
    assert headroom.quantile == pytest.approx(1.0 - tail)


def test_a_budget_of_nothing_is_legal_and_never_lowers_the_quantile() -> None:
    headroom = pool()
    before = headroom.quantile
    headroom.account(0.0, 400.0 * 86_400, 0.0)
    assert headroom.quantile == before


def test_old_shortage_is_forgotten_with_the_history() -> None:
    headroom = pool()
    headroom.account(1_000.0, 1_000_000.0, 1e-3)
    for _ in range(200):
        headroom.account(0.0, 512.0 * 86_400, 1e-3)
    assert headroom.shortage < 1e-12


def test_the_loop_finds_the_budget_of_a_load_that_jumps_now_and_then() -> None:
    """A jump of 64 GPUs once in 200 minutes is covered or not: the loop must end between never and always."""
    headroom, missed, wanted = pool(), 0.0, 0.0
    for minute in range(12 * DAY):
        gpus = 264.0 if minute % 200 == 0 else 200.0
        kept = headroom.rise(60)
        now = START + minute * BUCKET
        shortage = 60.0 * max(0.0, gpus - 200.0 - kept)
        headroom.observe(gpus, now)
        headroom.account(shortage, 60.0 * gpus, 5e-4)
        if minute >= 4 * DAY:
            missed, wanted = missed + shortage, wanted + 60.0 * gpus
    assert 2.5e-4 <= missed / wanted <= 7.5e-4


def test_published_quantiles_name_their_level() -> None:
    headroom = watched([float(100 + minute % 60) for minute in range(DAY)])
    headroom.rise(120)
    memory = headroom.memory("infer-a100", START, (90.0, 110.0))
    assert dict(memory.quantiles) == {"0.5": 2.0, "0.9": 2.0, "0.99": 2.0}
    assert (memory.horizon_seconds, memory.returns) == (120, (90.0, 110.0))
    assert dict(pool().quantiles(120)) == {}


def test_a_restart_forgets_nothing() -> None:
    before = watched([float(100 + minute % 60) for minute in range(DAY + 9)])
    before.account(900.0, 1e6, 1e-4)
    before.rise(600)
    memory = before.memory("infer-a100", START, ())
    after = Headroom.from_memory(memory, pool())
    again = after.memory("infer-a100", START, ())
    assert again.quantile == pytest.approx(memory.quantile)
    assert replace(again, quantile=memory.quantile) == memory
    assert after.rise(600) == before.rise(600)
    for headroom in (before, after):
        headroom.observe(400.0, START + (DAY + 12) * BUCKET)
    assert after.rise(600) == before.rise(600)


def test_another_bucket_length_forgets_the_history_but_not_the_loop() -> None:
    before = watched([100.0] * DAY)
    before.account(9_000.0, 1e6, 1e-4)
    like = Headroom(timedelta(minutes=5), timedelta(days=2), 0.1, 512.0)
    after = Headroom.from_memory(before.memory("infer-a100", START, ()), like)
    assert after.rise(120) == pytest.approx(51.2)
    assert after.quantile == pytest.approx(before.quantile)


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        pytest.param((), 1200.0, id="the lead time until one was measured"),
        pytest.param((40.0, 95.0, 60.0), 95.0, id="then the longest"),
        pytest.param((900.0, *[30.0] * 20), 30.0, id="of the recent ones"),
    ],
)
def test_return_time(measured: tuple[float, ...], seconds: float) -> None:
    assert return_seconds(measured, timedelta(minutes=20)) == seconds


@given(st.lists(st.integers(0, 512), min_size=3, max_size=60), st.integers(1, 10))
def test_rises_as_a_person_would_count_them(demand: list[int], steps: int) -> None:
    expected = [max(0, max(demand[here + 1 : here + 1 + steps]) - demand[here]) for here in range(len(demand) - steps)]
    found = rises_within(np.array(demand, dtype=np.float64), steps)
    assert len(demand) <= steps or found.tolist() == expected


@given(st.lists(st.floats(0, 512), min_size=2, max_size=40), st.floats(0, 512))
def test_more_demand_never_means_less_headroom(demand: list[float], jump: float) -> None:
    calm, wild = watched([*demand, demand[-1]]), watched([*demand, demand[-1] + jump])
    for headroom in (calm, wild):
        headroom.observe(demand[-1], START + (len(demand) + 1) * BUCKET)
    assert wild.rise(60) >= calm.rise(60)
