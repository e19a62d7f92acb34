"""The renewal of loans by act: one guarded patch of the mark, one outcome a step, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control, Taint
from rebalancer.core.plan import CloseNode, Method, Outcome, Plan, RenewLoan, Result
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import Answer, AnswerKind, PatchNode
from rebalancer.core.reasons import Reason
from rebalancer.core.units import CLOSING
from tests.core.protocol.fake import POLICY, T0, Cluster, Driver, Fault, lent, lent_cluster, mark, node, plan_of

DUE = T0 + timedelta(hours=8)
"""What the fake's marks say."""


def step(name: str = "n1", minutes: float = 60) -> RenewLoan:
    due = DUE + timedelta(minutes=minutes)
    return RenewLoan(f"loan-{name}", f"uid-{name}", name, due, due - timedelta(minutes=20))


def renew(*names: str, **changes: object) -> Plan:
    """A renewal made an hour after the loans began, valid for a minute."""
    steps = tuple(step(name) for name in names or ("n1",))
    values = {"method": Method.RENEW, "pressing": False, "made_at": T0 + timedelta(hours=1)} | changes
    return plan_of(*steps, **{"valid_until": T0 + timedelta(hours=1, minutes=1), **values})


def drive(cluster: Cluster, plan: Plan, actor: Actor | None = None) -> Driver:
    cluster.move(plan.made_at)
    return Driver(cluster, actor).feed(plan).run()


def patches(cluster: Cluster) -> list[PatchNode]:
    return [call for call in cluster.log if isinstance(call, PatchNode)]


def test_one_patch_moves_due_recall_plan_and_epoch_and_nothing_else() -> None:
    cluster = lent_cluster()
    before = cluster.nodes["n1"]
    driver = drive(cluster, renew(), Actor(POLICY, epoch=2))
    after = cluster.nodes["n1"]
    assert driver.results() == ["renew done confirmed"]
    assert before.loan is not None
    moved = replace(before.loan, due=step().due, recall_at=step().recall_at, plan="plan-1", epoch=2)
    assert (after.loan, after.taints) == (moved, before.taints)
    assert len(patches(cluster)) == 1
    assert [told.loan for told in driver.finals()] == ["loan-n1"]
    assert driver.outcomes[0].result is Result.STARTED


def test_steps_do_not_wait_for_each_other() -> None:
    cluster = lent_cluster("n1", "n2")
    cluster.put(node("n1"))
    assert drive(cluster, renew("n1", "n2")).results() == ["renew refused loan-lost", "renew done confirmed"]


def _closing(cluster: Cluster) -> None:
    cluster.edit("n1", (*cluster.nodes["n1"].taints, Taint(CLOSING)))


CHANGED: dict[str, tuple[Callable[[Cluster], object], str]] = {
    "another loan": (lambda c: c.put(replace(lent(), loan=mark(loan="other"))), "refused node-changed"),
    "another node of that name": (lambda c: c.put(replace(lent(), uid="uid-new")), "refused node-gone"),
    "a copied mark": (
        lambda c: c.put(replace(lent(), loan=replace(mark(), node_uid="uid-old"))), "refused loan-lost",
    ),
    "a later actor": (lambda c: c.put(lent(epoch=7)), "stale stale-epoch"),
    "on its way home": (_closing, "refused in-transit"),
    "recalled": (lambda c: c.put(replace(lent(), loan=mark(phase="recalling"))), "refused in-transit"),
    "renewed until later": (
        lambda c: c.put(replace(lent(), loan=replace(mark(), due=DUE + timedelta(days=1)))), "refused node-changed",
    ),
    "gone": (lambda c: c.nodes.clear(), "refused node-gone"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "ends"), CHANGED.values(), ids=CHANGED)
def test_a_node_that_is_not_as_planned_is_left_as_it_is(change: Callable[[Cluster], object], ends: str) -> None:
    cluster = lent_cluster()
    change(cluster)
    assert drive(cluster, renew()).results() == [f"renew {ends}"]
    assert patches(cluster) == []


BRAKES: dict[str, tuple[Control, Reason]] = {
    "all paused": (Control(paused=True, by="oncall"), Reason.PAUSED),
    "the pool paused": (Control(paused_pools=("infer-a100",)), Reason.PAUSED),
    "retired": (Control(retired=True), Reason.RETIRING),
}


@pytest.mark.parametrize("pressing", [True, False])
@pytest.mark.parametrize(("control", "reason"), BRAKES.values(), ids=BRAKES)
def test_brakes_stop_a_renewal_even_if_it_says_that_it_presses(
    control: Control, reason: Reason, *, pressing: bool
) -> None:
    actor = Actor(POLICY, epoch=1)
    actor.control(control)
    cluster = lent_cluster()
    driver = drive(cluster, renew(pressing=pressing), actor)
    assert [told.because.reason for told in driver.finals()] == [reason]
    assert cluster.log == []


