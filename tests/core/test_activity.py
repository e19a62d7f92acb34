"""What a node's telemetry may and may not be taken to mean. Ids name the case they come from."""

from __future__ import annotations

import math

import pytest

from rebalancer.core.activity import MAX_CARDS
from rebalancer.core.telemetry import DeviceReading, NodeSample
from rebalancer.core.units import Activity
from tests.core.samples import (
    BUSY,
    IDLE,
    SCRAPE,
    START,
    UNKNOWN,
    Row,
    engine,
    feed,
    judged,
    new_judge,
    reading,
    sample,
)

ENGINE = "engine_active"
ONE_GPU: dict[str, tuple[list[Row], Activity, str]] = {
    "an idle engine is idle": (engine(0.0), IDLE, ENGINE),
    "a working engine is busy": (engine(0.9), BUSY, ENGINE),
    "A08 gpu_util judges where no PROF field exists": ([{"gpu_util": 0.0}], IDLE, "gpu_util"),
    "A08 gpu_util is a percentage": ([{"gpu_util": 14.0}, {"gpu_util": 4.9}], IDLE, "gpu_util"),
    "between the thresholds without a past is busy": (engine(0.1), BUSY, ENGINE),
    "hysteresis keeps idle below busy_from": (engine(0.01, 0.1), IDLE, ENGINE),
    "hysteresis keeps busy down to idle_below": (engine(0.9, 0.05), BUSY, ENGINE),
    "idle begins below idle_below": (engine(0.9, 0.049), IDLE, ENGINE),
    "busy begins at busy_from exactly": (engine(0.01, 0.15), BUSY, ENGINE),
    "a card without any utilisation is unknown": ([{}], UNKNOWN, ""),
    "A22 a resident model at 0 % is idle": ([{"engine_active": 0.0, "memory_used": 7e4}], IDLE, ENGINE),
}


@pytest.mark.parametrize(("rows", "activity", "signal"), ONE_GPU.values(), ids=ONE_GPU)
def test_one_gpu(rows: list[Row], activity: Activity, signal: str) -> None:
    verdict = judged(*rows)
    assert (verdict.activity, verdict.signal) == (activity, signal)
    assert verdict.why == ("silent" if activity is UNKNOWN else "")


DISAGREE = {
    "F41 engine 0 beside util 99 is neither idle nor busy": (0.0, 99.0, UNKNOWN),
    "G4 the reverse is unknown too": (0.9, 0.0, UNKNOWN),
    "just above idle is no contradiction": (0.05, 99.0, BUSY),
    "just below busy is no contradiction": (0.049, 14.9, IDLE),
    "at the threshold it is one": (0.049, 15.0, UNKNOWN),
}


@pytest.mark.parametrize(("active", "util", "activity"), DISAGREE.values(), ids=DISAGREE)
def test_two_metrics_that_contradict_each_other(active: float, util: float, activity: Activity) -> None:
    verdict = judged({"engine_active": active, "gpu_util": util})
    assert (verdict.activity, verdict.why) == (activity, "disagreement" if activity is UNKNOWN else "")
    assert (verdict.utilisation is None) == (activity is UNKNOWN)


BLANKS = [9223372036854775792.0, 9.223372036854776e18, 2147483632.0, 2147483635.0, 4294967295.0, 2619.0]
GARBAGE = [*BLANKS, 140737488355328.0, 14073748835532800.0, math.nan, math.inf, -1.0, -math.inf, 100.1]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda value: f"F40 {value} is no load")
def test_blanks_and_spikes_neither_update_nor_zero(garbage: float) -> None:
    judge = new_judge()
    good = {"engine_active": 0.5, "gpu_util": 60.0}
    at = feed(judge, [good, {"engine_active": garbage, "gpu_util": garbage}])
    assert judge.verdict(at).utilisation == 0.5
    assert judge.dropped["out-of-range"] == 2


def test_a_ratio_above_one_is_refused_where_a_percentage_of_it_is_not() -> None:
    assert judged({"engine_active": 1.5, "gpu_util": 1.5}).utilisation == pytest.approx(0.015)


def test_a11_blanks_that_persist_end_as_unknown() -> None:
    verdict = judged(*engine(0.0, *[2147483632.0] * 8))
    assert (verdict.activity, verdict.why, verdict.utilisation) == (UNKNOWN, "silent", None)


def test_a10_paused_profiling_falls_back_to_gpu_util_without_an_idle_edge() -> None:
    judge, seen = new_judge(), set()
    for tick in range(20):
        at = START + tick * SCRAPE
        active = 0.9 if tick < 3 else None
        judge.observe(sample(at, reading(tick=tick, engine_active=active, gpu_util=90.0)), at)
        verdict = judge.verdict(at)
        seen.add((verdict.activity, verdict.since, verdict.signal))
    assert seen == {(BUSY, START, "engine_active"), (BUSY, START, "gpu_util")}


