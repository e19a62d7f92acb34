"""The gate: open when every input of a step is there, deaf to repeats, and able to resume."""

from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.adapters.streams.gate import BarrierGate, ImmediateGate, decide_inputs
from rebalancer.adapters.translate import Barrier
from rebalancer.wire import v1

START = datetime(2026, 3, 2, 22, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
INPUTS = frozenset({("facts", ""), (v1.STATE_NODE, "0"), (v1.STATE_NODE, "1"), (v1.OUTCOME, "")})


def feed(gate: BarrierGate, step: int) -> list[Barrier | None]:
    """All barriers of a step in one order; act's answer to the step before comes last."""
    now = START + step * MINUTE
    told = [gate.arrived("facts", Barrier(step, now))]
    told += [gate.arrived(v1.STATE_NODE, Barrier(step, now, source)) for source in ("0", "1")]
    return [*told, gate.arrived(v1.OUTCOME, Barrier(step - 1, now - MINUTE))]


def test_it_opens_once_when_the_last_input_arrives() -> None:
    assert feed(BarrierGate(INPUTS, START), 1) == [None, None, None, Barrier(1, START + MINUTE)]


def test_time_stands_still_until_the_step_is_complete() -> None:
    gate = BarrierGate(INPUTS, START)
    gate.arrived("facts", Barrier(1, START + MINUTE))
    assert gate.now() == START
    feed(gate, 1)
    assert gate.now() == START + MINUTE


def test_the_time_is_the_steps_even_if_the_answer_to_the_step_before_comes_last() -> None:
    gate = BarrierGate(INPUTS, START)
    assert feed(gate, 1)[-1] == Barrier(1, START + MINUTE)


def test_a_repeat_inside_a_step_does_not_open_it() -> None:
    gate = BarrierGate(INPUTS, START)
    assert [gate.arrived("facts", Barrier(1, START + MINUTE)) for _ in range(9)] == [None] * 9


def test_a_repeat_of_the_last_step_is_answered_again() -> None:
    gate = BarrierGate(INPUTS, START)
    feed(gate, 1)
    assert gate.arrived("facts", Barrier(1, START + MINUTE)) == Barrier(1, START + MINUTE)


def test_a_repeat_of_an_older_step_is_not() -> None:
    gate = BarrierGate(INPUTS, START)
    feed(gate, 1)
    feed(gate, 2)
    assert gate.arrived("facts", Barrier(1, START + MINUTE)) is None


def test_it_resumes_behind_the_step_that_was_answered_before_a_restart() -> None:
    gate = BarrierGate(INPUTS, START)
    gate.resume(Barrier(7, START + 7 * MINUTE))
    assert (gate.step, gate.now()) == (7, START + 7 * MINUTE)
    assert feed(gate, 8)[-1] == Barrier(8, START + 8 * MINUTE)


def test_what_is_missing_can_be_named() -> None:
    gate = BarrierGate(INPUTS, START)
    gate.arrived("facts", Barrier(1, START))
    assert gate.missing(1) == sorted(INPUTS - {("facts", "")})


def test_steps_far_ahead_are_not_collected_without_bound() -> None:
    gate = BarrierGate(INPUTS, START)
    for step in range(1, 100):
        gate.arrived("facts", Barrier(step, START))
    assert len(gate._arrived) <= BarrierGate.AHEAD


def test_in_production_barriers_mean_nothing() -> None:
    assert ImmediateGate().arrived("facts", Barrier(1, START)) is None
    assert ImmediateGate().now().tzinfo is UTC


@pytest.mark.parametrize("topic", [*v1.FACT_TOPICS.values(), v1.CONTROL, v1.SAMPLE_DEMAND, v1.OUTCOME])
def test_decide_waits_for_every_topic_that_a_decision_needs(topic: str) -> None:
    assert (topic, "") in decide_inputs(range(4))