def test_a_pause_after_the_patch_does_not_take_it_back() -> None:
    cluster = lent_cluster()
    cluster.move(renew().made_at)
    driver = Driver(cluster).feed(renew())
    driver.round()
    driver.round()
    assert len(patches(cluster)) == 1
    driver.outcomes += driver.actor.control(Control(paused=True), cluster.now)
    assert driver.run().results() == ["renew done confirmed"]


def test_a_loan_is_not_renewed_for_longer_than_a_loan_may_last() -> None:
    driver = drive(lent_cluster(), replace(renew(), made_at=T0 + timedelta(minutes=59)))
    assert driver.results() == ["renew refused cap"]


def test_a_plan_that_renews_and_takes_back_is_refused() -> None:
    cluster = lent_cluster("n1", "n2")
    plan = replace(renew(), steps=(step(), CloseNode("loan-n2", "uid-n2", "n2")))
    assert {told.because.reason for told in drive(cluster, plan).finals()} == {Reason.CANNOT_SATISFY}
    assert patches(cluster) == []


@pytest.mark.parametrize("lost", [False, True], ids=["the patch was lost", "its answer was lost"])
def test_a_patch_without_an_answer_is_looked_after(*, lost: bool) -> None:
    cluster = lent_cluster()
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.TIMED_OUT), lost=lost)]
    driver = drive(cluster, renew())
    assert driver.results() == ["renew done confirmed"]
    assert len(patches(cluster)) == (1 if lost else 2)


def test_a_cluster_that_does_not_answer_while_the_plan_is_valid_ends_it_in_time() -> None:
    cluster = lent_cluster()
    cluster.always = lambda _: Fault(Answer(AnswerKind.UNREACHABLE))
    driver = drive(cluster, renew())
    (told,) = driver.finals()
    assert (told.result, told.because.reason) == (Result.EXPIRED, Reason.PLAN_EXPIRED)
    assert told.at == renew().valid_until


def test_a_plan_that_comes_too_late_does_nothing() -> None:
    cluster = lent_cluster()
    cluster.move(renew().valid_until)
    assert Driver(cluster).feed(renew()).run().results() == ["renew expired plan-expired"]
    assert cluster.log == []


def killed_after(rounds: int, lateness: timedelta) -> tuple[Cluster, list[Outcome]]:
    """An actor dies after so many rounds of calls; the next one is told what was told, and fed the plan again."""
    cluster = lent_cluster("n1", "n2")
    plan = renew("n1", "n2")
    cluster.move(plan.made_at)
    first = Driver(cluster).feed(plan)
    for _ in range(rounds):
        first.round()
    cluster.move(cluster.now + lateness)
    second = Driver(cluster, Actor(POLICY, epoch=2))
    second.actor.adopt(first.outcomes)
    second.feed(plan).run()
    return cluster, [*first.finals(), *second.finals()]


@pytest.mark.parametrize("lateness", [timedelta(0), timedelta(minutes=5)], ids=["at once", "after its validity"])
@pytest.mark.parametrize("rounds", range(4))
def test_killed_at_any_moment_every_step_ends_once_and_the_mark_agrees(rounds: int, lateness: timedelta) -> None:
    cluster, finals = killed_after(rounds, lateness)
    assert sorted(told.step for told in finals) == [0, 1]
    for told in finals:
        found = cluster.nodes[f"n{told.step + 1}"].loan
        assert found is not None
        assert (found.due == step().due) == (told.result is Result.DONE)


@pytest.mark.parametrize("lateness", [timedelta(0), timedelta(minutes=5)], ids=["at once", "after its validity"])
def test_killed_between_the_patch_and_its_answer_the_next_actor_finds_it_done(lateness: timedelta) -> None:
    cluster = lent_cluster()
    cluster.move(renew().made_at)
    first = Driver(cluster).feed(renew())
    first.round()
    ((_, call),) = first.actor.advance(cluster.now)
    cluster.answer(call)
    cluster.move(cluster.now + lateness)
    second = Driver(cluster, Actor(POLICY, epoch=2))
    second.actor.adopt(first.actor.outcomes())
    assert second.feed(renew()).run().results() == ["renew done confirmed"]
    assert len(patches(cluster)) == 1


def test_a_conflict_reads_again() -> None:
    cluster = lent_cluster()
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.CONFLICT))]
    assert drive(cluster, renew()).results() == ["renew done confirmed"]
    assert len(patches(cluster)) == 2


def test_a_cancel_before_the_patch_calls_it_off() -> None:
    cluster = lent_cluster()
    plan = renew()
    cluster.move(plan.made_at)
    cancel = replace(plan, id="plan-2", method=Method.CANCEL, steps=(), cancels="plan-1")
    driver = Driver(cluster).feed(plan, cancel).run()
    assert [told.result for told in driver.outcomes if told.kind == "renew"] == [Result.CANCELLED]
    assert patches(cluster) == []
