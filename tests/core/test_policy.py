"""What a legal policy is: each rule with its path, and the defaults of the design are legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import time, timedelta
from typing import Any

import pytest

from rebalancer.core.policy import Activities, Policy, PoolPolicy, problems
from rebalancer.core.units import Mode, OwnerClass
from rebalancer.core.windows import Window
from tests.core.build import ZONE, policy, pool_policy

POOL = "infer-a100"
Change = Callable[[Policy], Policy]


def pool(**changes: Any) -> Change:
    return lambda base: replace(base, pools={**base.pools, POOL: replace(base.pools[POOL], **changes)})


def part(name: str, **changes: Any) -> Change:
    return lambda base: replace(base, **{name: replace(getattr(base, name), **changes)})


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_the_defaults_of_the_design_are_legal() -> None:
    assert problems(policy()) == ()


def test_the_defaults_are_those_of_the_design() -> None:
    """DESIGN 7, number by number."""
    base = policy()
    act, pace, lend, signals = base.activities, base.pace, base.borrowing, base.signals
    assert (act.dwell, act.freshness, act.idle_below, act.busy_from) == (minutes(20), minutes(3), 0.05, 0.15)
    assert (act.frozen_scrapes, signals.debounce, signals.debounce_samples) == (5, minutes(1), 3)
    assert lend.min_age == timedelta(seconds=10)
    assert (lend.max_loan, lend.min_runtime, lend.lead_time) == (minutes(480), minutes(10), minutes(20))
    assert (lend.cooldown, lend.cooldown_max, lend.preemptions_per_day) == (minutes(15), minutes(60), 3)
    assert (pace.evictions_per_second, pace.eviction_burst, pace.circuit_share) == (10.0, 64, 0.25)
    assert (pace.nodes_per_pool, pace.nodes_per_cluster, pace.per) == (20, 60, minutes(10))
    fresh = PoolPolicy("p", "A100", OwnerClass.INFERENCE)
    assert (fresh.mode, fresh.floor_nodes, fresh.floor_share, fresh.target_utilisation) == (Mode.SHADOW, 1, 0.2, 0.7)
    assert (fresh.believe_idle_without_witness, fresh.lends_to, pace.recall_while_paused) == (False, (), True)


NIGHT = Window("night", ZONE, time(22), time(6), end_days=1)
WRONG: list[tuple[str, Change]] = [
    ("pools", lambda base: replace(base, pools={})),
    ("pools.infer-a100.floor_share", pool(floor_share=1.01)),
    ("pools.infer-a100.floor_share", pool(floor_share=-0.01)),
    ("pools.infer-a100.floor_nodes", pool(floor_nodes=-1)),
    ("pools.infer-a100.target_utilisation", pool(target_utilisation=0.0)),
    ("pools.infer-a100.target_utilisation", pool(target_utilisation=1.01)),
    ("pools.infer-a100.shortage_budget", pool(shortage_budget=1.0)),
    ("pools.infer-a100.shortage_budget", pool(shortage_budget=-0.1)),
    ("pools.infer-a100.cold_start", pool(cold_start=minutes(-1))),
    ("pools.infer-a100.model", pool(model="B9000")),
    ("pools.infer-a100.windows", pool(windows=())),
    ("pools.infer-a100.owner", pool(owner=OwnerClass.UNKNOWN, lends_to=())),
    ("pools.infer-a100.lends_to", pool(lends_to=(OwnerClass.INFERENCE,))),
    ("pools.infer-a100.lends_to", pool(owner=OwnerClass.TRAINING)),
    ("pools.infer-a100.windows[1]", pool(windows=(NIGHT, replace(NIGHT, end=time(22), end_days=0)))),
    ("activities.idle_below", part("activities", idle_below=0.15)),
    ("activities.idle_below", part("activities", idle_below=0.0)),
    ("activities.idle_below", part("activities", busy_from=1.01)),
    ("activities.dwell", part("activities", dwell=minutes(3))),
    ("activities.freshness", part("activities", freshness=timedelta(0))),
    ("activities.frozen_scrapes", part("activities", frozen_scrapes=1)),
    ("pace.evictions_per_second", part("pace", evictions_per_second=0.0)),
    ("pace.eviction_burst", part("pace", eviction_burst=0)),
    ("pace.nodes_per_pool", part("pace", nodes_per_pool=0)),
    ("pace.nodes_per_cluster", part("pace", nodes_per_cluster=19)),
    ("pace.circuit_share", part("pace", circuit_share=0.0)),
    ("pace.circuit_share", part("pace", circuit_share=1.01)),
    ("borrowing.min_age", part("borrowing", min_age=timedelta(seconds=-1))),
    ("borrowing.min_age", part("borrowing", min_age=minutes(480))),
    ("borrowing.min_runtime", part("borrowing", min_runtime=timedelta(0))),
    ("borrowing.cooldown", part("borrowing", cooldown=timedelta(0))),
    ("borrowing.cooldown", part("borrowing", cooldown=minutes(61))),
    ("borrowing.preemptions_per_day", part("borrowing", preemptions_per_day=0)),
    ("borrowing.max_loan", part("borrowing", max_loan=minutes(30))),
    ("borrowing.max_grace", part("borrowing", max_grace=minutes(21))),
    ("signals.debounce_samples", part("signals", debounce_samples=0)),
    ("signals.debounce", part("signals", debounce=minutes(3))),
    ("signals.history", part("signals", history=minutes(9))),
    ("signals.history", part("signals", bucket=timedelta(0))),
    ("acting.retry_first", part("acting", retry_first=minutes(2))),
]


@pytest.mark.parametrize(
    ("path", "change"), [pytest.param(*row, id=f"{index:02} {row[0]}") for index, row in enumerate(WRONG)]
)
def test_what_is_wrong_is_told_with_its_path(path: str, change: Change) -> None:
    found = problems(change(policy()))
    assert path in [item.path for item in found]
    assert all(item.message for item in found)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(pool(floor_share=0.0, floor_nodes=0), id="no floor"),
        pytest.param(pool(floor_share=1.0), id="all of it kept"),
        pytest.param(pool(target_utilisation=1.0), id="full"),
        pytest.param(pool(shortage_budget=0.0), id="no shortage allowed"),
        pytest.param(pool(model=""), id="no model named"),
        pytest.param(pool(lends_to=(), windows=()), id="a pool that never lends needs no window"),
        pytest.param(pool(owner=OwnerClass.TRAINING, lends_to=()), id="a training pool"),
        pytest.param(part("activities", dwell=timedelta(seconds=181)), id="a dwell just above freshness"),
        pytest.param(part("activities", frozen_scrapes=2), id="two scrapes"),
        pytest.param(part("pace", nodes_per_cluster=20, eviction_burst=1, circuit_share=1.0), id="tight caps"),
        pytest.param(part("pace", nodes_per_pool=1), id="one node at a time"),
        pytest.param(part("borrowing", cooldown=minutes(60), max_grace=minutes(20)), id="equal bounds"),
        pytest.param(part("borrowing", max_loan=minutes(30.1), preemptions_per_day=1), id="the shortest loan"),
        pytest.param(part("signals", debounce=timedelta(seconds=179), debounce_samples=1), id="the longest debounce"),
        pytest.param(part("signals", history=minutes(10)), id="ten buckets"),
        pytest.param(part("acting", retry_first=timedelta(seconds=60)), id="a constant retry"),
    ],
)
def test_what_just_holds_is_legal(change: Change) -> None:
    assert problems(change(policy())) == ()


def test_several_problems_come_in_the_order_of_the_file() -> None:
    wrong = part("pace", eviction_burst=0)(pool(floor_nodes=-1, cold_start=minutes(-1))(policy()))
    assert [item.path for item in problems(wrong)] == [
        "pools.infer-a100.floor_nodes", "pools.infer-a100.cold_start", "pace.eviction_burst",
    ]  # fmt: skip


def test_a_debounce_that_outlives_what_it_counts_never_acts_and_is_refused() -> None:
    """F48."""
    found = problems(replace(policy(pool_policy()), activities=Activities(freshness=timedelta(seconds=60))))
    assert [item.path for item in found] == ["signals.debounce"]
