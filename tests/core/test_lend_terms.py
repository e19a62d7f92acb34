"""Why a whole pool lends nothing, how much it may lend at most, and until when a loan would last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Control, Taint
from rebalancer.core.look import Look, look
from rebalancer.core.methods.lend import Terms, due_time, floor_nodes, lent_taints, terms_of
from rebalancer.core.policy import Borrowing, Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import StreamLagged
from rebalancer.core.units import CLOSING, OwnerClass
from rebalancer.core.windows import Window
from tests.core.build import OWNER_TAINT, START, ZONE, Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"
NIGHT = Window("night", ZONE, time(22), time(6), end_days=1)


def fleet(size: int = 10, *, chosen: Any = None, **changes: Any) -> Rig:
    """A pool of idle nodes, known for an hour."""
    rig = Rig(chosen or policy(pool_policy(**changes)))
    rig.sync(*(node(f"n{index}") for index in range(size)))
    rig.idle()
    return rig


def seen(rig: Rig, lendable: float = 64.0) -> Look:
    found = look(rig.engine.state, POOL, [], rig.now)
    assert found is not None
    return replace(found, lendable=lendable)


def terms(rig: Rig, **changes: Any) -> Terms | Because:
    return terms_of(rig.engine.state, seen(rig, **changes), rig.now)


@pytest.mark.parametrize(
    ("size", "changes", "floor"),
    [
        pytest.param(10, {}, 2, id="a fifth of ten"),
        pytest.param(11, {}, 3, id="a share is rounded up"),
        pytest.param(3, {}, 1, id="at least one node"),
        pytest.param(2, {"floor_nodes": 0}, 1, id="the share of a small pool"),
        pytest.param(10, {"floor_nodes": 4}, 4, id="the larger of both"),
        pytest.param(10, {"floor_nodes": 0, "floor_share": 0.0}, 0, id="no floor if the site says so"),
        pytest.param(10, {"floor_share": 0.3}, 3, id="a share that floats above its number"),
    ],
)
def test_the_floor(size: int, changes: dict[str, Any], floor: int) -> None:
    """G19."""
    state = fleet(size, **changes).engine.state
    assert floor_nodes(state, state.policy.pools[POOL]) == floor


def test_what_may_be_lent_is_what_is_above_the_floor_less_what_is_away() -> None:
    rig = fleet()
    rig.see(lent(node("n0")))
    assert terms(rig) == Terms(START + timedelta(hours=8), 7, 64.0)


def _paused(rig: Rig) -> None:
    rig.see(Control(paused=True, by="ops"))


def _pool_paused(rig: Rig) -> None:
    rig.see(Control(paused_pools=(POOL,)))


def _retired(rig: Rig) -> None:
    rig.see(Control(retired=True, by="ops"))


def _behind(rig: Rig) -> None:
    rig.tell(StreamLagged(behind=True, lag_seconds=700.04))


def _capped(rig: Rig) -> None:
    rig.engine.state.touched.append((rig.now, POOL, 20))


def _cluster_capped(rig: Rig) -> None:
    rig.engine.state.touched.append((rig.now, "infer-l20", 60))


def _no_loans(rig: Rig) -> None:
    rig.see(Control(max_loans=0))


def _few_loans(rig: Rig) -> None:
    rig.see(Control(max_loans=1), lent(node("n0")))


def _floored(rig: Rig) -> None:
    rig.see(*(lent(node(f"n{index}")) for index in range(8)))


@pytest.mark.parametrize(
    ("change", "because"),
    [
        pytest.param(_paused, Because(Reason.PAUSED, {"by": "ops"}), id="paused"),
        pytest.param(_pool_paused, Because(Reason.PAUSED, {"by": "policy"}), id="this pool paused"),
        pytest.param(_retired, Because(Reason.PAUSED, {"by": "ops"}), id="retired"),
        pytest.param(_behind, Because(Reason.CATCHING_UP, {"lag_seconds": 700.0}), id="catching up"),
        pytest.param(_capped, Because(Reason.CAP, {"cap": 20, "what": "nodes of infer-a100"}), id="the pool's cap"),
        pytest.param(_cluster_capped, Because(Reason.CAP, {"cap": 60, "what": "nodes of the cluster"}), id="all"),
        pytest.param(_no_loans, Because(Reason.CAP, {"cap": 0, "what": "open loans"}), id="no loans wanted"),
        pytest.param(_few_loans, Because(Reason.CAP, {"cap": 1, "what": "open loans"}), id="as many loans as wanted"),
        pytest.param(_floored, Because(Reason.FLOOR, {"pool": POOL, "floor_nodes": 2}), id="down to the floor"),
    ],
)
def test_why_a_whole_pool_lends_nothing(change: Callable[[Rig], None], because: Because) -> None:
    rig = fleet()
    change(rig)
    assert terms(rig) == because


def test_a_replica_that_waits_for_room_stops_all_lending() -> None:
    rig = fleet()
    waiting = replace(seen(rig), unmet_now=(replica("chat"),))
    found = terms_of(rig.engine.state, waiting, rig.now)
    assert isinstance(found, Because)
    assert found.reason is Reason.HEADROOM


@pytest.mark.parametrize(
    ("limit", "pace", "touched", "nodes"),
    [
        pytest.param(None, Pace(), 0, 8, id="nothing limits it but the floor"),
        pytest.param(3, Pace(), 0, 3, id="an operator's ramp"),
        pytest.param(None, Pace(max_loans=5), 0, 5, id="the policy's limit of loans"),
        pytest.param(7, Pace(max_loans=5), 0, 5, id="an operator cannot raise it"),
        pytest.param(None, Pace(nodes_per_pool=4), 0, 4, id="the cap of the pool"),
        pytest.param(None, Pace(), 14, 6, id="what was touched in the span counts"),
    ],
)
def test_how_many_nodes_may_be_lent_at_once(limit: int | None, pace: Pace, touched: int, nodes: int) -> None:
    rig = fleet(chosen=policy(pool_policy(), pace=pace))
    rig.see(Control(max_loans=limit))
    if touched:
        rig.engine.state.touched.append((rig.now, POOL, touched))
    found = terms(rig)
    assert isinstance(found, Terms)
    assert found.nodes == nodes


@pytest.mark.parametrize(
    ("at", "due"),
    [
        pytest.param(datetime(2026, 3, 2, 21, 59, tzinfo=UTC), Reason.WINDOW_CLOSED, id="before it opens"),
        pytest.param(datetime(2026, 3, 2, 22, 0, tzinfo=UTC), datetime(2026, 3, 3, 6, tzinfo=UTC), id="as it opens"),
        pytest.param(datetime(2026, 3, 3, 0, 0, tzinfo=UTC), datetime(2026, 3, 3, 6, tzinfo=UTC), id="at midnight"),
        pytest.param(datetime(2026, 3, 3, 5, 29, 59, tzinfo=UTC), datetime(2026, 3, 3, 6, tzinfo=UTC), id="enough"),
        pytest.param(datetime(2026, 3, 3, 5, 30, tzinfo=UTC), Reason.WINDOW_CLOSING, id="too short"),
        pytest.param(datetime(2026, 3, 3, 6, 0, tzinfo=UTC), Reason.WINDOW_CLOSED, id="as it closes"),
    ],
)  # fmt: skip
def test_until_when_a_loan_would_last(at: datetime, due: datetime | Reason) -> None:
    """F1, F8, G16: the window has to outlast the minimum run time (10 min) and the return (20 min)."""
    rig = fleet(windows=(NIGHT,))
    found = due_time(rig.engine.state, rig.engine.state.policy.pools[POOL], at)
    assert (found.reason if isinstance(found, Because) else found) == due


def test_a_learnt_return_time_shortens_what_has_to_remain() -> None:
    rig = fleet(windows=(NIGHT,))
    rig.engine.state.returns[POOL] = [120.0]  # type: ignore[assignment]  # read only here
    at = datetime(2026, 3, 3, 5, 47, tzinfo=UTC)
    assert due_time(rig.engine.state, rig.engine.state.policy.pools[POOL], at) == datetime(2026, 3, 3, 6, tzinfo=UTC)
    closing_soon = due_time(rig.engine.state, rig.engine.state.policy.pools[POOL], at + timedelta(minutes=1))
    assert closing_soon == Because(Reason.WINDOW_CLOSING, {"remaining_minutes": 12.0})


def test_a_window_that_never_closes_ends_a_loan_after_the_longest_allowed() -> None:
    rig = fleet(chosen=policy(pool_policy(), borrowing=Borrowing(max_loan=timedelta(hours=3))))
    assert due_time(rig.engine.state, rig.engine.state.policy.pools[POOL], START) == START + timedelta(hours=3)


def test_the_taints_of_a_lent_node() -> None:
    item = node("n0", taints=(Taint("rack"), OWNER_TAINT, Taint(CLOSING)))
    on_loan = Taint("gpu-rebalancer.io/on-loan", "batch")
    assert lent_taints(item, pool_policy(), OwnerClass.BATCH) == (Taint("rack"), on_loan)


def test_pods_of_training_that_wait_do_not_hold_a_pool_back() -> None:
    rig = fleet()
    rig.see(*gang("waits"))
    assert isinstance(terms(rig), Terms)
