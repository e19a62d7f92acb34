"""The picture of a step, from facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rebalancer.core.facts import Node, Taint
from rebalancer.core.inventory import Inventory
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import CLOSING, ON_LOAN, Activity
from rebalancer.simulate.stepview import NodeSquare, Standing
from rebalancer.simulate.viewing import square_of, view_of
from tests.cli import night

NODE = night.node("n1", "a-1")
IDLE = Verdict("n1", Activity.IDLE, 0.0, 8, night.T0, night.T0)
DARK = replace(IDLE, activity=Activity.UNKNOWN)


@pytest.mark.parametrize(
    ("node", "verdict", "standing", "idle", "unknown"),
    [
        pytest.param(NODE, IDLE, Standing.HOME, 8, 0, id="idle at home"),
        pytest.param(NODE, DARK, Standing.HOME, 0, 8, id="telemetry does not know"),
        pytest.param(NODE, None, Standing.HOME, 0, 8, id="telemetry has said nothing"),
        pytest.param(replace(NODE, taints=(Taint(ON_LOAN, "training"),)), IDLE, Standing.LENT, 8, 0, id="lent"),
        pytest.param(
            replace(NODE, taints=(Taint(ON_LOAN), Taint(CLOSING))), IDLE, Standing.CLOSING, 8, 0, id="changing hands"
        ),
        pytest.param(replace(NODE, cordoned=True), IDLE, Standing.AWAY, 8, 0, id="cordoned"),
        pytest.param(replace(NODE, ready=False, gpus=0), IDLE, Standing.AWAY, 8, 0, id="lost, by what it once had"),
    ],
)
def test_a_node_stands_where_its_taints_say(
    node: Node, verdict: Verdict | None, standing: Standing, idle: int, unknown: int
) -> None:
    square = square_of(node, (), verdict)
    assert (square.standing, square.busy, square.idle, square.unknown) == (standing, 0, idle, unknown)


def test_held_gpus_are_busy_and_name_the_class_that_uses_them() -> None:
    lent = replace(NODE, taints=(Taint(ON_LOAN, "training"),))
    half = replace(night.pod("llm-7-0", where="a-1"), gpus=4)
    assert square_of(lent, [half], IDLE) == NodeSquare("a-1", "infer-a100", "training", Standing.LENT, 4, 4)


def test_the_picture_has_rooms_nodes_ribbon_and_what_was_decided() -> None:
    inventory = Inventory()
    inventory.observe(NODE, night.T0)
    inventory.observe(night.pod("llm-7-0", where="a-1"), night.T0)
    still = replace(night.pool_state(), pool="train", lent=0, window_open=False, idle_blockers={"not-lending-pool": 8})
    pools = {"train": still, "infer-a100": night.pool_state()}
    view = view_of(
        inventory, {"n1": IDLE}, pools, [night.lend_plan()], step=1, steps=10, started=night.T0, moment=night.at(1)
    )
    assert [square.busy for square in view.nodes] == [8]
    assert (view.ribbon.owned, view.ribbon.lent, view.ribbon.demand) == (160, 8, 48.5)
    assert [told.id for told in view.decisions] == [night.LEND]
    assert {pool.pool for pool in view.pools} == {"train", "infer-a100"}
