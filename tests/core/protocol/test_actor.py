"""The actor: which plans it takes, which it refuses, and what it remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control
from rebalancer.core.plan import Method, Plan
from rebalancer.core.protocol.actor import Actor, OpenStep
from rebalancer.core.protocol.calls import Answer, AnswerKind
from rebalancer.core.reasons import Reason, sentence
from rebalancer.core.units import Mode
from tests.core.protocol.fake import (
    POLICY,
    T0,
    Cluster,
    Driver,
    lend_step,
    lending_cluster,
    lent_cluster,
    node,
    plan_of,
    pod,
    take_back,
)


def one(driver: Driver) -> str:
    assert len(driver.results()) == 1
    return driver.results()[0]


def test_a_plan_of_a_lower_term_is_stale_and_one_of_the_same_term_is_not() -> None:
    driver = Driver(lending_cluster())
    driver.actor.seen_term(7)
    driver.feed(plan_of(lend_step(), term=6))
    assert one(driver) == "lend stale stale-term"
    assert driver.feed(plan_of(lend_step(), id="new", term=7)).run().results()[1] == "lend done confirmed"
    assert driver.actor.term == 7


def test_a_plan_that_was_accepted_goes_on_when_a_new_term_begins() -> None:
    driver = Driver(lending_cluster()).feed(plan_of(lend_step()))
    driver.round()
    driver.actor.seen_term(9)
    assert one(driver.run()) == "lend done confirmed"


def test_an_expired_plan_is_told_as_expired_with_one_outcome_a_step() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    driver = Driver(cluster).feed(take_back(cluster, valid_until=T0)).run()
    assert driver.results() == [f"{kind} expired plan-expired" for kind in ("close", "evict", "restore")]
    assert cluster.log == []


def test_an_expired_plan_that_was_begun_before_a_restart_is_finished() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    plan = take_back(cluster)
    first = Driver(cluster).feed(plan).run(until=T0 + timedelta(seconds=1))
    cluster.move(T0 + timedelta(hours=1))
    second = Driver(cluster)
    second.actor.adopt(first.outcomes)
    assert second.feed(plan).run().results() == ["evict done confirmed", "restore done confirmed"]
    assert cluster.evicted == {"p0": 1}


STALE = [f"{kind} stale stale-term" for kind in ("close", "evict", "restore")]


@pytest.mark.parametrize(
    ("plan_id", "begun", "results"),
    [
        pytest.param("alone-1", True, ["evict done confirmed", "restore done confirmed"], id="made and begun alone"),
        pytest.param("alone-1", False, STALE, id="made alone and not begun"),
        pytest.param("plan-1", True, STALE[1:], id="a decider's, begun"),
        pytest.param("plan-1", False, STALE, id="a decider's, not begun"),
    ],
)
def test_what_was_begun_without_any_term_is_finished_after_a_decider_spoke(
    plan_id: str, begun: bool, results: list[str]
) -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    plan = take_back(cluster, id=plan_id, term=0)
    first = Driver(cluster)
    if begun:
        first.feed(plan).run(until=T0 + timedelta(seconds=1))
    second = Driver(cluster)
    second.actor.adopt(first.outcomes)
    second.actor.seen_term(7)
    assert second.feed(plan).run().results() == results


def test_a_plan_is_done_once_however_often_it_comes() -> None:
    cluster = lending_cluster()
    plan = plan_of(lend_step())
    driver = Driver(cluster).feed(plan, plan)
    driver.round()
    driver.feed(plan).run().feed(plan).run()
    assert one(driver) == "lend done confirmed"


def test_a_finished_plan_that_is_fed_again_after_a_restart_asks_nothing_and_tells_nothing() -> None:
    cluster = lending_cluster()
    plan = plan_of(lend_step())
    told = Driver(cluster).feed(plan).run().outcomes
    cluster.log.clear()
    again = Driver(cluster)
    again.actor.adopt(told)
    again.feed(plan).run()
    assert (again.outcomes, cluster.log) == ([], [])
    assert again.actor.idle


def test_a_shadow_plan_is_ignored() -> None:
    cluster = lending_cluster()
    driver = Driver(cluster).feed(plan_of(lend_step(), mode=Mode.SHADOW)).run()
    assert (driver.outcomes, cluster.log) == ([], [])


def held() -> Plan:
    return plan_of(lend_step(), awaits_approval=True)


def test_a_plan_that_waits_for_approval_is_held_until_it_comes() -> None:
    driver = Driver(lending_cluster()).feed(held())
    assert driver.actor.advance(T0) == []
    assert driver.actor.next_wake(T0) == held().valid_until
    assert [item.phase for item in driver.actor.snapshot()] == ["awaits-approval"]
    driver.actor.approve("plan-1")
    assert driver.actor.next_wake(T0) == T0
    assert one(driver.run()) == "lend done confirmed"


def test_an_approval_in_the_control_object_counts_too_and_may_come_first() -> None:
    driver = Driver(lending_cluster())
    driver.actor.control(Control(approved=("plan-1",)))
    assert one(driver.feed(held()).run()) == "lend done confirmed"


def test_a_plan_nobody_approves_expires() -> None:
    cluster = lending_cluster()
    driver = Driver(cluster).feed(held()).run()
    assert one(driver) == "lend expired plan-expired"
    assert cluster.log == []


def test_a_held_plan_can_be_called_off() -> None:
    driver = Driver(lending_cluster()).feed(held())
    driver.feed(plan_of(id="c", method=Method.CANCEL, cancels="plan-1"))
    assert driver.results() == ["cancel done not-needed", "lend cancelled not-needed"]
    assert driver.actor.idle


REFUSED = {
    "lending while everything is paused": (Control(paused=True, by="ada"), True, True, Reason.PAUSED),
    "lending while its pool is paused": (Control(paused_pools=("infer-a100",)), True, True, Reason.PAUSED),
    "lending while the rebalancer retires": (Control(retired=True), True, True, Reason.RETIRING),
    "load-driven reclaim while paused": (Control(paused=True), False, False, Reason.PAUSED),
}


@pytest.mark.parametrize(("control", "pressing", "lends", "reason"), REFUSED.values(), ids=REFUSED)
def test_act_itself_refuses(control: Control, pressing: bool, lends: bool, reason: Reason) -> None:
    cluster = lending_cluster() if lends else lent_cluster()
    driver = Driver(cluster)
    driver.actor.control(control)
    driver.feed(plan_of(lend_step()) if lends else replace(take_back(cluster), pressing=pressing)).run()
    assert {item.because.reason for item in driver.finals()} == {reason}
    assert cluster.log == []


def test_a_pause_elsewhere_refuses_nothing() -> None:
    driver = Driver(lending_cluster())
    driver.actor.control(Control(paused_pools=("other",)))
    assert one(driver.feed(plan_of(lend_step())).run()) == "lend done confirmed"


def test_what_presses_is_refused_while_paused_only_if_the_policy_says_so() -> None:
    for allowed, expected in ((True, "done"), (False, "refused")):
        cluster = lent_cluster()
        policy = replace(POLICY, pace=replace(POLICY.pace, recall_while_paused=allowed))
        driver = Driver(cluster, Actor(policy, 1))
        driver.actor.control(Control(paused=True))
        driver.feed(take_back(cluster)).run()
        assert {item.result.value for item in driver.finals()} == {expected}


def test_a_plan_of_more_nodes_than_a_plan_may_touch_is_refused_unless_it_presses() -> None:
    names = [f"n{index:02}" for index in range(21)]
    driver = Driver(lending_cluster(*names)).feed(plan_of(*map(lend_step, names)))
    assert {item.because.reason for item in driver.finals()} == {Reason.CAP}
    cluster = lent_cluster(*names)
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert {item.result.value for item in driver.finals()} == {"done"}


def test_a_plan_that_lends_and_takes_back_at_once_is_refused() -> None:
    cluster = lent_cluster("n1")
    steps = (lend_step("n2"), *take_back(cluster).steps)
    driver = Driver(cluster).feed(plan_of(*steps))
    assert {item.because.reason for item in driver.finals()} == {Reason.CANNOT_SATISFY}


def test_a_second_plan_for_a_node_that_is_changing_hands_is_refused() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=2))
    driver.feed(take_back(cluster, id="second"))
    assert {item.because.reason for item in driver.finals() if item.plan == "second"} == {Reason.IN_TRANSIT}


def test_the_status_names_every_step_under_way() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=2))
    assert driver.actor.snapshot() == (
        OpenStep("plan-1", "infer-a100", Method.RECLAIM, 1, "going", T0),
        OpenStep("plan-1", "infer-a100", Method.RECLAIM, 2, "closed", T0),
    )


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    driver = Driver(lending_cluster()).feed(plan_of(lend_step()))
    calls = driver.actor.advance(T0)
    assert driver.actor.answered(99, Answer(AnswerKind.OK), T0) == []
    assert driver.actor.answered(calls[0][0], Answer(AnswerKind.OK, node=node()), T0) == []
    assert driver.actor.answered(calls[0][0], Answer(AnswerKind.GONE), T0) == []


def test_a_new_epoch_is_written_from_the_next_patch_and_never_goes_back() -> None:
    cluster = lending_cluster()
    driver = Driver(cluster).feed(plan_of(lend_step()))
    driver.round()
    driver.actor.took_over(4)
    driver.run()
    loan = cluster.nodes["n1"].loan
    assert loan is not None
    assert loan.epoch == driver.actor.epoch == 4
    with pytest.raises(ValueError, match="below"):
        driver.actor.took_over(3)


def test_a_new_policy_changes_the_pace_at_once() -> None:
    actor = Actor(POLICY, 1)
    actor.adopt_policy(replace(POLICY, pace=replace(POLICY.pace, evictions_per_second=1.0, eviction_burst=1)))
    assert (actor._site.bucket.rate, actor._site.bucket.burst) == (1.0, 1)


def test_every_outcome_makes_a_sentence_without_a_gap() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    cluster.faults["evict p0"] = [*cluster.faults["evict p0"]]
    driver = Driver(cluster).feed(take_back(cluster)).run()
    driver.feed(take_back(Cluster(), id="c", method=Method.CANCEL, cancels="gone"))
    assert [text for text in (sentence(item.because) for item in driver.outcomes) if "?" in text] == []


def test_equal_plans_give_equal_outcomes_with_equal_ids() -> None:
    def told() -> list[object]:
        cluster = lent_cluster("n1", pods=[pod("p0"), pod("p1")])
        cluster.faults["evict p1"] = []
        driver = Driver(cluster).feed(take_back(cluster)).run()
        assert len({item.id for item in driver.outcomes}) == len(driver.outcomes)
        return [(item, item.id) for item in driver.outcomes]

    assert told() == told()
