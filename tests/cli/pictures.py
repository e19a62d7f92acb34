"""A small fleet as the view gets it: eight inference nodes, two of them lent, and three training nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rebalancer.core.instructions import PoolState
from rebalancer.simulate.stepview import NodeSquare, RibbonSample, Standing, StepView, Told
from tests.cli import night

START = datetime(2026, 3, 3, 18, 0, tzinfo=UTC)
STEPS = 1440
SENTENCE = "8 GPUs of a-1 were idle for 25 min with 3 nodes to spare, lent to research/llm-7 until 06:00Z"


def nodes(pool: str = "infer-a100", count: int = 8) -> tuple[NodeSquare, ...]:
    """Two lent (one of them half used), one closing, one lost, one unknown in part, the rest at home."""
    known = {
        0: ("training", Standing.LENT, 8, 0, 0),
        1: ("training", Standing.LENT, 4, 4, 0),
        2: ("training", Standing.CLOSING, 8, 0, 0),
        3: ("inference", Standing.AWAY, 0, 8, 0),
        4: ("inference", Standing.HOME, 2, 5, 1),
    }
    made = []
    for index in range(count):
        user, standing, busy, idle, unknown = known.get(index, ("inference", Standing.HOME, 8, 0, 0))
        made.append(NodeSquare(f"{pool}-{index}", pool, user, standing, busy, idle, unknown))
    return tuple(made)


def pools(count: int = 8) -> tuple[PoolState, ...]:
    lending = replace(night.pool_state(), owned=8 * count, lent=16)
    return (lending, replace(lending, pool="train-a100", owned=24, lent=0, window_open=False, pending=16))


def picture(step: int, *, count: int = 8, demand: float = 40.0, decisions: tuple[Told, ...] = ()) -> StepView:
    moment = START + timedelta(minutes=step)
    training = tuple(NodeSquare(f"t-{i}", "train-a100", "training", Standing.HOME, 8, 0) for i in range(3))
    ribbon = RibbonSample(moment, 8 * count, 16, demand)
    return StepView(step, STEPS, START, moment, pools(count), nodes(count=count) + training, ribbon, decisions)


def told(minute: int) -> Told:
    return Told("aaaa0001", START + timedelta(minutes=minute), "infer-a100", "lend", SENTENCE)
