"""The journal gives back every stimulus bit for bit."""

import math
import struct
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters import translate as wire
from rebalancer.core import stimuli as told
from rebalancer.core.facts import Taint
from rebalancer.core.plan import Outcome, Result
from rebalancer.core.policy import Pace, Policy, PoolPolicy
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.telemetry import DemandSample
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window
from tests.wire import cases

NIGHT = Window(
    "night", ZoneInfo("Europe/Berlin"), time(22, 30), time(6), frozenset({0, 4}), 1, frozenset({date(2026, 12, 24)})
)
POLICY = Policy(
    {
        "infer-a100": PoolPolicy(
            "infer-a100", "A100", OwnerClass.INFERENCE, Mode.ACT, (NIGHT, Window("all", ZoneInfo("UTC"), always=True)),
            (OwnerClass.TRAINING,), Taint("workload", "inference"), shortage_budget=0.1 + 0.2,
            cold_start=timedelta(days=1, microseconds=1),
        )
    },
    pace=Pace(evictions_per_second=math.inf),
)  # fmt: skip
STIMULI: list[told.Stimulus] = [
    *(told.FactObserved(fact, cases.AT) for fact in (
        cases.NODE, cases.POD, cases.BUDGET, cases.GROUP, cases.NAMESPACE, cases.CONTROL
    )),
    told.FactDeleted("pod", "pod-uid-1", cases.AT),
    told.SnapshotBegan("pod", "snap-1", cases.AT),
    told.SnapshotEnded("pod", "snap-1", 2, cases.AT),
    told.VerdictGiven(cases.VERDICT),
    told.HeartbeatHeard(cases.HEARTBEAT),
    told.DemandReported(cases.DEMAND),
    told.OutcomeReported(cases.OUTCOME),
    told.PolicyAdopted(POLICY, "digest"),
    told.PolicyRefused("pools: none", cases.AT),
    told.Approved("plan-1", "oncall", cases.AT),
    told.RecallRequested("all", "", "oncall", cases.AT),
    told.Restored((cases.LOAN,), (cases.WORKLOAD,), (), (cases.PLAN,), (cases.OUTCOME,), True, cases.AT),
    told.TermBegan(41),
    told.StreamLagged(True, math.inf),
    told.TimePassed(),
]  # fmt: skip


def back(stimulus: told.Stimulus) -> told.Stimulus:
    entry = wire.decode(*wire.encode_journal(stimulus, cases.AT, cases.CLUSTER))
    assert isinstance(entry, wire.JournalEntry)
    assert entry.now == cases.AT
    return entry.stimulus


def test_the_cases_here_are_all_stimuli_that_there_are() -> None:
    assert {type(each) for each in STIMULI} == set(get_args(told.Stimulus))


@pytest.mark.parametrize(
    "stimulus", STIMULI, ids=lambda each: f"{each.kind}-{type(getattr(each, 'fact', each)).__name__}"
)
def test_a_stimulus_comes_back_equal_and_of_the_same_types(stimulus: told.Stimulus) -> None:
    got = back(stimulus)
    assert got == stimulus
    assert wire.decode_stimulus(wire.encode_stimulus(stimulus)) == stimulus
    assert spelled(got) == spelled(stimulus)
    assert wire.encode_journal(got, cases.AT, "c") == wire.encode_journal(stimulus, cases.AT, "c")


def spelled(stimulus: told.Stimulus) -> str:
    """Types and values to the last bit, less how pydantic spells UTC."""
    return repr(stimulus).replace("TzInfo(0)", "datetime.timezone.utc")


def test_a_gap_in_restored_history_stays_a_gap() -> None:
    memory = replace(cases.MEMORY, quantiles={"0.5": 1.0, "1": math.inf})
    restored = told.Restored((), (), (memory,), (), (), synced=False, at=cases.AT)
    got = back(restored)
    assert isinstance(got, told.Restored)
    assert math.isnan(got.pools[0].history[1])
    assert math.isinf(got.pools[0].quantiles["1"])
    assert spelled(got) == spelled(restored)


@given(st.floats(), st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - the strategy wants naive bounds
def test_floats_and_moments_are_exact(number: float, moment: datetime) -> None:
    got = back(told.DemandReported(DemandSample("p", number, moment)))
    assert isinstance(got, told.DemandReported)
    assert struct.pack("d", got.demand.gpus) == struct.pack("d", number) or math.isnan(number)
    assert math.isnan(got.demand.gpus) == math.isnan(number)
    assert got.demand.at == moment


@given(st.timedeltas(timedelta(days=-9999), timedelta(days=9999)))
def test_durations_are_exact(length: timedelta) -> None:
    pools = {"p": PoolPolicy("p", "A100", OwnerClass.INFERENCE, cold_start=length)}
    assert back(told.PolicyAdopted(Policy(pools), "d")) == told.PolicyAdopted(Policy(pools), "d")


def test_numbers_of_a_because_keep_their_types() -> None:
    because = Because(Reason.FLOOR, {"a": 1, "b": 1.0, "c": "1"})
    outcome = told.OutcomeReported(Outcome("p", "q", 0, "k", "t", Result.DONE, because, cases.AT))
    got = back(outcome)
    assert isinstance(got, told.OutcomeReported)
    assert [type(each) for each in got.outcome.because.numbers.values()] == [int, float, str]
