"""Lending: closed, settled, seen to be empty, handed over in one patch; or undone, all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control, PodPhase, Taint
from rebalancer.core.plan import Method
from rebalancer.core.protocol.calls import Answer, AnswerKind, Call, PatchNode
from rebalancer.core.units import CLOSING, ON_LOAN, OwnerClass
from tests.core.protocol.fake import (
    FOREIGN,
    OWNER,
    POLICY,
    T0,
    Cluster,
    Driver,
    Fault,
    lend_step,
    lending_cluster,
    mark,
    plan_of,
    pod,
)

LENT = (Taint(ON_LOAN, "training"), FOREIGN)
HOME = (OWNER, FOREIGN)


def test_a_free_node_is_lent_in_one_patch_after_it_was_closed_and_settled() -> None:
    cluster = lending_cluster()
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert driver.results() == ["lend done confirmed"]
    assert cluster.nodes["n1"].taints == LENT
    loan = cluster.nodes["n1"].loan
    assert loan is not None
    assert (loan.taint, loan.taint_index, loan.epoch, loan.phase, loan.plan) == (OWNER, 0, 1, "on-loan", "plan-1")
    assert [call.kind for call in cluster.log] == ["read-node", "patch-node", "list-pods", "read-node", "patch-node"]
    assert cluster.now == T0 + POLICY.acting.settle
    assert driver.finals()[0].loan == "loan-n1"
    assert driver.finals()[0].target == "uid-n1"


INTRUDERS = {
    "an inference pod that was bound while we closed": pod("x", owner=OwnerClass.INFERENCE, reclaimable=False),
    "a pod that is promised the node": pod(
        "x", host="", nominated_node="n1", phase=PodPhase.PENDING, reclaimable=False
    ),
    "a pod whose GPUs cannot be counted": pod("x", gpus=None, reclaimable=False),
    "a pod that is still terminating": pod("x", deleting_at=T0 + timedelta(hours=1), reclaimable=False),
    "a training pod that did not opt in": pod("x", reclaimable=False),
    "a batch pod although training borrows": pod("x", owner=OwnerClass.BATCH),
}


@pytest.mark.parametrize("intruder", INTRUDERS.values(), ids=INTRUDERS)
def test_a_node_is_not_lent_but_opened_again_under(intruder: object) -> None:
    cluster = lending_cluster()
    assert hasattr(intruder, "uid")
    cluster.pods["x"] = intruder  # type: ignore[assignment]  # parametrize knows no types
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert driver.results() == ["lend refused node-taken"]
    assert cluster.nodes["n1"].taints == HOME
    assert cluster.nodes["n1"].loan is None


@pytest.mark.parametrize(
    "guest",
    [pod("x", gpus=0), pod("x", phase=PodPhase.SUCCEEDED, reclaimable=False), pod("x")],
    ids=["a pod without GPUs", "a pod that has ended", "a reclaimable borrower"],
)
def test_a_node_is_lent_despite(guest: object) -> None:
    cluster = lending_cluster()
    cluster.pods["x"] = guest  # type: ignore[assignment]  # parametrize knows no types
    assert Driver(cluster).feed(plan_of(lend_step())).run().results() == ["lend done confirmed"]


def test_a_gang_gets_all_its_nodes_or_none() -> None:
    cluster = lending_cluster("n1", "n2", "n3")
    cluster.pods["x"] = pod("x", host="n2", owner=OwnerClass.INFERENCE, reclaimable=False)
    plan = plan_of(*(lend_step(name) for name in ("n1", "n2", "n3")))
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == ["lend refused node-taken"] * 3
    assert [item.taints for item in cluster.nodes.values()] == [HOME] * 3
    assert not any(isinstance(call, PatchNode) and call.loan is not None for call in cluster.log)


def late_refusal(cluster: Cluster, borrower_lands: bool) -> Callable[[Call], Fault | None]:
    def answer(call: Call) -> Fault | None:
        if hands_over(call) and isinstance(call, PatchNode) and call.node_name == "n2":
            if borrower_lands:
                cluster.pods["b"] = pod("b")
            return Fault(Answer(AnswerKind.FORBIDDEN, message="policy says no"))
        return None

    return answer


def test_a_sibling_already_lent_comes_home_when_the_hand_over_of_another_is_refused() -> None:
    cluster = lending_cluster("n1", "n2")
    cluster.always = late_refusal(cluster, borrower_lands=False)
    driver = Driver(cluster).feed(plan_of(lend_step("n1"), lend_step("n2"))).run()
    assert driver.results() == ["lend refused forbidden"] * 2
    assert [item.taints for item in cluster.nodes.values()] == [HOME] * 2
    assert all(item.loan is None for item in cluster.nodes.values())


def test_a_sibling_on_which_the_borrower_has_landed_stays_lent_and_says_so() -> None:
    cluster = lending_cluster("n1", "n2")
    cluster.always = late_refusal(cluster, borrower_lands=True)
    driver = Driver(cluster).feed(plan_of(lend_step("n1"), lend_step("n2"))).run()
    assert driver.results() == ["lend done confirmed", "lend refused forbidden"]
    assert cluster.nodes["n1"].taints == LENT
    assert cluster.evicted == {}


REFUSALS: dict[str, tuple[Callable[[Cluster], None], str]] = {
    "the node is gone": (lambda c: c.nodes.clear(), "lend refused node-gone"),
    "another node took the name": (
        lambda c: c.put(replace(c.nodes["n1"], uid="other")), "lend refused node-gone"),
    "the node carries another loan": (
        lambda c: c.put(replace(c.nodes["n1"], loan=mark(loan="other"))), "lend refused node-changed"),
    "a newer actor wrote the mark": (
        lambda c: c.put(replace(c.nodes["n1"], loan=mark(epoch=9))), "lend stale stale-epoch"),
    "the node was cordoned": (
        lambda c: c.put(replace(c.nodes["n1"], cordoned=True)), "lend refused node-not-usable"),
    "the owner's taint is not there": (lambda c: c.edit("n1", [FOREIGN]), "lend refused node-changed"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "result"), REFUSALS.values(), ids=REFUSALS)
def test_nothing_is_written_when(change: Callable[[Cluster], None], result: str) -> None:
    cluster = lending_cluster()
    change(cluster)
    assert Driver(cluster).feed(plan_of(lend_step())).run().results() == [result]
    assert not any(isinstance(call, PatchNode) for call in cluster.log)


ANSWERS = [kind for kind in AnswerKind if kind not in (AnswerKind.OK, AnswerKind.GONE, AnswerKind.FORBIDDEN)]


@pytest.mark.parametrize("kind", ANSWERS, ids=str)
@pytest.mark.parametrize("call", ["read-node", "patch-node", "list-pods"])
@pytest.mark.parametrize("lost", [False, True], ids=["did nothing", "came true"])
def test_one_bad_answer_delays_a_lend_and_no_more(kind: AnswerKind, call: str, lost: bool) -> None:
    cluster = lending_cluster()
    cluster.faults[call] = [Fault(Answer(kind), lost)]
    assert Driver(cluster).feed(plan_of(lend_step())).run().results() == ["lend done confirmed"]
    assert cluster.nodes["n1"].taints == LENT


def hands_over(call: Call) -> bool:
    return isinstance(call, PatchNode) and call.loan is not None and call.loan.phase == "on-loan"


@pytest.mark.parametrize("kind", [AnswerKind.TIMED_OUT, AnswerKind.UNREACHABLE, AnswerKind.FAILED], ids=str)
def test_a_hand_over_that_never_succeeds_is_undone_within_the_deadline(kind: AnswerKind) -> None:
    cluster = lending_cluster()
    cluster.always = lambda call: Fault(Answer(kind)) if hands_over(call) else None
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert len(driver.results()) == 1
    assert driver.results()[0].startswith("lend refused")
    assert cluster.nodes["n1"].taints == HOME
    assert cluster.now - T0 < POLICY.acting.retry_deadline + POLICY.acting.retry_max * 2


def test_a_hand_over_that_came_true_unheard_is_taken_back_when_it_was_given_up() -> None:
    cluster = lending_cluster()
    over = T0 + POLICY.acting.retry_deadline + timedelta(minutes=2)

    def answer(call: Call) -> Fault | None:
        if hands_over(call):
            return Fault(Answer(AnswerKind.TIMED_OUT), lost=True)
        unheard = cluster.nodes["n1"].loan is not None and cluster.now < over
        return Fault(Answer(AnswerKind.UNREACHABLE)) if unheard else None

    cluster.always = answer
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert driver.results() == ["lend refused unreachable"]
    assert cluster.nodes["n1"].taints == HOME
    assert cluster.nodes["n1"].loan is None


def test_a_closing_taint_that_someone_keeps_removing_is_tried_three_times() -> None:
    cluster = lending_cluster()

    def janitor(call: Call) -> None:
        if call.kind == "list-pods":
            kept = [taint for taint in cluster.nodes["n1"].taints if taint.key != CLOSING]
            cluster.edit("n1", kept)

    cluster.before = janitor
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert driver.results() == ["lend refused contended"]
    assert sum(call.kind == "list-pods" for call in cluster.log) == POLICY.acting.contended_tries
    assert cluster.nodes["n1"].taints == HOME


def test_a_node_that_changes_under_every_patch_is_contended() -> None:
    cluster = lending_cluster()
    cluster.before = lambda call: cluster.put(cluster.nodes["n1"]) if call.kind == "patch-node" else None
    driver = Driver(cluster).feed(plan_of(lend_step())).run()
    assert driver.results() == ["lend refused contended"]


def test_a_lend_is_called_off_while_nothing_was_handed_over() -> None:
    cluster = lending_cluster()
    driver = Driver(cluster).feed(plan_of(lend_step()))
    driver.round()
    driver.round()
    driver.feed(plan_of(id="c", method=Method.CANCEL, cancels="plan-1")).run()
    assert driver.results() == ["cancel done not-needed", "lend cancelled not-needed"]
    assert cluster.nodes["n1"].taints == HOME


def test_a_pause_undoes_a_lend_that_was_not_handed_over_and_refuses_the_next() -> None:
    cluster = lending_cluster("n1", "n2")
    driver = Driver(cluster).feed(plan_of(lend_step()))
    driver.round()
    driver.round()
    driver.actor.control(Control(paused=True, by="ada"))
    driver.run().feed(plan_of(lend_step("n2"), id="next"))
    assert driver.results() == ["lend refused paused"] * 2
    assert [item.taints for item in cluster.nodes.values()] == [HOME] * 2


def test_a_lend_that_would_begin_at_its_recall_is_undone() -> None:
    cluster = lending_cluster()
    step = replace(lend_step(), recall_at=T0 + timedelta(seconds=1))
    driver = Driver(cluster).feed(plan_of(step)).run()
    assert driver.results() == ["lend refused window-closing"]
    assert cluster.nodes["n1"].taints == HOME
