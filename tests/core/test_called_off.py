"""A reclaim is called off when its need is over before the first eviction, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.core.plan import EvictGang, Method, Plan, Result
from rebalancer.core.policy import Pace
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import DemandReported
from rebalancer.core.telemetry import DemandSample
from rebalancer.core.underway import Draft
from tests.core.build import Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"


def fleet(lent_nodes: int = 4, home: int = 4, **pace: Any) -> Rig:
    """Full nodes at home, and lent ones with a gang each."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0), pace=Pace(**pace)))
    rig.sync(*(lent(node(f"n{i}")) for i in range(lent_nodes)), *(node(f"h{i}") for i in range(home)))
    rig.see(*(replica(f"full-{i}", on=f"h{i}") for i in range(home)))
    rig.see(*(pod for i in range(lent_nodes) for pod in gang(f"g{i}", on=[f"n{i}"])))
    return rig


def waits(rig: Rig, count: int = 1, **changes: Any) -> None:
    rig.see(*(replica(f"new-{i}", created_at=rig.now, **changes) for i in range(count)))


def of(plans: list[Plan], method: Method = Method.RECLAIM) -> list[Plan]:
    return [plan for plan in plans if plan.method is method]


def closed(plan: Plan | Draft) -> list[str]:
    return [step.node_name for step in plan.steps if step.kind == "close"]


def evictions(plan: Plan) -> list[EvictGang]:
    return [step for step in plan.steps if isinstance(step, EvictGang)]


def wants(rig: Rig, gpus: float) -> None:
    """The demand topic asks; verdicts keep telemetry fresh."""
    rig.busy(utilisation=1.0)
    rig.tell(DemandReported(DemandSample(POOL, gpus, rig.now)))


def begun(rig: Rig) -> Plan:
    waits(rig)
    (plan,) = of(rig.plans())
    return plan


def gone(rig: Rig) -> list[Plan]:
    rig.lose("pod", "uid-new-0")
    return of(rig.pass_time(0.1), Method.CANCEL)


def test_a_plan_whose_pods_no_longer_wait_is_called_off_once() -> None:
    rig = fleet()
    plan = begun(rig)
    (cancel,) = gone(rig)
    assert (cancel.cancels, cancel.steps, cancel.pressing) == (plan.id, (), True)
    assert cancel.because == Because(Reason.DEMAND_GONE, {"pool": POOL})
    assert of(rig.pass_time(0.1), Method.CANCEL) == []


@pytest.mark.parametrize("result", [Result.STARTED, Result.BLOCKED, Result.DONE])
def test_a_plan_that_evicts_already_is_not_called_off(result: Result) -> None:
    rig = fleet()
    rig.report(begun(rig), result, kinds=("evict",))
    assert gone(rig) == []


def test_a_plan_that_has_only_closed_its_node_is_called_off() -> None:
    rig = fleet()
    rig.report(begun(rig), kinds=("close",))
    assert len(gone(rig)) == 1


def test_another_pod_that_waits_keeps_the_plan() -> None:
    rig = fleet()
    begun(rig)
    rig.see(replica("other", created_at=rig.now))
    assert gone(rig) == []


def test_a_rise_that_has_lasted_keeps_a_plan_made_for_pods() -> None:
    rig = fleet()
    begun(rig)
    wants(rig, 40)
    rig.pass_time(0.5)
    wants(rig, 40)
    rig.pass_time(1)
    assert gone(rig) == []


def test_a_plan_made_for_a_rise_is_kept_while_any_deficit_is_left() -> None:
    rig = fleet(circuit_share=1.0)
    wants(rig, 40)
    rig.pass_time(0.5)
    wants(rig, 40)
    assert len(of(rig.pass_time(1))) == 1
    rig.lose("pod", "uid-full-0")
    wants(rig, 26.1)
    assert of(rig.pass_time(0.1), Method.CANCEL) == []


def test_a_plan_made_for_a_rise_is_called_off_when_no_deficit_is_left() -> None:
    rig = fleet(circuit_share=1.0)
    wants(rig, 40)
    rig.pass_time(0.5)
    wants(rig, 40)
    (plan,) = of(rig.pass_time(1))
    rig.lose("pod", "uid-full-0", "uid-full-1", "uid-full-2")
    wants(rig, 4)
    (cancel,) = of(rig.pass_time(0.1), Method.CANCEL)
    assert (cancel.cancels, cancel.pressing) == (plan.id, False)
