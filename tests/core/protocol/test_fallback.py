"""Kafka silent: what falls due comes home from the marks on the nodes alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rebalancer.core.facts import Control, GangSpec, Namespace, Node, Pod, PodPhase
from rebalancer.core.methods.return_ import MARGIN
from rebalancer.core.optout import marked
from rebalancer.core.plan import EvictGang, Plan, Result
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.fallback import due_returns, stayers
from rebalancer.core.reasons import Reason
from rebalancer.core.units import CLOSING
from tests.core.protocol.fake import FOREIGN, OWNER, POLICY, T0, Driver, budget, lent, lent_cluster, mark, node, pod

RECALL = T0 + timedelta(hours=7)


def plans(nodes: list[Node], pods: list[Pod], now: datetime = RECALL) -> list[Plan]:
    return due_returns(nodes, pods, [budget(4)], POLICY, now, term=3)


def kinds(plan: Plan) -> list[str]:
    return [f"{step.kind} {step.gang if isinstance(step, EvictGang) else step.node_name}" for step in plan.steps]


def test_nothing_is_planned_before_the_recall_time_nor_for_nodes_at_home() -> None:
    assert plans([lent("n1"), node("n2")], [pod("p0")], RECALL - MARGIN - timedelta(seconds=1)) == []
    assert plans([node("n2")], [pod("p0", "n2")]) == []


def test_a_due_node_is_closed_emptied_of_whole_gangs_and_restored() -> None:
    (plan,) = plans([lent("n1")], [pod("p0"), pod("p1", "elsewhere"), pod("q0", "elsewhere", gang="q")])
    assert kinds(plan) == ["close n1", "evict train", "restore n1"]
    step = plan.steps[1]
    assert isinstance(step, EvictGang)
    assert [(item.uid, item.budgets) for item in step.members] == [("p0", ("pdb",)), ("p1", ("pdb",))]
    assert (plan.term, plan.pressing, plan.method.value) == (3, True, "return")


def test_nodes_that_share_a_gang_share_a_plan_and_others_do_not() -> None:
    nodes = [lent(name) for name in ("n3", "n1", "n2")]
    found = plans(nodes, [pod("a0", "n1", gang="a"), pod("a1", "n3", gang="a"), pod("b0", "n2", gang="b")])
    assert [kinds(plan) for plan in found] == [
        ["close n1", "close n3", "evict a", "restore n1", "restore n3"], ["close n2", "evict b", "restore n2"],
    ]  # fmt: skip


def test_pods_that_leave_or_hold_nothing_or_never_opted_in_are_not_chosen() -> None:
    pods = [
        pod("a", gang="a", gpus=0), pod("b", gang="b", phase=PodPhase.SUCCEEDED), pod("c", gang="c", reclaimable=False),
        pod("d", gang="d", deleting_at=RECALL),
    ]  # fmt: skip
    (plan,) = plans([lent("n1")], pods)
    assert kinds(plan) == ["close n1", "restore n1"]


def test_asking_again_makes_the_same_plan_until_its_retries_are_over() -> None:
    first, again, later = (plans([lent("n1")], [], RECALL + timedelta(minutes=minutes))[0].id for minutes in (0, 8, 11))
    assert first == again
    assert first != later


def test_the_actor_carries_such_plans_out_like_any_other() -> None:
    cluster = lent_cluster("n1", "n2", pods=[pod("p0"), pod("p1", "n2")])
    cluster.move(RECALL)
    cluster.put(replace(lent("n2"), loan=replace(mark("n2"), recall_at=RECALL + timedelta(hours=1))))
    driver = Driver(cluster)
    driver.actor.seen_term(3)
    found = plans(list(cluster.nodes.values()), list(cluster.pods.values()))
    driver.feed(*found).run()
    assert {item.result for item in driver.finals()} == {Result.DONE}
    assert cluster.nodes["n1"].taints == (OWNER, FOREIGN)
    assert CLOSING not in {taint.key for taint in cluster.nodes["n2"].taints}
    assert cluster.evicted == {"p0": 1, "p1": 1}


def test_while_kafka_is_silent_for_less_than_the_bound_only_what_could_not_wait_for_it_is_planned() -> None:
    loan = lent("n1").mark
    assert loan is not None
    bound, leave = POLICY.acting.kafka_silent, timedelta(seconds=pod("p0").grace_seconds + pod("p0").notice_seconds)
    last = loan.due - bound - MARGIN - leave

    def short(now: datetime) -> list[Plan]:
        return due_returns([lent("n1")], [pod("p0")], [], POLICY, now, 3, timedelta(seconds=10))

    assert short(last - timedelta(seconds=1)) == []
    assert [kinds(plan) for plan in short(last)] == [["close n1", "evict train", "restore n1"]]
    assert plans([lent("n1")], [pod("p0")], last - timedelta(seconds=1)) != []


CALLS = {
    "a node by name": (Control(recall_nodes=("n1",), by="ada"), {"n1"}, Reason.OPERATOR_RECALL),
    "a pool": (Control(recall_pools=("infer-a100",), by="ada"), {"n1", "n2"}, Reason.OPERATOR_RECALL),
    "everything": (Control(recall_all=True), {"n1", "n2"}, Reason.OPERATOR_RECALL),
    "retirement": (Control(retired=True), {"n1", "n2"}, Reason.RETIRING),
    "another node": (Control(recall_nodes=("n9",)), set(), Reason.OPERATOR_RECALL),
    "another pool": (Control(recall_pools=("infer-l20",)), set(), Reason.OPERATOR_RECALL),
    "a pause": (Control(paused=True), set(), Reason.PAUSED),
}


@pytest.mark.parametrize(("control", "home", "reason"), CALLS.values(), ids=CALLS)
def test_what_the_brakes_call_home_needs_no_due_time(control: Control, home: set[str], reason: Reason) -> None:
    nodes = [lent("n1"), lent("n2"), node("n3")]
    found = due_returns(nodes, [pod("p0")], [], POLICY, T0, term=3, control=control)
    assert {step.node_name for plan in found for step in plan.steps if step.kind == "restore"} == home
    assert all(plan.because.reason is reason and plan.pressing for plan in found)


def test_a_call_waits_for_the_bound_since_the_decider_may_still_answer_it() -> None:
    bound, called = POLICY.acting.kafka_silent, Control(recall_all=True)
    for silent, plans_made in ((bound - timedelta(seconds=1), 0), (bound, 1)):
        assert len(due_returns([lent("n1")], [], [], POLICY, T0, 3, silent, called)) == plans_made


def test_gangs_of_a_called_node_leave_within_the_retries_whenever_the_loan_is_due() -> None:
    (plan,) = due_returns([lent("n1")], [pod("p0")], [], POLICY, T0, control=Control(recall_all=True))
    step = plan.steps[1]
    assert isinstance(step, EvictGang)
    assert step.deadline == T0 + POLICY.acting.retry_deadline


def test_a_node_that_is_due_and_called_comes_home_because_it_is_due() -> None:
    (plan,) = due_returns([lent("n1")], [], [], POLICY, RECALL, control=Control(recall_all=True))
    assert plan.because.reason is Reason.LOAN_DUE


@pytest.mark.parametrize(
    ("control", "evicted"),
    [
        pytest.param(Control(recall_all=True), 1, id="recalled"),
        pytest.param(Control(recall_all=True, paused=True), 1, id="recalled while paused: recalls go on by default"),
    ],
)
def test_the_actor_brings_home_what_the_brakes_call(control: Control, evicted: int) -> None:
    cluster = lent_cluster("n1", pods=[pod("p0")])
    driver = Driver(cluster)
    driver.actor.control(control)
    found = due_returns(
        list(cluster.nodes.values()), list(cluster.pods.values()), [budget(4)], POLICY, cluster.now, control=control
    )
    driver.feed(*found).run()
    assert (cluster.nodes["n1"].taints, cluster.evicted) == ((OWNER, FOREIGN), {"p0": evicted})


SPARING = replace(POLICY, pace=replace(POLICY.pace, recall_while_paused=False))
QUIET = {
    "the pod": (pod("a0", "n1", gang="a", opted_out=True), ()),
    "another member of its gang": (pod("a0", "n1", gang="a"), (pod("a1", "far", gang="a", opted_out=True),)),
    "its gang object": (pod("a0", "n1", gang="a"), (GangSpec("u", "a", "ml", 1, 1, opted_out=True),)),
    "its namespace": (pod("a0", "n1", gang="a", namespace="quiet"), (Namespace("u", "quiet", opted_out=True),)),
}
"""A pod on n1, and who else there is."""


@pytest.mark.parametrize("control", [None, Control(retired=True)], ids=["due", "called home"])
@pytest.mark.parametrize(("guest", "others"), QUIET.values(), ids=QUIET)
@pytest.mark.parametrize(("policy", "home"), [(POLICY, {"n1", "n2"}), (SPARING, {"n2"})], ids=["taken", "spared"])
def test_who_opted_out_stays_where_the_policy_says_so(
    guest: Pod, others: tuple[object, ...], policy: Policy, home: set[str], control: Control | None
) -> None:
    """The last row of the guards' table without Kafka: only if recallWhilePaused, whoever of the three opted out."""
    listed = [guest, *(one for one in others if isinstance(one, Pod)), pod("b0", "n2", gang="b")]
    pods = marked(listed, others)
    now = T0 if control is not None else RECALL
    found = due_returns([lent("n1"), lent("n2")], pods, [], policy, now, term=3, control=control)
    assert {step.node_name for plan in found for step in plan.steps if step.kind == "restore"} == home
    assert set(stayers(pods, policy)) - {"far"} == {"n1", "n2"} - home


