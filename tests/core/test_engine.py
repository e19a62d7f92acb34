"""The engine around the methods: when it plans, what a plan is stamped with, and how long it is valid."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.engine import Engine
from rebalancer.core.instructions import PublishPlan
from rebalancer.core.methods import return_
from rebalancer.core.plan import EvictGang, Method, Plan
from rebalancer.core.stimuli import Fact, FactObserved, SnapshotBegan, SnapshotEnded, TermBegan, TimePassed
from rebalancer.core.units import Mode
from tests.core.away import away
from tests.core.build import START, Rig, gang, lent, node, policy, pool_policy, replica

POOL = "infer-a100"


def reclaimed(rig: Rig) -> list[Plan]:
    return [plan for plan in rig.plans() if plan.method is Method.RECLAIM]


def pressed() -> Rig:
    rig = away("n0", "n1", pods=[*gang("a", on=["n0"]), *gang("b", on=["n1"])])
    rig.see(replica("chat", created_at=rig.now))
    return rig


def test_the_first_offset_is_a_term_too() -> None:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)), term=0)
    rig.sync(lent(node("n0")), *gang("a", on=["n0"]), replica("chat", created_at=rig.now))
    assert reclaimed(rig) == []
    rig.tell(TermBegan(0))
    rig.now += timedelta(seconds=1)
    assert [plan.term for plan in reclaimed(rig)] == [0]


def test_a_plan_bears_term_mode_moment_and_an_id_that_another_engine_would_give_it_too() -> None:
    (one,), (other,) = reclaimed(pressed()), reclaimed(pressed())
    assert one == other
    assert (one.term, one.mode, one.made_at, one.pool) == (1, Mode.ACT, START, POOL)


def test_another_moment_target_or_cluster_is_another_plan() -> None:
    later, elsewhere, wider = pressed(), pressed(), pressed()
    later.now += timedelta(seconds=1)
    elsewhere.engine.state.cluster = "other"
    wider.see(replica("chat-2", created_at=wider.now))
    plans = [reclaimed(rig)[0] for rig in (pressed(), later, elsewhere, wider)]
    assert len({plan.id for plan in plans}) == 4


def test_a_way_home_stays_valid_past_its_last_deadline() -> None:
    (plan,) = reclaimed(pressed())
    (evict,) = [step for step in plan.steps if isinstance(step, EvictGang)]
    assert plan.valid_until == evict.deadline + timedelta(minutes=10)


def test_a_return_stays_valid_past_its_due_times() -> None:
    rig = away("n0")
    rig.now = START + timedelta(hours=5, minutes=45)
    (plan,) = rig.plans()
    assert plan.valid_until == START + timedelta(hours=6, minutes=10)


def test_an_offer_goes_stale_soon() -> None:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.sync(node("n0"), node("n1"), *gang("a"))
    rig.idle()
    (plan,) = rig.watch(25)
    assert (plan.method, plan.valid_until) == (Method.LEND, plan.made_at + timedelta(minutes=10))


def test_loans_are_recorded_before_the_plan_that_opens_them() -> None:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.sync(node("n0"), node("n1"), *gang("a"))
    rig.idle()
    kinds: list[str] = []
    for _ in range(25):
        rig.now += timedelta(minutes=1)
        rig.idle(since=START - timedelta(hours=1))
        kinds += [item.kind for item in rig.tell(TimePassed()) if item.kind in ("publish-plan", "record-loan")]
    assert kinds == ["record-loan", "publish-plan"]


def test_nothing_is_planned_before_a_complete_picture() -> None:
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    rig.see(lent(node("n0")), *gang("a", on=["n0"]), replica("chat", created_at=rig.now))
    assert reclaimed(rig) == []


def test_a_pool_is_looked_at_when_something_happened_and_else_once_a_second() -> None:
    rig = away("n0")
    rig.plans()
    watch = rig.engine.state.watches[POOL]
    rig.now += timedelta(milliseconds=400)
    rig.plans()
    assert watch.last_look == START
    rig.see(replica("chat", created_at=rig.now))
    dirty = [rig.engine.dirty]
    rig.plans()
    assert watch.last_look == rig.now
    assert [*dirty, rig.engine.dirty] == [True, False]
    rig.now += timedelta(seconds=1)
    rig.plans()
    assert watch.last_look == rig.now


def test_with_the_returning_method_alone_only_what_falls_due_comes_home() -> None:
    engine = Engine("test", policy(pool_policy(floor_nodes=0, floor_share=0.0)), methods=(return_.propose,))
    soon = START + timedelta(minutes=5)
    facts: list[Fact] = [lent(node("n0"), due=soon), lent(node("n1")), *gang("b", on=["n1"]), replica("chat")]
    engine.handle(TermBegan(1), START)
    for of, cls in (("node", "Node"), ("pod", "Pod")):
        mine = [fact for fact in facts if type(fact).__name__ == cls]
        engine.handle(SnapshotBegan(of, "s", START), START)  # type: ignore[arg-type]  # literals in a loop
        for fact in mine:
            engine.handle(FactObserved(fact, START), START)
        engine.handle(SnapshotEnded(of, "s", len(mine), START), START)  # type: ignore[arg-type]  # literals in a loop
    made = [item.plan for item in engine.handle(TimePassed(), START) if isinstance(item, PublishPlan)]
    assert [(plan.method, [step.kind for step in plan.steps]) for plan in made] == [
        (Method.RETURN, ["close", "restore"])
    ]


@pytest.mark.parametrize("mode", list(Mode))
def test_shadow_and_act_publish_the_same_decision(mode: Mode) -> None:
    """G20: the same code path, another mode."""
    rig = Rig(policy(pool_policy(mode=mode, floor_nodes=0, floor_share=0.0)))
    rig.sync(node("n0"), node("n1"), *gang("a"))
    rig.idle()
    (plan,) = rig.watch(25)
    assert plan.mode is mode
    act = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    act.sync(node("n0"), node("n1"), *gang("a"))
    act.idle()
    (other,) = act.watch(25)
    assert replace(plan, mode=Mode.ACT) == other