def test_a10_the_last_zero_of_a_paused_counter_does_not_hide_load() -> None:
    assert judged({"engine_active": 0.0}, *[{"gpu_util": 90.0}] * 8).activity is BUSY
    assert judged({"engine_active": 0.0}, {"gpu_util": 90.0}).activity is UNKNOWN


def test_utilisation_is_the_sum_over_gpus_and_each_uses_its_own_signal() -> None:
    judge = new_judge()
    judge.observe(sample(START, reading("GPU-0", engine_active=0.5), reading("GPU-1", gpu_util=75.0)), START)
    verdict = judge.verdict(START)
    assert (verdict.utilisation, verdict.gpus_seen, verdict.signal) == (1.25, 2, "mixed")


LOW, HIGH, MUTE = (reading("GPU-0", engine_active=0.0), reading("GPU-0", engine_active=0.9), reading("GPU-1"))
COPIES = [reading(gpu_util=71.0, pod=f"a/{n}") for n in range(3)]
COUNTS = {
    "a GPU that does not report keeps the node from being idle": ([LOW], 2, UNKNOWN, "missing", None),
    "busy holds beside a missing GPU, but the sum is not known": ([HIGH], 2, BUSY, "", None),
    "busy holds beside an unknown GPU": ([HIGH, MUTE], 2, BUSY, "", None),
    "one unknown GPU makes an idle node unknown": ([LOW, MUTE], 2, UNKNOWN, "silent", None),
    "a node with no known GPU count is never idle": ([LOW], 0, UNKNOWN, "missing", None),
    "A17 an empty scrape is no load of zero": ([], 1, UNKNOWN, "missing", None),
    "A14 rows multiplied per pod are one GPU": (COPIES, 1, BUSY, "", 0.71),
    "of two rows of one GPU the larger holds": ([COPIES[0], reading(gpu_util=2.0)], 1, BUSY, "", 0.71),
}


@pytest.mark.parametrize(("devices", "expected", "activity", "why", "total"), COUNTS.values(), ids=COUNTS)
def test_counting_gpus(
    devices: list[DeviceReading], expected: int, activity: Activity, why: str, total: float | None
) -> None:
    judge = new_judge()
    judge.observe(sample(START, *devices, expected=expected), START)
    verdict = judge.verdict(START)
    assert (verdict.activity, verdict.why, verdict.utilisation) == (activity, why, total)


def test_a16_attribution_that_flickers_is_the_same_gpu() -> None:
    verdict = judged(*[{"engine_active": 0.0, "pod": pod} for pod in ("a/b", "", "a/b")])
    assert (verdict.activity, verdict.gpus_seen, verdict.since) == (IDLE, 1, START)


def mig(one: float | None, two: float | None, whole: float | None = None) -> NodeSample:
    """One card divided in two, with its own row if ``whole`` is given."""
    rows = [reading(instance="1", engine_active=one), reading(instance="2", engine_active=two)]
    return sample(START, *rows, *([reading(engine_active=whole)] if whole is not None else []), expected=1)


DIVIDED = {
    "A05 one busy instance makes the card busy, its own row says how": (mig(0.998, 0.0, 0.43), BUSY, 0.43),
    "A05 without the card's row it is the mean over instances": (mig(0.998, 0.0), BUSY, 0.499),
    "all instances idle is idle": (mig(0.0, 0.0, 0.0), IDLE, 0.0),
    "an instance without a signal is unknown": (mig(0.0, None, 0.0), UNKNOWN, None),
    "the card's row can prove an unreported instance busy": (mig(0.0, 0.0, 0.43), BUSY, 0.43),
}


@pytest.mark.parametrize(("divided", "activity", "total"), DIVIDED.values(), ids=DIVIDED)
def test_divided_cards(divided: NodeSample, activity: Activity, total: float | None) -> None:
    judge = new_judge()
    judge.observe(divided, START)
    verdict = judge.verdict(START)
    assert (verdict.activity, verdict.gpus_seen) == (activity, 1 if total is not None else 0)
    assert verdict.utilisation == (None if total is None else pytest.approx(total))


def test_a_redivided_card_is_unknown_until_the_old_instance_is_forgotten() -> None:
    judge = new_judge()
    judge.observe(mig(0.0, 0.0), START)
    seen = []
    for tick in range(1, 14):
        at = START + tick * SCRAPE
        judge.observe(sample(at, reading(tick=tick, instance="1", engine_active=0.0)), at)
        seen.append(judge.verdict(at).activity)
    assert seen == [IDLE] * 6 + [UNKNOWN] * 4 + [IDLE] * 3


