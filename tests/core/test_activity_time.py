"""Activity over time: silence, gaps, late, repeated and reordered samples. Ids name their case."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.telemetry import NodeSample
from tests.core.samples import (
    BUSY,
    IDLE,
    RULES,
    SCRAPE,
    START,
    UNKNOWN,
    engine,
    feed,
    new_judge,
    reading,
    sample,
)


def test_silence_is_unknown_from_the_moment_freshness_ends() -> None:
    judge = new_judge()
    edge = feed(judge, engine(0.0, 0.0)) + RULES.freshness
    assert judge.verdict(edge).activity is IDLE
    silent = judge.verdict(edge + timedelta(seconds=1))
    assert (silent.activity, silent.why, silent.since, silent.utilisation) == (UNKNOWN, "silent", edge, None)


def test_before_the_first_sample_nothing_is_known() -> None:
    verdict = new_judge(believe=True).verdict(START)
    assert (verdict.activity, verdict.why, verdict.gpus_seen) == (UNKNOWN, "silent", 0)


@pytest.mark.parametrize(
    ("gap", "restarts"),
    [
        pytest.param(RULES.freshness, False, id="a gap as long as freshness continues"),
        pytest.param(RULES.freshness + timedelta(seconds=1), True, id="a longer gap starts idleness anew"),
    ],
)
def test_idleness_is_continuous(gap: timedelta, restarts: bool) -> None:
    judge = new_judge()
    back = feed(judge, engine(0.0, 0.0, 0.0)) + gap
    judge.observe(sample(back, reading(tick=99, engine_active=0.0)), back)
    assert judge.verdict(back).since == (back if restarts else START)


def test_one_gpu_that_pauses_restarts_the_idleness_of_the_node() -> None:
    judge, at = new_judge(), START
    for tick in range(12):
        at = START + tick * SCRAPE
        pair = [reading("GPU-0", tick, engine_active=0.0), reading("GPU-1", tick, engine_active=0.0)]
        judge.observe(sample(at, *pair[: 1 if 2 <= tick <= 10 else 2], expected=2), at)
    assert judge.verdict(at).since == at


@pytest.mark.parametrize(
    ("offset", "cause"),
    [
        pytest.param(timedelta(minutes=-5, seconds=-1), "late", id="D08 beyond the lateness bound is dropped"),
        pytest.param(timedelta(minutes=2, seconds=1), "future", id="a clock that runs ahead is dropped"),
    ],
)
def test_what_comes_at_the_wrong_time_is_counted_and_ignored(offset: timedelta, cause: str) -> None:
    judge = new_judge()
    last = feed(judge, engine(0.0, 0.0))
    before = judge.verdict(last)
    judge.observe(sample(last + offset, reading(engine_active=0.95)), last)
    assert judge.verdict(last) == before
    assert judge.dropped[cause] == 1


def test_a_sample_a_step_ahead_of_now_is_taken() -> None:
    judge = new_judge()
    judge.observe(sample(START + RULES.skew, reading(engine_active=0.0)), START)
    assert judge.verdict(START).activity is IDLE


def test_d08_a_late_busy_sample_changes_no_state_but_disproves_idleness_up_to_its_time() -> None:
    judge = new_judge()
    last = feed(judge, engine(0.0, 0.0, 0.0, 0.0, 0.0))
    judge.observe(sample(START + SCRAPE + timedelta(seconds=5), reading(engine_active=0.95)), last)
    verdict = judge.verdict(last)
    assert (verdict.activity, verdict.utilisation, verdict.since) == (IDLE, 0.0, START + 2 * SCRAPE)
    assert judge.dropped["out-of-order"] == 1


def test_a_late_idle_sample_proves_nothing() -> None:
    judge = new_judge()
    last = feed(judge, engine(0.9, 0.9, 0.9))
    judge.observe(sample(START + timedelta(seconds=5), reading(engine_active=0.0)), last)
    assert (judge.verdict(last).activity, judge.verdict(last).since) == (BUSY, START)


@pytest.mark.parametrize(
    ("expected", "unhealthy"),
    [
        pytest.param(2, (79,), id="a card that fell off the bus and reports no more is still at fault"),
        pytest.param(1, (), id="a node that has all its GPUs again is well"),
    ],
)
def test_faults_of_cards_that_are_gone(expected: int, unhealthy: tuple[int, ...]) -> None:
    judge, at = new_judge(), START
    for tick in range(30):
        at = START + tick * SCRAPE
        pair = [reading("GPU-0", tick, engine_active=0.0), reading("GPU-1", tick, engine_active=0.0, xid=79)]
        judge.observe(sample(at, *pair[: 2 if tick < 3 else 1], expected=2 if tick < 3 else expected), at)
    assert judge.verdict(at).unhealthy == unhealthy


def test_since_moves_only_with_the_activity() -> None:
    judge, seen = new_judge(), []
    for tick, level in enumerate((0.9, 0.9, 0.0, 0.0, 0.1, 0.9)):
        at = START + tick * SCRAPE
        judge.observe(sample(at, reading(tick=tick, engine_active=level)), at)
        seen.append((judge.verdict(at).since - START) // SCRAPE)
    assert seen == [0, 0, 2, 2, 2, 5]


Step = tuple[int, float | None, float | None]
LEVELS = st.one_of(st.none(), st.sampled_from([0.0, 0.03, 0.1, 0.15, 0.9]))
STEPS = st.lists(st.tuples(st.integers(1, 9), LEVELS, LEVELS), min_size=1, max_size=12)


def series_of(steps: list[Step]) -> list[NodeSample]:
    at, made = START, []
    for tick, (scrapes, one, two) in enumerate(steps):
        at += scrapes * SCRAPE
        rows = (reading("GPU-0", tick, engine_active=one), reading("GPU-1", tick, engine_active=two))
        made.append(sample(at, *rows))
    return made


@given(STEPS)
def test_idle_is_only_said_when_every_gpu_was_seen_low_without_a_gap(steps: list[Step]) -> None:
    judge, series = new_judge(), series_of(steps)
    for one in series:
        judge.observe(one, one.at)
    verdict = judge.verdict(series[-1].at)
    held = [one for one in series if one.at >= verdict.since]
    assert held[0].at == verdict.since
    if verdict.activity is IDLE:
        levels = [device.engine_active for one in held for device in one.devices]
        assert all(level is None or level < RULES.busy_from for level in levels)
        assert all(later.at - former.at <= RULES.freshness for former, later in pairwise(held))


@given(STEPS, st.data())
def test_duplicates_change_nothing(steps: list[Step], data: st.DataObject) -> None:
    once, twice = new_judge(), new_judge()
    for one in series_of(steps):
        once.observe(one, one.at)
        for _ in range(data.draw(st.integers(1, 3))):
            twice.observe(one, one.at)
        assert once.verdict(one.at) == twice.verdict(one.at)


@given(STEPS, st.lists(LEVELS, min_size=1, max_size=3))
def test_rows_of_one_moment_in_any_order_agree(steps: list[Step], last: list[float | None]) -> None:
    verdicts = set()
    series = series_of(steps)
    at = series[-1].at + SCRAPE
    for order in permutations(last):
        judge = new_judge()
        for one in series:
            judge.observe(one, one.at)
        for level in order:
            judge.observe(sample(at, reading("GPU-0", 99, engine_active=level), expected=2), at)
        verdict = judge.verdict(at)
        verdicts.add((verdict.activity, verdict.since, verdict.utilisation))
    assert len(verdicts) == 1
