"""What each hour of a pool and of a loan comes to, case by case; all amounts in GPU-seconds, nodes of 8 GPUs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rebalancer.core.charges import LoanUsage
from rebalancer.core.plan import Result
from rebalancer.core.stimuli import VerdictGiven
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity
from tests.core.build import node
from tests.usage.ground import HOUR, POOL, START, Ground, in_force, sums

TEN = START.replace(minute=0) + HOUR
"""22:00, half an hour after the beginning; minutes below count from 21:30."""
Case = Callable[[Ground], object]
Lines = dict[tuple[str, str, int], dict[str, float]]
"""By pool or loan, gang, and hours since 21:00."""
NODE_HOUR = 8 * 3600.0


def _over_the_hour(ground: Ground) -> None:
    ground.at(10)
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(20)
    ground.judge("n0", Activity.BUSY)
    ground.at(50)
    ground.judge("n0", Activity.IDLE)
    ground.at(60)
    ground.end("g")
    ground.report("close", "n0", "loan-1")
    ground.at(61)
    ground.restore("n0", "loan-1")


def _closed_in_mid_hour(ground: Ground) -> None:
    ground.at(5)
    ground.lend("n0", "loan-1")
    ground.at(10)
    ground.report("close", "n0", "loan-1")
    ground.at(15)
    ground.report("close", "n0", "loan-1", Result.CANCELLED)
    ground.at(20)
    ground.restore("n0", "loan-1")


def _evicted(ground: Ground) -> None:
    ground.at(5)
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(15)
    ground.evicted("ml/g", 480.5)
    ground.evicted("ml/g", 480.5)
    ground.at(20)
    ground.end("g")
    ground.restore("n0", "loan-1")


def _node_lost(ground: Ground) -> None:
    ground.at(10)
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(20)
    ground.gone("node", "uid-n0")


def _not_ready(ground: Ground) -> None:
    ground.at(5)
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(10)
    ground.change("n0", ready=False)
    ground.at(20)
    ground.change("n0", ready=True)
    ground.at(25)
    ground.end("g")
    ground.restore("n0", "loan-1")


def _half_a_node(ground: Ground) -> None:
    ground.serve("r", "n0", gpus=4)
    ground.at(10)
    ground.change("n0", cordoned=True)
    ground.at(20)
    ground.change("n0", cordoned=False, gpus=6)


def _another_gang(ground: Ground) -> None:
    ground.at(0)
    ground.lend("n0", "loan-1", "ml/late")
    ground.train("g", "n0", gpus=6)
    ground.at(10)
    ground.end("g")
    ground.restore("n0", "loan-1")


def _rest(minutes: float, nodes: int = 1) -> float:
    return 8 * 60.0 * minutes * nodes


CASES: list[tuple[str, Case, Lines]] = [
    ("nothing happens", lambda _: None, {(POOL, "", 0): {"capacity": NODE_HOUR, "idle": NODE_HOUR}}),
    ("a loan over an hour's end is told in both", _over_the_hour, {
        (POOL, "", 0): {"capacity": NODE_HOUR, "idle": _rest(30) + _rest(10), "lent": _rest(20)},
        (POOL, "", 1): {"capacity": 2 * NODE_HOUR, "idle": _rest(60) + _rest(29), "lent": _rest(30), "transit": 480.0},
        ("loan-1", "ml/g", 0): {"allocated": _rest(20), "busy": _rest(10)},
        ("loan-1", "ml/g", 1): {"allocated": _rest(30), "busy": _rest(20), "transit": 480.0},
    }),
    ("a loan closed in mid-hour, reopened once", _closed_in_mid_hour, {
        (POOL, "", 0): {"capacity": NODE_HOUR, "idle": _rest(45), "lent": _rest(10), "transit": _rest(5)},
        ("loan-1", "ml/g", 0): {"unused": _rest(10), "transit": _rest(5)},
    }),
    ("a gang evicted with lost work, told twice", _evicted, {
        (POOL, "", 0): {"capacity": NODE_HOUR, "idle": _rest(45), "lent": _rest(15)},
        ("loan-1", "ml/g", 0): {"allocated": _rest(15), "lost": 480.5},
    }),
    ("a node lost on loan", _node_lost, {
        (POOL, "", 0): {"capacity": _rest(50), "idle": _rest(40), "lent": _rest(10)},
        ("loan-1", "ml/g", 0): {"allocated": _rest(10)},
    }),
    ("a node on loan that is not ready for a while is nobody's", _not_ready, {
        (POOL, "", 0): {"capacity": NODE_HOUR, "idle": _rest(40), "lent": _rest(10), "unhealthy": _rest(10)},
        ("loan-1", "ml/g", 0): {"allocated": _rest(10)},
    }),
    ("half a node cordoned, then two GPUs missing", _half_a_node, {
        (POOL, "", 0): {
            "capacity": NODE_HOUR, "own": 4 * 1800.0, "idle": _rest(30) + 2400.0 + 1200.0,
            "unhealthy": 2400.0 + 1200.0,
        },
    }),
    ("another gang than the one that the loan was made for", _another_gang, {
        (POOL, "", 0): {"capacity": NODE_HOUR, "idle": _rest(50), "lent": _rest(10)},
        ("loan-1", "ml/g", 0): {"allocated": 3600.0},
        ("loan-1", "ml/late", 0): {"unused": 1200.0},
    }),
]  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True], ids=["one decider", "another decider in between"])
@pytest.mark.parametrize(("case", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_hour_comes_to(case: Case, wanted: Lines, *, restarts: bool) -> None:
    ground = Ground()
    case(ground)
    if restarts:
        ground.restart()
    ground.at(31)
    ground.at(32)
    if restarts:
        ground.restart()
    ground.at(91.0)
    ground.at(92)
    lines = {
        (name, gang, (hour - TEN + HOUR) // HOUR): sums(charge)
        for (name, gang, hour), charge in in_force(ground.charges).items()
    }
    mine = {line: lines.get(line) for line in wanted}
    assert mine == wanted
    assert {line for line in lines if line[0] != POOL} == {line for line in wanted if line[0] != POOL}


def test_a_late_fact_corrects_an_hour_that_was_told_and_names_what_it_corrects() -> None:
    ground = Ground()
    (told,) = ground.at(31)
    ground.serve("r", "n0", late=6)
    (again,) = ground.at(32)
    assert (again.corrects, again.id != told.id) == (told.id, True)
    assert sums(again) == {"capacity": NODE_HOUR, "idle": NODE_HOUR - 8 * 300, "own": 8 * 300}
    assert ground.at(33) == []


def test_what_is_later_than_corrections_go_back_counts_from_there() -> None:
    ground = Ground()
    for minutes in (31, 91, 151, 211, 271, 331):
        ground.at(minutes)
    ground.serve("r", "n0", late=320)
    corrected = [charge for charge in ground.at(332) if charge.corrects]
    assert [charge.since for charge in corrected] == [TEN + hours * HOUR for hours in (2, 3, 4)]
    assert {sums(charge)["own"] for charge in corrected} == {NODE_HOUR}


def test_a_decider_that_was_away_for_hours_tells_them_all_as_they_went_on() -> None:
    ground = Ground()
    ground.serve("r", "n0")
    ground.at(20)
    ground.now += 4 * HOUR
    ground.restart()
    ground.at(30 + 240 + 1)
    lines = in_force(ground.charges)
    assert [hour for _, _, hour in sorted(lines)] == [TEN + hours * HOUR for hours in range(-1, 4)]
    assert sums(lines[POOL, "", TEN + HOUR]) == {"capacity": 2 * NODE_HOUR, "own": NODE_HOUR, "idle": NODE_HOUR}


def test_what_happened_while_nobody_decided_counts_from_when_it_happened() -> None:
    ground = Ground()
    ground.at(5)
    ground.deciding = False
    ground.at(15)
    ground.serve("r", "n0")
    ground.at(25)
    ground.end("r")
    ground.restart()
    ground.at(31)
    assert sums(in_force(ground.charges)[POOL, "", TEN - HOUR])["own"] == 8 * 600.0


def test_a_fact_that_is_ahead_of_the_clock_waits_for_it() -> None:
    ground = Ground()
    ground.at(10)
    ground.serve("r", "n0", late=-10)
    ground.at(31)
    assert sums(in_force(ground.charges)[POOL, "", TEN - HOUR])["own"] == 8 * 600.0


def test_a_restart_after_an_hour_was_told_tells_nothing_anew() -> None:
    ground = Ground()
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(31)
    told = ground.charges
    ground.restart()
    ground.at(32)
    assert ground.charges == told


def test_an_hour_told_again_by_a_decider_that_does_not_know_it_was_has_the_same_id() -> None:
    ground = Ground()
    ground.at(10)
    before = list(ground.records)
    (told,) = ground.at(31)
    ground.records = before
    ground.restart()
    (again,) = ground.at(32)
    assert again == told


def test_a_borrower_is_named_by_namespace_and_queue_also_when_it_is_gone() -> None:
    ground = Ground()
    ground.lend("n0", "loan-1")
    ground.train("g", "n0")
    ground.at(10)
    ground.end("g")
    ground.restore("n0", "loan-1")
    ground.restart()
    (charge,) = [one for one in ground.at(12) if isinstance(one, LoanUsage)]
    assert (charge.borrower_namespace, charge.borrower_queue, charge.model) == ("ml", "research", "A100")
    assert (charge.since, charge.until) == (START, START + timedelta(minutes=10))


def test_what_telemetry_said_before_its_node_was_known_counts_from_when_it_said_it() -> None:
    ground = Ground()
    ground.at(5)
    late = node("late")
    ground.tell(VerdictGiven(Verdict(late.uid, Activity.BUSY, 8.0, 8, ground.now, ground.now)))
    ground.nodes["late"] = late
    ground.see(late, late=2)
    ground.lend("late", "loan-1")
    ground.train("g", "late")
    ground.at(31)
    (charge,) = [one for one in ground.charges if isinstance(one, LoanUsage)]
    assert (charge.allocated_gpu_seconds, charge.busy_gpu_seconds) == (8 * 25 * 60.0, 8 * 25 * 60.0)