STILL: Row = {"engine_active": 0.0, "energy": 5.0, "power": 60.0, "temperature": 31.0}
BARE: Row = {"engine_active": 0.0, "energy": None}
BLANK: Row = {"engine_active": 0.0, "energy": 9223372036854775792.0}
WORKING: list[Row] = [{"engine_active": 0.9 + n % 2 / 50, "energy": None, "power": 9.0} for n in range(9)]
LIFE: dict[str, tuple[list[Row], bool, Activity, str]] = {
    "four equal scrapes may be chance": ([STILL] * 4, False, IDLE, ""),
    "five equal scrapes are a frozen exporter": ([STILL] * 5, False, UNKNOWN, "frozen"),
    "belief is not asked where a witness stands still": ([STILL] * 5, True, UNKNOWN, "frozen"),
    "F45 a frozen 90 % is not busy": ([{**STILL, "engine_active": 0.9}] * 5, False, UNKNOWN, "frozen"),
    "a growing energy counter is life": ([{**STILL, "energy": 5.0 + n} for n in range(9)], False, IDLE, ""),
    "moving power is life": ([{**STILL, "power": 60.0 + n % 2} for n in range(9)], False, IDLE, ""),
    "a change thaws it": ([*[STILL] * 5, {**STILL, "temperature": 32.0}], False, IDLE, ""),
    "after a change five equal scrapes are needed again": (
        [*[STILL] * 5, *[{**STILL, "power": 61.0}] * 4], False, IDLE, ""
    ),
    "a utilisation that moves is life": (WORKING, False, BUSY, ""),
    "without a witness idle is not believed": ([BARE] * 9, False, UNKNOWN, "no-witness"),
    "without a witness idle is believed if the policy says so": ([BARE] * 9, True, IDLE, ""),
    "busy needs no witness": ([{**BARE, "engine_active": 0.9}] * 9, False, BUSY, ""),
    "a blank is no witness": ([BLANK] * 9, False, UNKNOWN, "no-witness"),
    "a witness gone for five scrapes is none": ([*[STILL] * 2, *[BARE] * 5], True, IDLE, ""),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "believe", "activity", "why"), LIFE.values(), ids=LIFE)
def test_signs_of_life(rows: list[Row], believe: bool, activity: Activity, why: str) -> None:
    verdict = judged(*rows, believe=believe)
    assert (verdict.activity, verdict.why) == (activity, why)


def test_a_repeated_record_is_no_scrape_of_its_own() -> None:
    judge = new_judge()
    for _ in range(9):
        judge.observe(sample(START, reading(**STILL)), START)  # type: ignore[arg-type]  # tests name real fields
    assert judge.verdict(START).activity is IDLE


XIDS: dict[str, tuple[list[int | None], tuple[int, ...], int]] = {
    "A20 an application's code since yesterday takes nothing away": ([31, 31], (), 0),
    "A20 a card off the bus is unhealthy": ([0, 79], (79,), 1),
    "a sticky code is one state, not many events": ([79, 79, 79], (79,), 0),
    "a later application code does not heal the card": ([48, 31], (48,), 1),
    "an absent row heals nothing": ([0, 94, None], (94,), 1),
    "back at 0 the card is well": ([95, 0], (), 0),
    "every change counts": ([0, 13, 43, 45, 31], (), 4),
    "0 and absent both mean none known": ([None, 0, None], (), 0),
    "an unknown code takes nothing away": ([0, 4711], (), 1),
}


@pytest.mark.parametrize(("codes", "unhealthy", "changes"), XIDS.values(), ids=XIDS)
def test_xids(codes: list[int | None], unhealthy: tuple[int, ...], changes: int) -> None:
    judge = new_judge()
    last = feed(judge, [{"engine_active": 0.0, "xid": code} for code in codes])
    assert (judge.verdict(last).unhealthy, judge.xid_changes) == (unhealthy, changes)


HUNG: Row = {"engine_active": 1.0, "memory_used": 60_000.0, "power": 75.0}
HANGS = {
    "A22 flat out at 75 W for 40 minutes is suspect": (HUNG, 40, "suspect-hung"),
    "not before a dwell has passed": (HUNG, 19, ""),
    "drawing power is working": ({**HUNG, "power": 400.0}, 40, ""),
    "a small card is flat out at 65 W": ({**HUNG, "power": 65.0, "memory_used": 9_000.0}, 40, ""),
}


@pytest.mark.parametrize(("row", "minutes", "why"), HANGS.values(), ids=HANGS)
def test_suspect_hung_is_flagged_and_stays_busy(row: Row, minutes: int, why: str) -> None:
    verdict = judged(*[row] * (2 * minutes + 1))
    assert (verdict.activity, verdict.why) == (BUSY, why)


def test_a_sample_of_a_thousand_cards_is_not_about_one_node() -> None:
    judge = new_judge()
    judge.observe(sample(START, *[reading(f"GPU-{n}", engine_active=0.0) for n in range(1000)]), START)
    assert judge.dropped["too-many"] == 1000 - MAX_CARDS
