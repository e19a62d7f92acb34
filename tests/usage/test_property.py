"""Whatever happens in whatever order: hours add up to the capacity, and restarts and replays change nothing.

A stranger who has only the records comes to the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rebalancer.core.charges import PoolUsage
from rebalancer.core.engine import Engine
from rebalancer.core.instructions import RecordUsage
from rebalancer.core.plan import Result
from rebalancer.core.units import Activity
from tests.core.build import policy
from tests.usage.client import differences_of
from tests.usage.ground import CLUSTER, POOL, Ground, in_force

NAMES = ("n0", "n1")


class Deed(NamedTuple):
    """Something that happens on a node after so many minutes."""

    minutes: float
    what: str
    name: str
    choice: int


def _loan(ground: Ground, name: str, choice: int) -> None:
    """Lend the node, or let one of the things happen that happen to loans."""
    mark = ground.nodes[name].loan
    if mark is None:
        ground.wait(f"g{choice % 2}-{name}")
        ground.lend(name, f"loan-{name}-{ground.now.isoformat()}", f"ml/g{choice % 2}-{name}")
    elif choice % 3 == 0:
        ground.restore(name, mark.loan)
    elif ground.engine.state.loans[mark.loan].closing_at is None:
        ground.report("close", name, mark.loan)
    else:
        ground.report("close", name, mark.loan, Result.CANCELLED)


def _nothing(ground: Ground, name: str, choice: int) -> None:
    """Only time passes."""


DEEDS: dict[str, Callable[[Ground, str, int], object]] = {
    "serve": lambda ground, name, choice: ground.serve(f"r-{name}-{choice % 2}", name, gpus=(2, 4, 8)[choice % 3]),
    "train": lambda ground, name, choice: ground.train(f"g{choice % 2}-{name}", name, gpus=(2, 8)[choice % 2]),
    "end": lambda ground, name, choice: ground.end(
        (f"r-{name}-{choice % 2}", f"g{choice % 2}-{name}")[choice // 2 % 2]
    ),
    "node": lambda ground, name, choice: ground.change(
        name, ready=choice % 5 != 0, cordoned=choice % 3 == 0, gpus=8 - choice % 2
    ),
    "judge": lambda ground, name, choice: ground.judge(name, list(Activity)[choice % 3]),
    "loan": _loan,
    "time": _nothing,
}
DEED = st.builds(
    Deed, st.sampled_from([0.5, 3.25, 17.0, 45.0]), st.sampled_from(sorted(DEEDS)), st.sampled_from(NAMES),
    st.integers(0, 29),
)  # fmt: skip
LATER = st.lists(DEED, min_size=1, max_size=25)


def lived(deeds: Iterable[Deed], restarts: frozenset[int] = frozenset()) -> Ground:
    """All of it, with another decider after each deed of these numbers, until everything is told."""
    ground = Ground()
    minutes = 0.0
    for number, deed in enumerate(deeds):
        minutes += deed.minutes
        ground.at(minutes)
        DEEDS[deed.what](ground, deed.name, deed.choice)
        ground.at(minutes)
        if number in restarts:
            ground.restart()
    ground.at(minutes + 61)
    ground.at(minutes + 62)
    return ground


@settings(max_examples=60, deadline=None)
@given(deeds=LATER)
def test_the_parts_of_every_hour_add_up_to_its_capacity(deeds: list[Deed]) -> None:
    pools = [one for one in in_force(lived(deeds).charges).values() if isinstance(one, PoolUsage)]
    assert pools
    for hour in pools:
        parts = (hour.own_gpu_seconds, hour.lent_gpu_seconds, hour.transit_gpu_seconds, hour.idle_gpu_seconds)
        assert min(*parts, hour.unhealthy_gpu_seconds) >= 0
        assert round((sum(parts) + hour.unhealthy_gpu_seconds) * 1000) == round(hour.capacity_gpu_seconds * 1000)
        assert hour.capacity_gpu_seconds == 16 * (hour.until - hour.since).total_seconds()


@settings(max_examples=60, deadline=None)
@given(deeds=LATER, restarts=st.frozensets(st.integers(0, 24), min_size=1, max_size=3))
@example(  # a verdict counts from when it was given, also if it is known when the node is told once more
    deeds=[Deed(3.25, "train", "n1", 25), Deed(0.5, "loan", "n1", 6), Deed(3.25, "judge", "n1", 15)],
    restarts=frozenset({2}),
)
@example(  # a loan that nothing counts of yet, its node is not ready, keeps the name of its gang
    deeds=[
        Deed(3.25, "node", "n1", 5), Deed(17.0, "loan", "n1", 5), Deed(0.5, "end", "n1", 11),
        Deed(17.0, "node", "n1", 14),
    ],
    restarts=frozenset({3}),
)  # fmt: skip
@example(  # a verdict goes on counting when the node is told with a later change
    deeds=[
        Deed(3.25, "judge", "n0", 12), Deed(0.5, "loan", "n0", 29), Deed(3.25, "train", "n0", 24),
        Deed(17.0, "judge", "n0", 24),
    ],
    restarts=frozenset({3}),
)  # fmt: skip
def test_restarts_at_any_point_change_nothing(deeds: list[Deed], restarts: frozenset[int]) -> None:
    assert in_force(lived(deeds, restarts).charges) == in_force(lived(deeds).charges)


@settings(max_examples=30, deadline=None)
@given(deeds=LATER, restart=st.integers(0, 24))
def test_a_replay_tells_the_same_records(deeds: list[Deed], restart: int) -> None:
    ground = lived(deeds, frozenset({restart}))
    engines: list[Engine] = []
    told: list[Any] = []
    for stimulus, now in ground.journal:
        if stimulus.kind == "policy-adopted":
            engines.append(Engine(CLUSTER, policy()))
        told += [one.charge for one in engines[-1].handle(stimulus, now) if isinstance(one, RecordUsage)]
    assert told == ground.charges


@settings(max_examples=60, deadline=None)
@given(deeds=LATER)
def test_a_stranger_comes_to_the_same_sums(deeds: list[Deed]) -> None:
    ground = lived(deeds)
    assert {line[0] for line in in_force(ground.charges)} >= {POOL}
    assert differences_of(ground.records) == []
