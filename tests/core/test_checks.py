"""The invariants: each of them notices when it is broken, and says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.checks import InvariantBroken
from rebalancer.core.plan import EvictGang, Method
from rebalancer.core.underway import OpenPlan
from rebalancer.core.units import Mode
from tests.core.away import away
from tests.core.build import Rig, gang, node
from tests.core.test_ledger import EVICT, LEND, plan_of

POOL = "infer-a100"


def sound() -> Rig:
    rig = away("n0", pods=gang("a", pods=2, on=["n0", "n1"]))
    rig.sync(node("n1"))
    return rig


def _total(name: str) -> Callable[[Rig], None]:
    def spoil(rig: Rig) -> None:
        totals = rig.engine.state.inventory.shares.pools[POOL]
        setattr(totals, name, getattr(totals, name) + 1)

    return spoil


def _change_loan(**changes: object) -> Callable[[Rig], None]:
    def spoil(rig: Rig) -> None:
        state = rig.engine.state
        state.loans["loan-n0"] = replace(state.loans["loan-n0"], **changes)  # type: ignore[arg-type]  # any field

    return spoil


def _lost_pointer(rig: Rig) -> None:
    rig.engine.state.loan_of.clear()


def _wrong_pointer(rig: Rig) -> None:
    rig.engine.state.loan_of["uid-n1"] = "loan-n0"


def _dangling(rig: Rig) -> None:
    rig.engine.state.loan_of["uid-n1"] = "nothing"


def _second_loan(rig: Rig) -> None:
    state = rig.engine.state
    state.loans["other"] = replace(state.loans["loan-n0"], id="other")


def _planned(*steps: object) -> Callable[[Rig], None]:
    def spoil(rig: Rig) -> None:
        rig.engine.state.plans["p"] = OpenPlan(plan_of(*steps, method=Method.RECLAIM))

    return spoil


def _squatter(rig: Rig) -> None:
    _planned(EVICT)(rig)
    rig.now += timedelta(seconds=1)
    rig.see(*gang("a", on=["n0"], reclaimable=False))


def _part(rig: Rig) -> None:
    rig.lose("pod", "uid-a-1")
    _planned(replace(EVICT, whole=False))(rig)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(_total("nodes"), "nodes is kept as 3, counted as 2", id="nodes"),
        pytest.param(_total("owned"), "owned is kept as 17, counted as 16", id="GPUs owned"),
        pytest.param(_total("held"), "held is kept as 17, counted as 16", id="GPUs held"),
        pytest.param(_total("usable"), r"usable \+ away \+ unusable = 17", id="usable GPUs"),
        pytest.param(_total("away"), r"usable \+ away \+ unusable = 17", id="GPUs away"),
        pytest.param(_total("unusable"), r"usable \+ away \+ unusable = 17", id="unusable GPUs"),
        pytest.param(_change_loan(lender=""), "has no lender", id="a loan without a lender"),
        pytest.param(_change_loan(due=away("x").now - timedelta(days=1)), "due before it opened", id="due too early"),
        pytest.param(_change_loan(node="uid-n1"), "points at a loan", id="a loan of another node"),
        pytest.param(_lost_pointer, "two open loans", id="a loan without its node"),
        pytest.param(_wrong_pointer, "points at a loan", id="two nodes point at one loan"),
        pytest.param(_dangling, "points at a loan", id="a node points at nothing"),
        pytest.param(_second_loan, "two open loans", id="two open loans on one node"),
        pytest.param(_planned(EVICT, EVICT), "evicts gang ml/a twice", id="a gang evicted twice"),
        pytest.param(_planned(replace(LEND, lender="x")), "lends a node of another pool", id="another pool's node"),
        pytest.param(_squatter, "is not reclaimable", id="somebody who did not opt in"),
        pytest.param(_part, "nothing of it would be left", id="a gang chosen in part that is all of it"),
    ],
)
def test_a_broken_invariant_is_noticed(spoil: Callable[[Rig], None], said: str) -> None:
    rig = sound()
    rig.engine.check()
    with pytest.raises(InvariantBroken, match=said):
        _spoiled(rig, spoil)


def _spoiled(rig: Rig, spoil: Callable[[Rig], None]) -> None:
    spoil(rig)
    rig.engine.check()


def test_what_is_legal_is_not_complained_about() -> None:
    rig = sound()
    _planned(replace(EVICT, whole=False), LEND)(rig)
    rig.engine.check()
    assert isinstance(rig.engine.state.plans["p"].plan.steps[0], EvictGang)
    assert rig.engine.state.mode(POOL) is Mode.ACT


def test_members_that_are_gone_are_no_breach() -> None:
    rig = sound()
    rig.lose("pod", "uid-a-0")
    _planned(EVICT)(rig)
    rig.engine.check()
    assert "uid-a-0" not in rig.engine.state.inventory.pods
