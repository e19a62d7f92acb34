"""When lending is allowed, on ordinary nights and on those of 23 or 25 hours. Ids name their case."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core.windows import Opening, Window, opening, problems

BERLIN, SHANGHAI = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Shanghai")
NEW_YORK, LORD_HOWE = ZoneInfo("America/New_York"), ZoneInfo("Australia/Lord_Howe")
WEEKDAYS = frozenset(range(5))
MINUTE = timedelta(minutes=1)


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> datetime:
    """An instant by its local time."""
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).astimezone(UTC)


def night(zone: ZoneInfo = BERLIN, start: str = "22:00", end: str = "06:00", **more: object) -> Window:
    """A nightly window; an end before its start is on the next day."""
    begins, ends = time.fromisoformat(start), time.fromisoformat(end)
    window = Window("night", zone, begins, ends, end_days=int(ends <= begins))
    return Window(**({name: getattr(window, name) for name in Window.__slots__} | more))


SAMPLES = json.loads((Path(__file__).parent / "data" / "night_windows.json").read_text())["cases"]
TIMED = [case for case in SAMPLES if "instant_utc" in case]


@pytest.mark.parametrize("case", TIMED, ids=lambda case: f"E13 {case['local']} in {case['tz']} is {case['expected']}")
def test_the_listed_nights(case: dict[str, str]) -> None:
    start, end = case.get("window", "[22:00,07:00)")[1:-1].split(",")
    days = WEEKDAYS if case.get("days") == "Mon-Fri" else frozenset(range(7))
    window = night(ZoneInfo(case["tz"]), start, end, days=days)
    opened = opening([window], datetime.fromisoformat(case["instant_utc"]))
    assert (opened is not None) == case["expected"].startswith(("night", "inside"))


def test_f1_a_night_window_goes_on_over_midnight() -> None:
    opened = opening([night()], at("2026-03-04T00:00"))
    assert opened == Opening(at("2026-03-03T22:00"), at("2026-03-04T06:00"), "night")


EDGES = {
    "the start belongs to it": ("2026-03-03T22:00:00", True),
    "the microsecond before does not": ("2026-03-03T21:59:59.999999", False),
    "the microsecond before the end belongs to it": ("2026-03-04T05:59:59.999999", True),
    "the end does not": ("2026-03-04T06:00:00", False),
}


@pytest.mark.parametrize(("moment", "is_open"), EDGES.values(), ids=EDGES)
def test_windows_are_half_open(moment: str, is_open: bool) -> None:
    assert (opening([night()], at(moment)) is not None) == is_open


WEEKEND = Window("weekend", BERLIN, time(20), time(7), frozenset({4}), end_days=3)


@pytest.mark.parametrize("moment", ["2026-03-06T20:00", "2026-03-07T00:00", "2026-03-08T00:00", "2026-03-09T06:59"])
def test_f6_friday_evening_to_monday_morning_is_one_opening(moment: str) -> None:
    assert opening([WEEKEND], at(moment)) == Opening(at("2026-03-06T20:00"), at("2026-03-09T07:00"), "weekend")


def test_f6_the_same_weekend_in_pieces_is_one_opening_too() -> None:
    friday = Window("friday", BERLIN, time(20), time(0), frozenset({4}), end_days=1)
    days = Window("days", BERLIN, time(0), time(0), frozenset({5, 6}), end_days=1)
    monday = Window("monday", BERLIN, time(0), time(7), frozenset({0}))
    opened = opening([monday, days, friday], at("2026-03-08T12:00"))
    assert opened == Opening(at("2026-03-06T20:00"), at("2026-03-09T07:00"), "days")


def test_windows_of_two_zones_join_up() -> None:
    evening = night(NEW_YORK, "18:00", "22:00", name="evening")  # 23:00-03:00 UTC in winter
    morning = night(BERLIN, "04:00", "06:00", name="morning")  # 03:00-05:00 UTC
    opened = opening([morning, evening], at("2026-02-04T02:30", ZoneInfo("UTC")))
    assert opened == Opening(at("2026-02-03T23:00", ZoneInfo("UTC")), at("2026-02-04T06:00"), "evening")


def test_always_is_open_without_an_end() -> None:
    always = Window("always", BERLIN, always=True)
    assert opening([night(), always], at("2026-03-04T12:00")) == Opening(None, None, "always")


def test_whole_days_without_a_break_have_no_end_either() -> None:
    whole = Window("days", BERLIN, time(0), time(0), end_days=1)
    assert opening([whole], at("2026-03-04T00:00")) == Opening(None, None, "days")


def test_a_long_exception_ends_whole_days() -> None:
    whole = Window("days", BERLIN, time(0), time(0), end_days=1, except_dates=frozenset({date(2026, 3, 6)}))
    assert opening([whole], at("2026-03-04T12:00")) == Opening(None, at("2026-03-06T00:00"), "days")
    assert opening([whole], at("2026-03-06T12:00")) is None


def test_an_exception_is_the_date_on_which_it_would_have_started() -> None:
    window = night(except_dates=frozenset({date(2026, 12, 24)}))
    assert opening([window], at("2026-12-24T01:00")) is not None
    assert opening([window], at("2026-12-24T23:00")) is None
    assert opening([window], at("2026-12-25T01:00")) is None
    assert opening([window], at("2026-12-25T22:00")) is not None


def test_without_windows_nothing_is_open() -> None:
    assert opening([], at("2026-03-03T23:00")) is None


UTC_ZONE = ZoneInfo("UTC")
CHANGES = {
    "Berlin, spring: a start in the skipped hour opens when the clock jumps": (
        night(BERLIN, "02:30", "05:00"), "2026-03-29T01:00", "2026-03-29T03:00"),
    "Berlin, spring: an end in the skipped hour closes when the clock jumps": (
        night(BERLIN, "22:00", "02:30"), "2026-03-28T21:00", "2026-03-29T01:00"),
    "Berlin, spring: the night is an hour shorter": (
        night(BERLIN), "2026-03-28T21:00", "2026-03-29T04:00"),
    "Berlin, autumn: the night is an hour longer": (
        night(BERLIN), "2026-10-24T20:00", "2026-10-25T05:00"),
    "Berlin, autumn: a start in the repeated hour opens at the first": (
        night(BERLIN, "02:30", "06:00"), "2026-10-25T00:30", "2026-10-25T05:00"),
    "Berlin, autumn: an end in the repeated hour closes at the first": (
        night(BERLIN, "22:00", "02:30"), "2026-10-24T20:00", "2026-10-25T00:30"),
    "New York, spring: a start in the skipped hour": (
        night(NEW_YORK, "02:15", "04:00"), "2026-03-08T07:00", "2026-03-08T08:00"),
    "New York, autumn: a start in the repeated hour": (
        night(NEW_YORK, "01:15", "04:00"), "2026-11-01T05:15", "2026-11-01T09:00"),
    "Lord Howe, spring: half an hour is skipped": (
        night(LORD_HOWE, "02:10", "04:00"), "2026-10-03T15:30", "2026-10-03T17:00"),
    "Lord Howe, autumn: half an hour is repeated": (
        night(LORD_HOWE, "01:40", "04:00"), "2026-04-04T14:40", "2026-04-04T17:30"),
}  # fmt: skip


@pytest.mark.parametrize(("window", "opens", "closes"), CHANGES.values(), ids=CHANGES)
def test_nights_on_which_the_clock_changes(window: Window, opens: str, closes: str) -> None:
    begins, ends = at(opens, UTC_ZONE), at(closes, UTC_ZONE)
    for moment in (begins, begins + (ends - begins) / 2, ends - MINUTE):
        assert opening([window], moment) == Opening(begins, ends, "night")
    assert opening([window], begins - MINUTE) is None
    assert opening([window], ends) is None


def test_a_window_within_the_skipped_hour_does_not_open() -> None:
    window = night(BERLIN, "02:10", "02:50")
    assert opening([window], at("2026-03-29T01:00", UTC_ZONE)) is None
    assert opening([window], at("2026-03-29T00:59", UTC_ZONE)) is None


WRONG = {
    "F7 start and end are one": (night(start="22:00", end="22:00", end_days=0), "end"),
    "F2 a hole of a minute every night": (night(start="00:00", end="23:59"), "end"),
    "F2 the same hole over midnight": (night(start="12:00", end="11:59"), "end"),
    "an end before the start": (night(start="22:00", end="06:00", end_days=0), "end"),
    "more than a week": (night(end_days=8), "end"),
    "no day": (night(days=frozenset()), "days"),
    "an eighth day": (night(days=frozenset({7})), "days"),
    "an end in the past": (night(end_days=-1), "end_days"),
}


@pytest.mark.parametrize(("window", "field"), WRONG.values(), ids=WRONG)
def test_windows_that_are_refused(window: Window, field: str) -> None:
    assert field in [message.partition(":")[0] for message in problems(window)]


@pytest.mark.parametrize(
    "window",
    [
        night(),
        WEEKEND,
        night(start="00:00", end="00:00"),
        Window("always", BERLIN, always=True),
        night(end_days=7),
    ],
    ids=["a night", "a weekend", "a whole day", "always", "almost a week"],
)
def test_windows_that_may_be_used(window: Window) -> None:
    assert problems(window) == ()


def brute_force(window: Window, minutes: list[datetime]) -> list[bool]:
    """Nothing but the local clock: which day has begun a span, and has the clock passed its end?"""
    begun, ended, answer = set[date](), set[date](), []
    for minute in minutes:
        wall = minute.astimezone(window.zone).replace(tzinfo=None)
        for back in range(-1, 9):
            day = wall.date() - timedelta(days=back)
            if wall >= datetime.combine(day, window.start):
                begun.add(day)
            if wall >= datetime.combine(day + timedelta(days=window.end_days), window.end):
                ended.add(day)
        answer.append(any(day.weekday() in window.days and day not in window.except_dates for day in begun - ended))
    return answer


TURNS = [
    (BERLIN, date(2026, 3, 29)), (BERLIN, date(2026, 10, 25)), (NEW_YORK, date(2026, 3, 8)),
    (NEW_YORK, date(2026, 11, 1)), (LORD_HOWE, date(2026, 10, 4)), (LORD_HOWE, date(2026, 4, 5)),
    (SHANGHAI, date(2026, 3, 3)),
]  # fmt: skip
CLOCKS = st.builds(time, st.integers(0, 23), st.sampled_from([0, 10, 30, 55]))  # the grid of the brute force sees these


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(TURNS), CLOCKS, CLOCKS, st.integers(0, 3), st.frozensets(st.integers(0, 6), min_size=1))
def test_as_a_person_with_a_clock_would_do_it(
    turn: tuple[ZoneInfo, date], start: time, end: time, end_days: int, days: frozenset[int]
) -> None:
    zone, day = turn
    window = Window("w", zone, start, end, days, end_days, frozenset({day - timedelta(days=7)}))
    if any(not problem.startswith("end: leaves") for problem in problems(window)):
        window = Window("w", zone, time(22), time(6), days, 1)
    first = datetime.combine(day - timedelta(days=5), time(0), tzinfo=UTC)
    minutes = [first + offset * MINUTE for offset in range(0, 7 * 24 * 60, 5)]
    expected = brute_force(window, minutes)[-288 * 3 :]
    assert [opening([window], minute) is not None for minute in minutes[-288 * 3 :]] == expected