def test_a_gang_leaves_a_due_node_whole_though_another_gang_keeps_its_other_node() -> None:
    pods = [pod("a0", "n1", gang="a"), pod("a1", "n2", gang="a"), pod("b0", "n2", gang="b", opted_out=True)]
    (plan,) = due_returns([lent("n1"), lent("n2")], pods, [], SPARING, RECALL)
    assert kinds(plan) == ["close n1", "evict a", "restore n1"]


def test_who_others_stay_for_is_named() -> None:
    pods = [pod(uid, "n1", gang=uid, opted_out=True) for uid in ("b0", "a0")]
    assert {node: because.numbers for node, because in stayers(pods, SPARING).items()} == {"n1": {"target": "ml/a0"}}


@pytest.mark.parametrize(
    "guest",
    [
        pytest.param(pod("a0", opted_out=True, phase=PodPhase.FAILED), id="has ended"),
        pytest.param(pod("a0", opted_out=True, deleting_at=RECALL), id="is leaving"),
        pytest.param(pod("a0", opted_out=True, gpus=0), id="holds nothing"),
        pytest.param(pod("a0", opted_out=True, reclaimable=False), id="never opted in and is not evicted anyway"),
    ],
)
def test_an_opt_out_keeps_no_node_by_a_pod_that(guest: Pod) -> None:
    assert stayers([guest], SPARING) == {}
