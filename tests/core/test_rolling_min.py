"""The minimum over the dwell: nothing is proven before a whole dwell was seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.headroom import RollingMin

START = datetime(2026, 3, 3, tzinfo=UTC)
DWELL = timedelta(minutes=20)


def minute(count: float) -> datetime:
    return START + timedelta(minutes=count)


def told(*points: tuple[float, float]) -> RollingMin:
    rolling = RollingMin(DWELL)
    for at, value in points:
        rolling.observe(value, minute(at))
    return rolling


CASES = {
    "nothing seen, nothing known": ([], 30, None),
    "not before a whole dwell": ([(0, 5.0)], 19.9, None),
    "after a dwell the value that held": ([(0, 5.0)], 20, 5.0),
    "a dip counts": ([(0, 5.0), (10, 2.0), (11, 5.0)], 25, 2.0),
    "a dip counts until a dwell after its end": ([(0, 5.0), (10, 2.0), (15, 5.0)], 34.9, 2.0),
    "and not beyond": ([(0, 5.0), (10, 2.0), (15, 5.0)], 35, 5.0),
    "the present value counts": ([(0, 5.0), (30, 1.0)], 30, 1.0),
    "of two values of one moment the smaller": ([(0, 5.0), (0, 3.0)], 20, 3.0),
    "a late dip counts": ([(0, 5.0), (10, 5.0), (5, 1.0)], 25, 1.0),
    "a late dip counts as long as the newest value before it": ([(0, 5.0), (10, 5.0), (5, 1.0)], 30, 5.0),
}


@pytest.mark.parametrize(("points", "now", "minimum"), CASES.values(), ids=CASES)
def test_minimum(points: list[tuple[float, float]], now: float, minimum: float | None) -> None:
    assert told(*points).minimum(minute(now)) == minimum


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(0, 9)), min_size=1, max_size=30), st.integers(0, 15))
def test_as_a_person_with_a_list_would_do_it(steps: list[tuple[int, int]], wait: int) -> None:
    rolling, points, at = RollingMin(DWELL), [], 0
    for gap, value in steps:
        at += gap
        points.append((at, float(value)))
        rolling.observe(float(value), minute(at))
    now = at + wait
    ends = [*(begin for begin, _ in points[1:]), now + 1]
    held = [value for (_, value), end in zip(points, ends, strict=True) if end > now - 20]
    assert rolling.minimum(minute(now)) == (min(held) if now - points[0][0] >= 20 else None)
