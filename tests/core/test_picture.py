"""The public picture of a pool: sums, what keeps idle GPUs from being lent, and the hindsight of shadow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core import ledger, picture
from rebalancer.core.facts import Control
from rebalancer.core.headroom import Headroom, RollingMin
from rebalancer.core.instructions import PoolState, RecordForecast, RecordPool
from rebalancer.core.look import Look, look
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import TimePassed
from rebalancer.core.units import Activity, Mode
from tests.core.build import START, Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"


def fleet(**changes: Any) -> Rig:
    """Busy, idle, unknown, unusable and lent nodes, one of each; n1 is half full."""
    rig = Rig(policy(pool_policy(**changes)))
    rig.sync(
        *(node(f"n{i}") for i in range(3)), node("n3", ready=False), lent(node("n4")),
        replica("chat", on="n0"), replica("half", on="n1", gpus=4, deleting_at=START), *gang("g", on=["n4"]),
    )  # fmt: skip
    rig.busy("n0")
    rig.idle("n1")
    rig.judge(Activity.UNKNOWN, None, ["n2"], rig.now)
    return rig


def seen(rig: Rig) -> Look:
    found = look(rig.engine.state, POOL, [], rig.now)
    assert found is not None
    return found


def pictured(rig: Rig) -> PoolState:
    return picture.picture(rig.engine.state, seen(rig), rig.now)


def test_the_sums() -> None:
    found = pictured(fleet())
    assert (found.owned, found.busy, found.idle, found.unknown, found.unhealthy) == (40, 8, 8, 8, 8)
    assert found.busy + found.idle + found.unknown + found.unhealthy + found.lent == found.owned
    assert (found.held, found.free, found.releasing, found.pending) == (20, 12, 4, 0)
    assert (found.lent, found.borrowed, found.lent_nodes, found.nodes, found.floor_nodes) == (8, 8, 1, 5, 1)
    assert (found.demand, found.headroom, found.mode, found.window_open) == (12.0, 4.0, "act", True)


@pytest.mark.parametrize(
    ("changes", "opens"), [({}, True), ({"windows": ()}, False)], ids=["an open window", "none at all"]
)
def test_whether_a_window_is_open(changes: dict[str, Any], opens: bool) -> None:
    assert pictured(fleet(**changes)).window_open is opens


def test_idle_gpus_by_what_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = fleet()
    assert pictured(rig).idle_blockers == {"held": 4, "telemetry-unknown": 8}
    rig.idle("n2")
    assert pictured(rig).idle_blockers == {"headroom": 8, "held": 4}
    for _ in range(21):
        rig.now += timedelta(minutes=1)
        seen(rig)
        rig.idle("n1", "n2")
    monkeypatch.setattr(RollingMin, "minimum", lambda *_: 99.0)
    assert pictured(rig).idle_blockers == {"held": 4, "no-eligible-borrower": 8}


@pytest.mark.parametrize(
    ("changes", "control", "reason"),
    [
        pytest.param({"lends_to": ()}, None, Reason.NOT_LENDING_POOL, id="it does not lend"),
        pytest.param({}, Control(paused=True), Reason.PAUSED, id="paused"),
        pytest.param({"windows": ()}, None, Reason.WINDOW_CLOSED, id="no window"),
        pytest.param({"floor_nodes": 5}, None, Reason.FLOOR, id="the floor"),
    ],
)
def test_what_holds_for_the_whole_pool_comes_first(
    changes: dict[str, Any], control: Control | None, reason: Reason
) -> None:
    rig = fleet(**changes)
    if control is not None:
        rig.see(control)
    assert pictured(rig).idle_blockers == {reason.value: 12}


def test_idle_gpu_hours_accumulate_by_blocker_and_begin_anew_each_utc_day() -> None:
    rig = fleet()
    watch = rig.engine.state.watches[POOL]
    for _ in range(3):
        found = pictured(rig)
        watch.last_published = rig.now
        rig.now += timedelta(minutes=3)
    assert found.idle_gpu_hours == {"held": pytest.approx(4 * 0.1), "telemetry-unknown": pytest.approx(8 * 0.1)}
    rig.now = START + timedelta(hours=2, minutes=1)
    watch.last_published = rig.now - timedelta(seconds=90)
    assert pictured(rig).idle_gpu_hours == {"held": 0.1, "telemetry-unknown": 0.2}


def test_a_gap_between_two_looks_credits_no_more_than_five_minutes() -> None:
    rig = fleet()
    watch = rig.engine.state.watches[POOL]
    watch.idle_day, watch.last_published = START.date().isoformat(), START - timedelta(hours=1)
    assert pictured(rig).idle_gpu_hours == {"held": round(4 / 12, 4), "telemetry-unknown": round(8 / 12, 4)}


def test_occupancy_over_three_windows() -> None:
    rig = fleet()
    pictured(rig)
    rig.now += timedelta(minutes=5)
    rig.lose("pod", "uid-chat", "uid-half", "uid-g-0")
    found = pictured(rig).occupancy
    assert found == {"1m": 0.5, "10m": 0.5, "1h": 0.5}
    rig.now += timedelta(minutes=5)
    assert pictured(rig).occupancy == {"1m": 0.0, "10m": 0.25, "1h": 0.25}


def virtual(rig: Rig) -> Rig:
    """n2 is lent in shadow."""
    loan = replace(rig.loans["loan-n4"], id="v", node="uid-n2", node_name="n2", mode=Mode.SHADOW)
    ledger.keep(rig.engine.state, loan)
    return rig


def test_shadow_is_scored_in_hindsight() -> None:
    """Lent GPU-hours, and those of them that demand wanted meanwhile."""
    rig = virtual(fleet())
    state = rig.engine.state
    first = seen(rig)
    picture.account(state, first, rig.now)
    rig.now += timedelta(minutes=3)
    second = seen(rig)
    picture.account(state, replace(second, demand=replace(second.demand, told=second.ready + 2.0)), rig.now)
    assert pictured(rig).shadow == {"gpu_hours_lent": 0.4, "gpu_hours_missed": 0.1}


def test_virtual_loans_are_not_lent_gpus() -> None:
    found = pictured(virtual(fleet()))
    assert (found.lent, found.lent_nodes) == (8, 1)


@pytest.mark.parametrize(
    ("unmet", "minutes", "shortage"),
    [(0, 1, 0.0), (1, 1, 180.0), (4, 1, 480.0), (1, 60, 900.0)],
    ids=["none", "what waits without room", "no more than what is away", "a gap counts five minutes"],
)
def test_shortage_is_what_waits_while_nodes_are_away(
    monkeypatch: pytest.MonkeyPatch, unmet: int, minutes: float, shortage: float
) -> None:
    told: list[tuple[float, ...]] = []
    monkeypatch.setattr(Headroom, "account", lambda _, *numbers: told.append(numbers))
    rig = fleet()
    picture.account(rig.engine.state, seen(rig), rig.now)
    rig.now += timedelta(minutes=minutes)
    pods = tuple(replica(f"new-{index}", gpus=3) for index in range(unmet))
    picture.account(rig.engine.state, replace(seen(rig), unmet_now=pods), rig.now)
    picture.account(rig.engine.state, seen(rig), rig.now)
    assert told == [(shortage, 12.0 * min(minutes, 5) * 60, 1e-3)]


@pytest.mark.parametrize(
    ("budget", "returns", "share"),
    [
        pytest.param(0.005, [], 0.005, id="the policy's"),
        pytest.param(None, [180.0], 1e-4, id="a return of up to three minutes"),
        pytest.param(None, [181.0], 1e-3, id="a longer one"),
        pytest.param(None, [], 1e-3, id="not learnt yet"),
    ],
)
def test_the_shortage_budget_in_force(budget: float | None, returns: list[float], share: float) -> None:
    rig = fleet(shortage_budget=budget)
    rig.engine.state.returns[POOL] = returns  # type: ignore[assignment]  # read only here
    assert picture.budget_of(rig.engine.state, seen(rig)) == share


def test_pictures_come_once_a_minute_and_forecasts_every_ten() -> None:
    rig = fleet()
    pools: list[int] = []
    forecasts: list[int] = []
    for second in range(0, 1260, 30):
        made = rig.tell(TimePassed())
        pools += [second for item in made if isinstance(item, RecordPool) and item.state.pool == POOL]
        forecasts += [second for item in made if isinstance(item, RecordForecast) and item.memory.pool == POOL]
        rig.now += timedelta(seconds=30)
    assert pools == list(range(0, 1260, 60))
    assert forecasts == [0, 600, 1200]
