"""Token bucket, backoff and the legality tables."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.policy import Acting
from rebalancer.core.protocol import tables
from rebalancer.core.protocol.calls import Answer, AnswerKind
from rebalancer.core.protocol.pace import Ask, Bucket, backoff
from tests.core.protocol.fake import T0

ACTING = Acting()


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = Bucket(10.0, 5)
    assert [bucket.take(T0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.ready_at(T0) - T0 <= timedelta(seconds=0.1001)
    assert bucket.take(bucket.ready_at(T0))
    assert bucket.ready_at(T0 + timedelta(hours=1)) == T0 + timedelta(hours=1)
    assert sum(bucket.take(T0 + timedelta(hours=1)) for _ in range(9)) == 5


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.5, 20), st.integers(1, 10))
def test_no_span_ever_sees_more_than_burst_and_rate_allow(waits: list[float], rate: float, burst: int) -> None:
    bucket, now, taken = Bucket(rate, burst), T0, 0
    for wait in waits:
        now += timedelta(seconds=wait)
        while bucket.take(now):
            taken += 1
    assert taken <= burst + rate * (now - T0).total_seconds() + 1e-6


def test_a_drained_bucket_has_no_burst_and_fills_from_the_moment_named() -> None:
    bucket = Bucket(10.0, 5)
    later = T0 + timedelta(seconds=30)
    bucket.drain(later)
    assert not bucket.take(T0 + timedelta(seconds=29))
    assert not bucket.take(later)
    assert bucket.take(later + timedelta(seconds=0.11))


@given(st.text(max_size=8), st.integers(0, 100))
def test_backoff_is_the_same_for_the_same_victim_and_stays_in_its_bounds(key: str, attempt: int) -> None:
    wait = backoff(ACTING, key, attempt)
    assert wait == backoff(ACTING, key, attempt)
    assert ACTING.retry_first <= wait <= ACTING.retry_max


def test_backoff_grows_from_the_first_wait_to_the_longest_and_differs_between_victims() -> None:
    waits = [backoff(ACTING, "a", attempt) for attempt in range(6)]
    assert waits[0] == timedelta(seconds=5)
    assert waits[-1] > timedelta(seconds=47)
    assert waits == sorted(waits)
    assert len({backoff(ACTING, name, 3) for name in "abcdefgh"}) == 8


def test_an_ask_is_out_once_waits_as_the_server_says_and_gives_up_after_the_deadline() -> None:
    ask = Ask(ACTING, "k")
    assert ask.ready(T0)
    ask.sent()
    assert not ask.ready(T0)
    assert ask.due(T0) is None
    assert ask.failed(Answer(AnswerKind.THROTTLED, retry_after=12), T0)
    assert ask.due(T0) == T0 + timedelta(seconds=12)
    assert not ask.failed(Answer(AnswerKind.FAILED), T0 + ACTING.retry_deadline)
    ask.back()
    assert ask.ready(T0)
    assert ask.failing_since is None


def test_a_server_cannot_ask_for_more_patience_than_the_longest_wait() -> None:
    ask = Ask(ACTING, "k")
    ask.failed(Answer(AnswerKind.THROTTLED, retry_after=86_400), T0)
    assert ask.due(T0) == T0 + ACTING.retry_max


TABLES = {
    "edit": (tables.EDIT, tables.Editing, tables.Edited, {tables.Editing.CONFIRMED, tables.Editing.REFUSED}),
    "lend": (tables.LEND, tables.Lending, tables.Lent, {tables.Lending.UNDONE}),
    "return": (
        tables.RETURN, tables.Returning, tables.Returned,
        {tables.Returning.RESTORED, tables.Returning.REOPENED, tables.Returning.REFUSED}),
    "evict": (tables.EVICT, tables.Evicting, tables.Evicted, {tables.Evicting.GONE, tables.Evicting.REFUSED}),
}  # fmt: skip


@pytest.mark.parametrize(("table", "phases", "events", "ends"), TABLES.values(), ids=TABLES)
def test_every_phase_can_be_reached_and_left_and_every_unknown_pair_raises(
    table: dict[tuple[StrEnum, StrEnum], StrEnum],
    phases: type[StrEnum],
    events: type[StrEnum],
    ends: set[StrEnum],
) -> None:
    for phase in phases:
        leaves = [event for event in events if (phase, event) in table]
        assert bool(leaves) != (phase in ends), phase
        for event in set(events) - set(leaves):
            with pytest.raises(tables.IllegalMove, match=event.value):
                tables.move(table, phase, event)
    first: StrEnum = next(iter(phases))
    reached = {first, *table.values()}
    assert reached == set(phases)
