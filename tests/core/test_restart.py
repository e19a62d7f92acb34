"""A restart in mid-window forgets nothing: state rebuilt from our own topics equals the state that was."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from rebalancer.core.facts import Control
from rebalancer.core.instructions import Instruction, PublishPlan, RecordLoan, RecordWorkload
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Method, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.stimuli import Fact, FactObserved, OutcomeReported, Restored
from rebalancer.core.units import Mode
from tests.core.build import START, Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"


class Topics:
    """What our own compacted topics hold after a while, as a new decider would read it."""

    def __init__(self) -> None:
        self.loans: dict[str, Loan] = {}
        self.records: dict[str, Any] = {}
        self.plans: dict[str, Plan] = {}
        self.outcomes: list[Outcome] = []

    def write(self, instructions: list[Instruction]) -> None:
        for item in instructions:
            if isinstance(item, RecordLoan):
                self.loans[item.loan.id] = item.loan
            elif isinstance(item, RecordWorkload):
                self.records[item.record.workload] = item.record
            elif isinstance(item, PublishPlan):
                self.plans[item.plan.id] = item.plan

    def read(self, rig: Rig) -> Restored:
        state = rig.engine.state
        memories = tuple(
            watch.headroom.memory(pool, rig.now, tuple(state.returns.get(pool, ())))
            for pool, watch in state.watches.items()
        )
        return Restored(
            tuple(self.loans.values()), tuple(self.records.values()), memories, tuple(self.plans.values()),
            tuple(self.outcomes), synced=True, at=rig.now,
        )  # fmt: skip


class Recorded(Rig):
    """A rig whose instructions are kept as on the topics."""

    topics: Topics

    def tell(self, *stimuli: Any) -> list[Instruction]:
        if not hasattr(self, "topics"):
            self.topics = Topics()
        answers = super().tell(*stimuli)
        self.topics.write(answers)
        self.topics.outcomes += [item.outcome for item in stimuli if isinstance(item, OutcomeReported)]
        return answers


def memory(state: State) -> dict[str, Any]:
    """What must not be forgotten."""
    return {
        "loans": state.loans, "pointers": state.loan_of, "workloads": state.workloads, "plans": sorted(state.plans),
        "results": {key: item.results for key, item in state.plans.items()},
        "called off": {key: item.called_off for key, item in state.plans.items()},
        "busy": (state.busy_nodes, state.busy_gangs), "resting": state.home_since,
        "returns": {pool: list(found) for pool, found in state.returns.items() if found},
        "namespaces": {name: sorted(found) for name, found in state.namespace_evictions.items()},
        "touched": list(state.touched), "complaints": sorted(state.complaints), "blocked": state.blocked_gangs,
    }  # fmt: skip


def a_night() -> Recorded:
    """Some loans away, one brought home, one on its way, an eviction behind us."""
    rig = Recorded(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.sync(*(lent(node(f"n{i}")) for i in range(4)), *(pod for i in range(4) for pod in gang(f"g{i}", on=[f"n{i}"])))
    rig.see(replica("chat-0", created_at=rig.now))
    (first,) = rig.plans()
    rig.bring_home(first)
    rig.see(replica("chat-0", on="n0", created_at=START), replica("chat-1", created_at=rig.now))
    (second,) = [plan for plan in rig.pass_time(0.1) if plan.method is Method.RECLAIM]
    rig.report(second, kinds=("close",))
    rig.report(second, Result.BLOCKED, kinds=("evict",))
    rig.see(Control(recall_nodes=("n3",), by="ops"))
    (third,) = [plan for plan in rig.pass_time(0.1) if plan.method is Method.RETURN]
    rig.report(third, Result.REFUSED, kinds=("evict",))
    return rig


def restarted(rig: Recorded) -> Rig:
    fresh = Rig(rig.engine.state.policy, now=rig.now, term=2)
    inventory = rig.engine.state.inventory
    facts: list[Fact] = [*inventory.nodes.values(), *inventory.pods.values(), inventory.control]
    moments = {fact.uid: inventory.observed_at(fact.uid) or rig.now for fact in facts}
    fresh.tell(rig.topics.read(rig), *(FactObserved(fact, moments[fact.uid]) for fact in facts))
    return fresh


def test_a_restart_forgets_nothing() -> None:
    """F9, G21: loans, cooldowns, open plans with their answers, resting nodes, caps and learnt return times."""
    rig = a_night()
    assert memory(restarted(rig).engine.state) == memory(rig.engine.state)


def test_a_restart_plans_nothing_that_was_planned_already() -> None:
    rig = a_night()
    fresh = restarted(rig)
    assert fresh.pass_time(0) == []
    assert [plan.id for plan in fresh.pass_time(0.1)] == [plan.id for plan in rig.pass_time(0.1)]


def test_outcomes_that_are_read_again_after_the_restart_change_nothing() -> None:
    rig = a_night()
    fresh = restarted(rig)
    fresh.tell(*(OutcomeReported(told) for told in rig.topics.outcomes))
    assert memory(fresh.engine.state) == memory(rig.engine.state)


def test_plans_past_their_validity_and_in_shadow_are_not_adopted() -> None:
    rig = a_night()
    topics = rig.topics
    topics.plans = {
        key: replace(plan, valid_until=rig.now - timedelta(seconds=1)) if index else replace(plan, mode=Mode.SHADOW)
        for index, (key, plan) in enumerate(topics.plans.items())
    }
    fresh = Rig(rig.engine.state.policy, now=rig.now)
    fresh.tell(topics.read(rig))
    assert fresh.engine.state.plans == {}


def test_a_cancel_is_remembered() -> None:
    rig = a_night()
    plan = next(plan for plan in rig.topics.plans.values() if plan.id in rig.engine.state.plans)
    cancel = Plan(
        "c", POOL, Method.CANCEL, Mode.ACT, Because(Reason.DEMAND_GONE), (), rig.now, rig.now, cancels=plan.id
    )
    rig.topics.plans["c"] = cancel
    fresh = Rig(rig.engine.state.policy, now=rig.now)
    fresh.tell(rig.topics.read(rig))
    assert fresh.engine.state.plans[plan.id].called_off
    assert "c" not in fresh.engine.state.plans
