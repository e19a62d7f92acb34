"""Any answers in any order, and a kill at every step: the promises of the protocol hold all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core.facts import Taint
from rebalancer.core.plan import FINAL, EvictGang, Member, Method, Outcome, Plan
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call, EvictPod, GiveNotice
from rebalancer.core.reasons import Reason
from rebalancer.core.units import CLOSING, ON_LOAN, OwnerClass
from tests.core.protocol.fake import (
    FOREIGN,
    OWNER,
    POLICY,
    T0,
    Cluster,
    Driver,
    Fault,
    budget,
    lend_step,
    lending_cluster,
    lent_cluster,
    plan_of,
    pod,
    take_back,
)

HOME = (OWNER, FOREIGN)
LENT = (Taint(ON_LOAN, "training"), FOREIGN)
REFUSALS = (AnswerKind.GONE, AnswerKind.CONFLICT, AnswerKind.BLOCKED, AnswerKind.FORBIDDEN, AnswerKind.THROTTLED)
"""Answers of a server that has certainly done nothing; behind any other the call may have been carried out."""
BAD = [kind for kind in AnswerKind if kind is not AnswerKind.OK]
faults = st.dictionaries(st.integers(0, 50), st.tuples(st.sampled_from(BAD), st.booleans()), max_size=12)


class Watched(Driver):
    """A driver that answers in any order and checks at every real eviction that it was allowed to happen."""

    def __init__(self, cluster: Cluster, plan: Plan, order: Random, script: dict[int, tuple[AnswerKind, bool]]) -> None:
        super().__init__(cluster)
        self.plan, self.order, self.script = plan, order, script
        self.passed: set[str] = set()
        self.pending: list[tuple[int, Call]] = []
        self.asked = 0

    def round(self) -> bool:
        self.rounds += 1
        assert self.rounds < 3000, "calls are not bounded"
        asked = self.actor.advance(self.cluster.now)
        for _, call in asked:
            self.may_ask(call)
        self.pending += asked
        self.outcomes += self.actor.outcomes()
        if not self.pending:
            return False
        call_id, call = self.pending.pop(self.order.randrange(len(self.pending)))
        self.outcomes += self.actor.answered(call_id, self.respond(call), self.cluster.now)
        return True

    def respond(self, call: Call) -> Answer:
        kind = self.script.get(self.asked)
        self.asked += 1
        if isinstance(call, EvictPod) and not call.dry_run:
            self.closed(call.member)
        if kind is not None and kind[0] is AnswerKind.GONE and not isinstance(call, EvictPod):
            kind = (AnswerKind.FAILED, kind[1])  # a server does not say of a node that stands that it is gone
        if kind is not None:
            if kind[0] not in REFUSALS and kind[1]:
                self.cluster.answer(call)
            return Answer(kind[0])
        answer = self.cluster.answer(call)
        if isinstance(call, EvictPod) and call.dry_run and answer.kind is AnswerKind.OK:
            self.passed.add(call.member.uid)
        return answer

    def may_ask(self, call: Call) -> None:
        if isinstance(call, EvictPod):
            self.closed(call.member)
            if call.dry_run:
                self.passed.discard(call.member.uid)
            else:
                self.checked(call.member)
        elif isinstance(call, GiveNotice):
            assert call.members, "nobody is given notice"
            self.closed(call.members[0])

    def checked(self, member: Member) -> None:
        step = next(s for s in self.plan.steps if isinstance(s, EvictGang) and member in s.members)
        assert member.uid in self.passed or step.gang in self.begun(), "evicted before its check passed"

    def closed(self, member: Member) -> None:
        step = next(s for s in self.plan.steps if isinstance(s, EvictGang) and member in s.members)
        for name in {item.node for item in step.members}:
            taints = self.cluster.nodes[name].taints
            assert any(taint.key == CLOSING for taint in taints), "checked, told or evicted before all were closed"

    def begun(self) -> set[str]:
        return {item.target for item in self.outcomes if item.kind == "evict" and item.result.value == "started"}


def finals(outcomes: list[Outcome]) -> Counter[tuple[str, int]]:
    return Counter((item.plan, item.step) for item in outcomes if item.result in FINAL and item.step >= 0)


def two_gangs() -> Cluster:
    pods = [pod(f"a{i}", "n1" if i < 2 else "n2", gang="a", gpus=4) for i in range(3)]
    return lent_cluster("n1", "n2", "n3", pods=[*pods, pod("b0", "n3", gang="b"), pod("b1", "n3", gang="b")])


@settings(max_examples=100, deadline=None)
@given(order=st.randoms(use_true_random=False), script=faults, notice=st.sampled_from([0, 30]),
       due=st.booleans(), blocked=st.sampled_from([None, 0, 1, 3]))  # fmt: skip
def test_whatever_is_answered_in_whatever_order_a_return_keeps_its_promises(
    order: Random, script: dict[int, tuple[AnswerKind, bool]], notice: int, due: bool, blocked: int | None
) -> None:
    cluster = two_gangs()
    if blocked is not None:
        cluster.budgets["a"] = budget(blocked, gang="a")
    method = Method.RETURN if due else Method.RECLAIM
    plan = take_back(cluster, evict={"notice_seconds": notice}, method=method)
    driver = Watched(cluster, plan, order, script)
    driver.feed(plan).run()
    assert driver.actor.idle, driver.actor.snapshot()
    assert finals(driver.outcomes) == {("plan-1", index): 1 for index in range(len(plan.steps))}
    assert all(count == 1 for count in cluster.evicted.values())
    assert len({item.id for item in driver.outcomes}) == len(driver.outcomes)
    for outcome in driver.finals():
        if outcome.kind == "evict":
            gang_is_whole_or_told(driver, outcome)
    unheard = any(kind in (AnswerKind.FORBIDDEN, AnswerKind.GONE) for kind, _ in script.values())
    for node in cluster.nodes.values():
        assert node.taints in (HOME, LENT) or unheard or Reason.CONTENDED in reasons(driver)
        assert (node.loan is None) == (OWNER in node.taints)


def reasons(driver: Driver) -> set[Reason]:
    return {item.because.reason for item in driver.outcomes}


def gang_is_whole_or_told(driver: Watched, outcome: Outcome) -> None:
    step = driver.plan.steps[outcome.step]
    assert isinstance(step, EvictGang)
    members = {item.uid for item in step.members}
    evicted = members & set(driver.cluster.evicted)
    if outcome.result.value == "done":
        left = members & set(driver.cluster.pods)
        told_gone = {kind for kind, _ in driver.script.values()} & {AnswerKind.GONE, AnswerKind.CONFLICT}
        assert not left or told_gone
    elif evicted:
        forbidden = {Reason.GANG_SPLIT, Reason.TIMED_OUT, Reason.UNREACHABLE}
        doubted = any(lost for _, lost in driver.script.values())
        assert outcome.because.reason in forbidden or doubted


@settings(max_examples=100, deadline=None)
@given(order=st.randoms(use_true_random=False), script=faults)
def test_whatever_is_answered_in_whatever_order_a_lend_is_whole_or_undone(
    order: Random, script: dict[int, tuple[AnswerKind, bool]]
) -> None:
    cluster = lending_cluster("n1", "n2")
    plan = plan_of(lend_step("n1"), lend_step("n2"))
    driver = Watched(cluster, plan, order, script)
    driver.feed(plan).run()
    assert driver.actor.idle
    assert finals(driver.outcomes) == {("plan-1", 0): 1, ("plan-1", 1): 1}
    forbidden = any(kind in (AnswerKind.FORBIDDEN, AnswerKind.GONE) for kind, _ in script.values())
    for outcome in driver.finals():
        node = cluster.nodes[outcome.target.removeprefix("uid-")]
        if outcome.result.value == "done":
            # Where nothing may be read any more, a loan that may stand is told as one: the ledger finds out.
            assert node.loan is not None or forbidden
        elif not forbidden and outcome.because.reason is not Reason.CONTENDED:
            assert node.taints == HOME
    results = {item.result.value for item in driver.finals()}
    assert len(results) == 1 or forbidden or Reason.CONTENDED in reasons(driver)


@settings(max_examples=30, deadline=None)
@given(order=st.randoms(use_true_random=False), at=st.integers(0, 30), wait=st.integers(0, 40))
def test_calling_off_at_any_moment_leaves_everything_or_nothing(order: Random, at: int, wait: int) -> None:
    cluster = two_gangs()
    plan = take_back(cluster, evict={"notice_seconds": 20})
    driver = Watched(cluster, plan, order, {})
    driver.feed(plan)
    for _ in range(at):
        driver.round()
    driver.run(until=T0 + timedelta(seconds=wait))
    driver.feed(plan_of(id="c", method=Method.CANCEL, cancels="plan-1")).run()
    expected = LENT if not cluster.evicted else HOME
    assert {node.taints for node in cluster.nodes.values()} == {expected}
    assert finals(driver.outcomes) == {("plan-1", index): 1 for index in range(len(plan.steps))}


# --- killed at every step ------------------------------------------------------------------------------------------


class Killed(Exception):  # noqa: N818 - what happened, not what went wrong
    """The process is gone."""


class Mortal(Driver):
    """Dies at the given call: before it was performed, or after it was and before its answer was seen."""

    def __init__(self, cluster: Cluster, actor: Actor, dies_at: int, *, performed: bool) -> None:
        super().__init__(cluster, actor)
        self.dies_at, self.performed, self.asked = dies_at, performed, 0

    def round(self) -> bool:
        calls = self.actor.advance(self.cluster.now)
        self.outcomes += self.actor.outcomes()
        for call_id, call in calls:
            self.asked += 1
            if self.asked == self.dies_at:
                if self.performed:
                    self.cluster.answer(call)
                raise Killed
            self.outcomes += self.actor.answered(call_id, self.cluster.answer(call), self.cluster.now)
        return bool(calls)


def lending_two() -> tuple[Cluster, Plan]:
    return lending_cluster("n1", "n2"), plan_of(lend_step("n1"), lend_step("n2"))


def returning() -> tuple[Cluster, Plan]:
    cluster = two_gangs()
    cluster.budgets["a"] = budget(3, gang="a")
    return cluster, take_back(cluster, method=Method.RETURN)


def returning_after_notice() -> tuple[Cluster, Plan]:
    cluster = two_gangs()
    return cluster, take_back(cluster, evict={"notice_seconds": 15})


STORIES = {
    "a lend of two nodes": (lending_two, LENT, set()),
    "a return of two gangs": (returning, HOME, {"a0", "a1", "a2", "b0", "b1"}),
    "a return with notice": (returning_after_notice, HOME, {"a0", "a1", "a2", "b0", "b1"}),
}


def killed(make: Callable[[], tuple[Cluster, Plan]], dies_at: int, *, performed: bool, lost: int) -> Mortal | None:
    """Run until the kill, then let a fresh actor of the next epoch finish; None if it was over before."""
    cluster, plan = make()
    first = Mortal(cluster, Actor(POLICY, 1), dies_at, performed=performed)
    try:
        first.feed(plan).run()
    except Killed:
        published = first.outcomes[: len(first.outcomes) - lost]
    else:
        return None
    cluster.move(cluster.now + timedelta(seconds=20))
    second = Mortal(cluster, Actor(POLICY, 2), 0, performed=False)
    second.actor.adopt(published)
    second.outcomes = published
    second.feed(plan).run()
    return second


@pytest.mark.parametrize(("make", "taints", "evicted"), STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("performed", [False, True], ids=["before the call", "before its answer"])
@pytest.mark.parametrize("lost", [0, 1], ids=["all outcomes published", "the last outcome lost"])
def test_a_kill_at_any_step_is_finished_by_the_next_actor_and_nothing_is_evicted_twice(
    make: Callable[[], tuple[Cluster, Plan]], taints: tuple[Taint, ...], evicted: set[str], performed: bool, lost: int
) -> None:
    dies_at = 1
    while (driver := killed(make, dies_at, performed=performed, lost=lost)) is not None:
        assert driver.cluster.evicted == dict.fromkeys(evicted, 1), dies_at
        assert {node.taints for node in driver.cluster.nodes.values()} == {taints}, dies_at
        assert {item.result.value for item in driver.finals()} == {"done"}, (dies_at, driver.results())
        assert set(finals(driver.outcomes).values()) == {1}
        assert driver.actor.idle
        dies_at += 1
    assert dies_at > 8


def test_a_node_that_the_one_before_has_restored_is_home_whoever_its_owner_has_placed_there_since() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    plan = take_back(cluster)
    told = [one for one in Driver(cluster).feed(plan).run().outcomes if one.kind != "restore"]
    cluster.pods["chat"] = pod("chat", gang="chat", reclaimable=False, owner=OwnerClass.INFERENCE)
    second = Driver(cluster, Actor(POLICY, 2))
    second.actor.adopt(told)
    second.feed(plan).run()
    assert (second.results(), second.blocked()) == (["restore done confirmed"], [])
    assert {node.taints for node in cluster.nodes.values()} == {HOME}


def test_a_half_evicted_gang_is_finished_after_a_restart_even_if_its_budget_has_closed_meanwhile() -> None:
    cluster = lent_cluster("n1", pods=[pod("p0", grace_seconds=5), pod("p1")])
    cluster.faults["evict p1"] = [Fault(Answer(AnswerKind.UNREACHABLE))]
    plan = take_back(cluster, budgets=("pdb",))
    first = Driver(cluster).feed(plan).run(until=T0 + timedelta(seconds=1))
    assert cluster.evicted == {"p0": 1}
    cluster.budgets["a"] = budget(0)
    cluster.move(T0 + timedelta(seconds=20))
    second = Driver(cluster, Actor(POLICY, 2))
    second.actor.adopt(first.outcomes)
    second.feed(plan).run(until=T0 + timedelta(minutes=2))
    assert [reason.value for reason in second.blocked()] == ["gang-split"]
    cluster.budgets["a"] = replace(budget(1))
    second.run()
    assert cluster.evicted == {"p0": 1, "p1": 1}
    assert second.finals()[0].numbers["members"] == 2
