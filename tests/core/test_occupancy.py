"""Rolling means weigh by time, not by how often something was told, and do not depend on the order of telling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.occupancy import Rolling

START = datetime(2026, 3, 3, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def told(*points: tuple[float, float]) -> Rolling:
    rolling = Rolling()
    for seconds, value in points:
        rolling.observe(value, after(seconds))
    return rolling


MEANS = {
    "a value holds until the next": ([(0, 0.0), (45, 1.0)], 60, 0.25),
    "many points of one value weigh no more": ([(0, 0.0), (30, 1.0), (40, 1.0), (50, 1.0)], 60, 0.5),
    "the value in force at the window's edge counts": ([(0, 1.0), (90, 0.0)], 120, 0.5),
    "only the known part counts": ([(30, 0.5)], 60, 0.5),
    "what lies ahead of now does not count": ([(0, 0.2), (61, 9.0)], 60, 0.2),
    "at the first moment it is the value": ([(60, 0.7)], 60, 0.7),
    "of one second the last holds": ([(0, 0.1), (0.5, 0.9)], 60, 0.9),
    "a late point falls into its place": ([(0, 0.0), (45, 0.0), (30, 1.0)], 60, 0.25),
}


@pytest.mark.parametrize(("points", "now", "mean"), MEANS.values(), ids=MEANS)
def test_mean_over_a_minute(points: list[tuple[float, float]], now: float, mean: float) -> None:
    assert told(*points).mean(MINUTE, after(now)) == pytest.approx(mean)


def test_nothing_is_known_before_the_first_point() -> None:
    assert Rolling().mean(MINUTE, START) is None
    assert told((10, 1.0)).mean(MINUTE, START) is None


def test_points_later_than_the_lateness_are_dropped_and_counted() -> None:
    rolling = told((400, 0.0), (100, 1.0), (99, 1.0))
    assert (rolling.late, rolling.mean(timedelta(hours=1), after(400))) == (1, 1.0)


@pytest.mark.parametrize("window", [timedelta(0), timedelta(hours=1, seconds=1)])
def test_windows_that_are_not_kept_are_refused(window: timedelta) -> None:
    with pytest.raises(ValueError, match="is not within"):
        told((0, 1.0)).mean(window, START)


def test_memory_is_bounded_and_the_longest_window_stays_right() -> None:
    rolling = Rolling(timedelta(minutes=2), timedelta(minutes=1))
    for seconds in range(3000):
        rolling.observe(float(seconds >= 2940), after(seconds))
    assert rolling.mean(timedelta(minutes=2), after(3000)) == pytest.approx(0.5)
    assert len(rolling._times) <= 182


@given(st.lists(st.tuples(st.integers(0, 299), st.floats(0, 1)), min_size=1, max_size=20, unique_by=lambda p: p[0]))
def test_order_within_the_lateness_makes_no_difference(points: list[tuple[int, float]]) -> None:
    now, window = after(300), timedelta(minutes=10)
    assert told(*points).mean(window, now) == pytest.approx(told(*sorted(points)).mean(window, now))
