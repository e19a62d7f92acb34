"""Why a node is not lent: each reason by itself, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.core.facts import Taint
from rebalancer.core.methods.refusals import refuses
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import VerdictGiven
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity
from tests.core.build import OWNER_TAINT, START, Rig, closing, lent, node, policy, pool_policy, replica

POOL = "infer-a100"


def fleet(size: int = 10, *, chosen: Any = None, **changes: Any) -> Rig:
    """A pool of idle nodes, known for an hour."""
    rig = Rig(chosen or policy(pool_policy(**changes)))
    rig.sync(*(node(f"n{index}") for index in range(size)))
    rig.idle()
    return rig


def of_node(rig: Rig, name: str = "n0") -> Because | None:
    found = rig.engine.state.inventory.node_named(name)
    assert found is not None
    return refuses(rig.engine.state, found, rig.now)


def test_a_node_idle_by_proof_over_the_dwell_may_be_lent() -> None:
    assert of_node(fleet()) is None


UNUSABLE = {"node": "n0", "why": "not ready, cordoned or starting"}


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        pytest.param(
            {"quarantine": "two"}, Because(Reason.LABEL_CONFLICT, {"node": "n0", "why": "two"}), id="labels in conflict"
        ),
        pytest.param({"ready": False}, Because(Reason.NODE_NOT_USABLE, UNUSABLE), id="not ready"),
        pytest.param({"cordoned": True}, Because(Reason.NODE_NOT_USABLE, UNUSABLE), id="cordoned"),
        pytest.param({"starting": True}, Because(Reason.NODE_NOT_USABLE, UNUSABLE), id="starting"),
        pytest.param({"gpus": 0}, Because(Reason.NODE_NOT_USABLE, UNUSABLE), id="nothing allocatable"),
        pytest.param(
            {"divided": True}, Because(Reason.NODE_NOT_USABLE, {"node": "n0", "why": "its GPUs are divided"}), id="MIG"
        ),
        pytest.param({"opted_out": True}, Because(Reason.OPTED_OUT, {"target": "n0"}), id="opted out"),
    ],
)  # fmt: skip
def test_what_the_node_itself_says(changes: dict[str, Any], because: Because) -> None:
    rig = fleet()
    rig.see(node("n0", **changes))
    assert of_node(rig) == because


def _closing(rig: Rig) -> None:
    _busy(rig)
    rig.see(closing(node("n0")))


def _busy(rig: Rig) -> None:
    rig.engine.state.busy_nodes["uid-n0"] = "plan"


def _away(rig: Rig) -> None:
    rig.see(lent(node("n0")))


@pytest.mark.parametrize("change", [_closing, _busy, _away], ids=["closing", "in a plan", "lent already"])
def test_a_node_that_changes_hands_is_not_lent(change: Callable[[Rig], None]) -> None:
    rig = fleet()
    change(rig)
    assert of_node(rig) == Because(Reason.IN_TRANSIT, {"node": "n0"})


def test_a_foreign_taint_does_not_stop_a_loan_by_itself() -> None:
    rig = fleet()
    rig.see(node("n0", taints=(OWNER_TAINT, Taint("maintenance"))))
    assert of_node(rig) is None


@pytest.mark.parametrize(
    ("pod", "because"),
    [
        pytest.param(replica("chat", on="n0", gpus=3), Because(Reason.HELD, {"held_gpus": 3}), id="GPUs are held"),
        pytest.param(
            replica("chat", on="n0", deleting_at=START), Because(Reason.HELD, {"held_gpus": 8}), id="also while leaving"
        ),
        pytest.param(
            replica("chat", on="n0", gpus=None), Because(Reason.GPU_COUNT_UNKNOWN, {"pod": "serving/chat"}),
            id="a count that is unknown",
        ),
        pytest.param(
            replica("chat", nominated_node="n0"), Because(Reason.NOMINATED, {"node": "n0"}), id="promised"
        ),
        pytest.param(replica("sidecar", on="n0", gpus=0), None, id="a pod without GPUs"),
    ],
)  # fmt: skip
def test_who_is_on_the_node(pod: Any, because: Because | None) -> None:
    """E08: nobody who holds a GPU is on a node that is lent."""
    rig = fleet()
    rig.see(pod)
    assert of_node(rig) == because


def verdict(activity: Activity = Activity.IDLE, minutes: float = 60, **changes: Any) -> Verdict:
    base = Verdict("uid-n0", activity, 0.0, 8, START - timedelta(minutes=minutes), START)
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("told", "because"),
    [
        pytest.param(verdict(minutes=20), None, id="idle for the dwell"),
        pytest.param(
            verdict(minutes=19.99), Because(Reason.NOT_IDLE_LONG_ENOUGH, {"idle_minutes": 19.0, "dwell_minutes": 20.0}),
            id="idle for less",
        ),
        pytest.param(verdict(Activity.BUSY), Because(Reason.BUSY), id="busy"),
        pytest.param(
            verdict(Activity.UNKNOWN, why="frozen"), Because(Reason.TELEMETRY_UNKNOWN, {"node": "n0", "why": "frozen"}),
            id="unknown is not idle",
        ),
        pytest.param(
            verdict(unhealthy=(79, 48)), Because(Reason.NODE_NOT_USABLE, {"node": "n0", "why": "XID 79"}), id="broken"
        ),
    ],
)  # fmt: skip
def test_what_telemetry_says(told: Verdict, because: Because | None) -> None:
    """E01, F41, F45."""
    rig = fleet()
    rig.tell(VerdictGiven(told))
    assert of_node(rig) == because


@pytest.mark.parametrize(("later", "stale"), [(180, False), (181, True)], ids=["just fresh", "stale"])
def test_a_stale_verdict_is_unknown(later: int, stale: bool) -> None:
    rig = fleet()
    rig.now += timedelta(seconds=later)
    assert of_node(rig) == (Because(Reason.TELEMETRY_UNKNOWN, {"node": "n0", "why": "stale"}) if stale else None)


def test_a_node_without_any_sample_is_unknown() -> None:
    rig = Rig()
    rig.sync(node("n0"))
    assert of_node(rig) == Because(Reason.TELEMETRY_UNKNOWN, {"node": "n0", "why": "no sample yet"})


@pytest.mark.parametrize(("minutes", "rests"), [(19, True), (20, False)], ids=["within the dwell", "after it"])
def test_a_node_that_came_home_stays_for_a_dwell(minutes: int, rests: bool) -> None:
    rig = fleet()
    rig.engine.state.home_since["uid-n0"] = rig.now - timedelta(minutes=minutes)
    resting = Because(Reason.RESTING, {"node": "n0", "minutes": float(minutes), "dwell_minutes": 20.0})
    assert of_node(rig) == (resting if rests else None)
