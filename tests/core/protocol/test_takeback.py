"""Taking back: closed, checked, told, evicted as one, waited for, handed back in one patch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control, PodPhase, Taint
from rebalancer.core.plan import Method, Plan
from rebalancer.core.protocol.actor import Actor
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    Call,
    EvictPod,
    GiveNotice,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    writes,
)
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
    lent_cluster,
    mark,
    member,
    pod,
    take_back,
)

LENT = (Taint(ON_LOAN, "training"), FOREIGN)
HOME = (OWNER, FOREIGN)
GANG = [pod(f"p{index}", "n1" if index < 2 else "n2", gpus=4) for index in range(4)]
DONE = ["close done confirmed", "evict done confirmed", "restore done confirmed"]
REFUSED = ["close done confirmed", "evict refused {0}", "restore cancelled {0}"]


def refused(reason: str) -> list[str]:
    return [line.format(reason) for line in REFUSED]


def due(cluster: Cluster) -> Plan:
    return take_back(cluster, method=Method.RETURN, pressing=True)


def small() -> Cluster:
    return lent_cluster("n1", pods=[pod("p0", gpus=4), pod("p1", gpus=4)])


def test_a_gang_over_two_nodes_goes_as_one_and_both_nodes_come_home() -> None:
    cluster = lent_cluster("n1", "n2", pods=GANG)
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert driver.results() == [DONE[0], DONE[0], DONE[1], DONE[2], DONE[2]]
    assert cluster.evicted == {"p0": 1, "p1": 1, "p2": 1, "p3": 1}
    assert [item.taints for item in cluster.nodes.values()] == [HOME, HOME]
    assert all(item.loan is None for item in cluster.nodes.values())
    assert driver.finals()[2].numbers == {
        "members": 4, "lost_gpu_seconds": 100.0, "workload": "ml/train", "namespace": "ml",
    }  # fmt: skip
    assert driver.finals()[3].numbers == {"return_seconds": (cluster.now - T0).total_seconds()}
    assert driver.finals()[2].target == "train"


def test_the_first_eviction_is_asked_for_only_after_every_close_is_confirmed_and_every_check_passed() -> None:
    cluster = lent_cluster("n1", "n2", pods=GANG)
    cluster.faults["patch-node"] = [Fault(Answer(AnswerKind.CONFLICT))] * 2
    Driver(cluster).feed(take_back(cluster)).run()
    first = next(i for i, call in enumerate(cluster.log) if isinstance(call, EvictPod) and not call.dry_run)
    before = cluster.log[:first]
    assert sum(isinstance(call, PatchNode) for call in before) == 4
    assert sum(isinstance(call, EvictPod) for call in before) == 4
    assert sum(isinstance(call, ReadBudgets) for call in before) == 1


def test_a_node_that_is_empty_already_comes_home_without_an_eviction() -> None:
    cluster = lent_cluster("n1")
    assert Driver(cluster).feed(take_back(cluster)).run().results() == [DONE[0], DONE[2]]
    assert cluster.nodes["n1"].taints == HOME


def test_an_accepted_eviction_is_releasing_and_the_node_waits_until_the_pod_is_really_gone() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=29))
    assert cluster.nodes["n1"].taints == (*LENT, Taint(CLOSING))
    assert driver.run().results() == DONE
    assert cluster.now >= T0 + timedelta(seconds=30)


# --- what forbids an eviction before it began ----------------------------------------------------------------------

BEFORE: dict[str, tuple[Callable[[Cluster], object], str]] = {
    "a budget allows fewer than the gang although every dry run passes": (
        lambda c: c.budgets.update(a=budget(1)), "budget-blocked"),
    "a dry run is refused by a budget that the arithmetic cannot see": (
        lambda c: c.faults["dry-run p1"].append(Fault(Answer(AnswerKind.BLOCKED))), "budget-blocked"),
    "two budgets cover a pod": (
        lambda c: c.budgets.update(a=budget(9), b=budget(9, name="b")), "two-budgets"),
    "a dry run names two budgets": (
        lambda c: c.faults["dry-run p1"].append(Fault(Answer(AnswerKind.TWO_BUDGETS))), "two-budgets"),
    "evicting is not permitted": (
        lambda c: c.faults["dry-run p0"].append(Fault(Answer(AnswerKind.FORBIDDEN))), "forbidden"),
    "a member is protected": (
        lambda c: c.pods.update(p1=pod("p1", protected=("safe-to-evict",))), "protected"),
    "a member is of the inference class": (
        lambda c: c.pods.update(p1=pod("p1", owner=OwnerClass.INFERENCE)), "protected"),
    "a member lives in a protected namespace": (
        lambda c: c.pods.update(p1=pod("p1", namespace="kube-system")), "protected"),
    "a member elsewhere did not opt in": (
        lambda c: c.pods.update(p1=pod("p1", "elsewhere", reclaimable=False)), "opt-in-missing"),
    "every real eviction is blocked": (
        lambda c: c.faults.update(
            {f"evict p{i}": [Fault(Answer(AnswerKind.BLOCKED))] for i in range(2)}), "budget-blocked"),
    "the first real eviction finds two budgets": (
        lambda c: c.faults.update(
            {f"evict p{i}": [Fault(Answer(AnswerKind.TWO_BUDGETS))] for i in range(2)}), "two-budgets"),
    "real evictions are not permitted": (
        lambda c: c.faults.update(
            {f"evict p{i}": [Fault(Answer(AnswerKind.FORBIDDEN))] for i in range(2)}), "forbidden"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "reason"), BEFORE.values(), ids=BEFORE)
def test_the_whole_gang_is_left_alone_and_the_node_opens_again_when(
    change: Callable[[Cluster], object], reason: str
) -> None:
    cluster = small()
    change(cluster)
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert driver.results() == refused(reason)
    assert cluster.evicted == {}
    assert cluster.nodes["n1"].taints == LENT
    loan = cluster.nodes["n1"].loan
    assert loan is not None
    assert loan.phase == "on-loan"


@pytest.mark.parametrize(("pressing", "reason"), [(False, "opted-out"), (True, "confirmed")], ids=["load", "due"])
def test_a_pod_that_opted_out_goes_only_for_what_presses(pressing: bool, reason: str) -> None:
    cluster = small()
    cluster.pods["p1"] = replace(cluster.pods["p1"], opted_out=True)
    driver = Driver(cluster).feed(take_back(cluster, pressing=pressing)).run()
    assert driver.finals()[1].because.reason.value == reason


def test_a_pod_on_the_lent_node_may_be_evicted_although_it_did_not_opt_in() -> None:
    cluster = small()
    cluster.pods["p1"] = replace(cluster.pods["p1"], reclaimable=False)
    assert Driver(cluster).feed(take_back(cluster)).run().results() == DONE


def test_a_due_return_waits_for_its_budget_and_says_so_once() -> None:
    cluster = small()
    cluster.budgets["a"] = budget(0)
    driver = Driver(cluster).feed(due(cluster)).run(until=T0 + timedelta(minutes=4))
    assert [reason.value for reason in driver.blocked()] == ["budget-blocked"]
    reads = [call for call in cluster.log if isinstance(call, ReadBudgets)]
    assert 5 < len(reads) < 12
    cluster.budgets["a"] = budget(2)
    assert driver.run().results() == DONE
    assert sum(cluster.evicted.values()) == 2


def test_a_due_return_that_stays_blocked_is_given_up_at_its_deadline_with_nobody_touched() -> None:
    cluster = small()
    cluster.budgets["a"] = budget(0)
    driver = Driver(cluster).feed(due(cluster)).run()
    assert driver.results() == refused("budget-blocked")
    assert timedelta(minutes=30) <= cluster.now - T0 < timedelta(minutes=32)
    assert cluster.evicted == {}
    assert cluster.nodes["n1"].taints == LENT


def test_a_budget_whose_status_is_behind_its_spec_is_waited_for() -> None:
    cluster = small()
    cluster.budgets["a"] = replace(budget(5), current=False)
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=20))
    assert cluster.evicted == {}
    cluster.budgets["a"] = budget(5)
    assert driver.run().results() == DONE


def test_two_gangs_under_one_budget_do_not_together_take_more_than_it_allows() -> None:
    pods = [pod(f"{gang}{i}", gang=gang, gpus=2, labels={"gang": "both"}) for gang in "ab" for i in range(2)]
    cluster = lent_cluster("n1", pods=pods)
    cluster.budgets["a"] = budget(3, gang="both")
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert [line.split()[:2] for line in driver.results()[1:3]] == [["evict", "done"], ["evict", "refused"]]
    assert cluster.evicted == {"a0": 1, "a1": 1}
    assert driver.blocked() == []


def test_evictions_still_on_their_way_count_against_a_budget_that_was_read_before() -> None:
    cluster = lent_cluster("n1", pods=[pod("a0", gang="a", labels={"gang": "both"})])
    cluster.budgets["a"] = budget(1, gang="both")
    actor = Actor(POLICY, epoch=1)
    flights = actor._site.flights
    flights.reserve(("ml", "pdb"), ["other"])
    driver = Driver(cluster, actor).feed(take_back(cluster)).run()
    assert driver.results() == refused("budget-blocked")
    flights.accepted("other")
    assert flights.unseen(("ml", "pdb"), flights.now()) == 0


# --- answers in the middle -----------------------------------------------------------------------------------------

PASSING = ["dry-run p0", "read-members", "read-budgets", "list-pods", "read-node", "patch-node", "evict p0"]
TRANSIENT = [AnswerKind.THROTTLED, AnswerKind.TIMED_OUT, AnswerKind.UNREACHABLE, AnswerKind.FAILED]


@pytest.mark.parametrize("kind", TRANSIENT, ids=str)
@pytest.mark.parametrize("call", PASSING)
@pytest.mark.parametrize("lost", [False, True], ids=["did nothing", "came true"])
def test_one_passing_failure_delays_a_return_and_no_more(kind: AnswerKind, call: str, lost: bool) -> None:
    cluster = small()
    cluster.faults[call] = [Fault(Answer(kind), lost)]
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert driver.results() == DONE
    assert cluster.evicted == {"p0": 1, "p1": 1}
    assert driver.finals()[1].numbers["members"] == 2


@pytest.mark.parametrize("kind", TRANSIENT[1:], ids=str)
@pytest.mark.parametrize("call", ["dry-run p0", "read-members", "read-budgets", "read-node", "evict p0"])
def test_a_call_that_always_fails_ends_the_plan_within_its_bounds(kind: AnswerKind, call: str) -> None:
    cluster = small()
    cluster.faults[call] = [Fault(Answer(kind))] * 500
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert len(driver.finals()) == 3
    assert len(cluster.log) < 200
    assert sum(cluster.evicted.values()) in (0, 1), "p1 may go before p0 is known to fail, never more"


def test_a_pod_that_went_while_its_eviction_was_never_answered_is_seen_to_be_gone() -> None:
    cluster = small()
    cluster.faults["evict p0"] = [Fault(Answer(AnswerKind.TIMED_OUT))] * 99
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=10))
    del cluster.pods["p0"]  # and another of its name took its place: the server tries for long to make that go
    assert driver.run(until=T0 + timedelta(seconds=60)).results() == DONE
    assert cluster.evicted == {"p1": 1}


def test_a_member_that_hangs_delays_no_other() -> None:
    cluster = small()
    cluster.faults["evict p0"] = [Fault(Answer(AnswerKind.TIMED_OUT))] * 2
    Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=1))
    assert cluster.evicted == {"p1": 1}


@pytest.mark.parametrize(
    ("covered", "most"),
    [
        pytest.param((), 4, id="no budget: side by side"),
        pytest.param(("pdb",), 1, id="one budget: in turn, for they conflict at the server"),
    ],
)
def test_evictions_are_asked_for_at_once_as_far_as_no_budget_is_shared(covered: tuple[str, ...], most: int) -> None:
    cluster = lent_cluster("n1", "n2", pods=GANG)
    if covered:
        cluster.budgets["a"] = budget(4)
    unanswered: list[int] = []

    class Watched(Driver):
        def round(self) -> bool:
            before = len(cluster.real_evictions())
            went_on = super().round()
            unanswered.append(len(cluster.real_evictions()) - before)
            return went_on

    driver = Watched(cluster).feed(take_back(cluster, budgets=covered)).run()
    assert max(unanswered) == most
    assert cluster.evicted == {"p0": 1, "p1": 1, "p2": 1, "p3": 1}
    assert driver.results()[2] == DONE[1]


def test_a_budget_that_closes_in_the_middle_is_a_split_gang_that_is_told_and_finished() -> None:
    cluster = small()
    cluster.budgets["a"] = budget(2)
    cluster.faults["evict p1"] = [Fault(Answer(AnswerKind.BLOCKED))] * 3
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert [reason.value for reason in driver.blocked()] == ["gang-split"]
    assert driver.results() == DONE
    assert cluster.evicted == {"p0": 1, "p1": 1}
    tries = [call for call in cluster.real_evictions() if call.member.uid == "p1"]
    assert len(tries) == 4


def test_no_other_gang_of_a_budget_goes_while_one_is_split() -> None:
    pods = [pod(f"a{i}", gang="a", gpus=2, labels={"gang": "both"}) for i in range(2)]
    cluster = lent_cluster("n1", "n2", pods=pods)
    cluster.budgets["x"] = budget(9, gang="both")
    cluster.faults["evict a1"] = [Fault(Answer(AnswerKind.BLOCKED))] * 4
    driver = Driver(cluster)
    first = take_back(cluster, budgets=("pdb",))
    first = replace(first, steps=tuple(s for s in first.steps if getattr(s, "node", "") != "uid-n2"))
    driver.feed(first).run(until=T0 + timedelta(seconds=2))
    cluster.pods = {"b0": pod("b0", "n2", gang="b", labels={"gang": "both"}), **cluster.pods}
    second = take_back(cluster, budgets=("pdb",), id="second")
    keep = [s for s in second.steps if getattr(s, "node", "") == "uid-n2" or getattr(s, "gang", "") == "b"]
    driver.feed(replace(second, steps=tuple(keep))).run()
    by_plan = {(item.plan, item.kind): item.because.reason.value for item in driver.finals()}
    assert by_plan["plan-1", "evict"] == "confirmed"
    assert by_plan["second", "evict"] == "budget-blocked"
    again = replace(second, id="third", steps=tuple(keep), valid_until=cluster.now + timedelta(minutes=9))
    driver.feed(again).run()
    assert [item.result.value for item in driver.finals() if item.plan == "third"] == ["done"] * 3


def test_a_split_gang_that_can_never_be_finished_is_given_up_at_its_deadline_and_told() -> None:
    cluster = small()
    cluster.faults["evict p1"] = [Fault(Answer(AnswerKind.TWO_BUDGETS))] * 500
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert driver.results() == refused("gang-split")
    assert cluster.now - T0 >= timedelta(minutes=30)
    assert len(cluster.real_evictions()) < 60


def test_throttling_slows_the_whole_actor_and_keeps_the_victim() -> None:
    cluster = lent_cluster("n1", "n2", pods=GANG)
    cluster.faults["evict p0"] = [Fault(Answer(AnswerKind.THROTTLED, retry_after=10))]
    driver = Driver(cluster).feed(take_back(cluster))
    while not cluster.real_evictions():
        driver.round()
    assert driver.actor.advance(T0 + timedelta(seconds=9)) == []
    assert driver.actor.next_wake(T0) == T0 + timedelta(seconds=10)
    driver.run()
    assert cluster.evicted["p0"] == 1
    assert driver.results().count("restore done confirmed") == 2


def test_another_pod_with_the_same_name_is_never_evicted_and_the_member_counts_as_gone() -> None:
    cluster = small()
    plan = take_back(cluster)
    del cluster.pods["p0"]
    cluster.pods["new"] = pod("new", "elsewhere", name="p0")
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == DONE
    assert cluster.evicted == {"p1": 1}
    assert driver.finals()[1].numbers["members"] == 1


@pytest.mark.parametrize("kind", [AnswerKind.GONE, AnswerKind.CONFLICT], ids=str)
@pytest.mark.parametrize("call", ["dry-run p0", "evict p0"])
def test_a_member_that_vanishes_counts_as_gone_and_not_as_ours(kind: AnswerKind, call: str) -> None:
    cluster = small()
    cluster.faults[call] = [Fault(Answer(kind))]
    plan = take_back(cluster)

    def vanish(asked: Call) -> None:
        if isinstance(asked, EvictPod) and asked.member.uid == "p0" and asked.dry_run == call.startswith("dry"):
            cluster.pods.pop("p0", None)

    cluster.before = vanish
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == DONE
    assert driver.finals()[1].numbers["members"] == 1


def test_a_pod_that_has_ended_is_never_touched() -> None:
    cluster = small()
    plan = take_back(cluster)
    cluster.pods["p0"] = replace(cluster.pods["p0"], phase=PodPhase.SUCCEEDED)
    assert Driver(cluster).feed(plan).run().results() == DONE
    assert cluster.evicted == {"p1": 1}


def test_a_pod_that_will_not_go_is_told_once_as_stuck_and_waited_for() -> None:
    cluster = small()
    cluster.sticky = {"p0"}
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(minutes=20))
    assert [reason.value for reason in driver.blocked()] == ["stuck"]
    assert driver.results() == DONE[:1]
    reads = [call for call in cluster.log if isinstance(call, ReadMembers)]
    assert len(reads) < 70
    cluster.sticky = set()
    assert driver.run().results() == DONE


def test_an_elastic_gang_gives_up_only_the_members_named() -> None:
    cluster = small()
    plan = take_back(cluster, evict={"whole": False})
    cluster.pods["p9"] = pod("p9", "elsewhere")
    Driver(cluster).feed(plan).run()
    assert cluster.evicted == {"p0": 1, "p1": 1}


def test_evictions_are_paced_by_the_bucket() -> None:
    pods = [pod(f"p{i:02}", gpus=1) for i in range(30)]
    cluster = lent_cluster("n1", pods=pods)
    pace = replace(POLICY.pace, evictions_per_second=10.0, eviction_burst=5)
    actor = Actor(replace(POLICY, pace=pace), epoch=1)
    driver = Driver(cluster, actor).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=1))
    assert 14 <= sum(cluster.evicted.values()) <= 15
    assert driver.run().results() == DONE
    assert sum(cluster.evicted.values()) == 30


# --- notice --------------------------------------------------------------------------------------------------------


def test_notice_is_given_for_as_long_as_the_gang_asked_and_evictions_wait_for_it() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 120}))
    driver.run(until=T0 + timedelta(seconds=119))
    assert cluster.evicted == {}
    notices = [call for call in cluster.log if isinstance(call, GiveNotice)]
    assert [(call.evict_at, call.top_owner) for call in notices] == [(T0 + timedelta(seconds=120), "Job/train")]
    assert driver.run().results() == DONE


def test_a_checkpoint_after_the_notice_ends_it_early() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 600}))
    driver.run(until=T0 + timedelta(seconds=20))
    cluster.pods["p0"] = replace(cluster.pods["p0"], checkpointed_at=T0 + timedelta(seconds=15))
    driver.run(until=T0 + timedelta(seconds=40))
    assert sum(cluster.evicted.values()) == 2


def test_a_checkpoint_from_before_the_notice_ends_nothing() -> None:
    cluster = small()
    cluster.pods["p0"] = replace(cluster.pods["p0"], checkpointed_at=T0 - timedelta(seconds=15))
    Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 600})).run(until=T0 + timedelta(seconds=60))
    assert cluster.evicted == {}


def test_a_checkpoint_in_progress_may_finish_as_long_as_the_deadline_holds() -> None:
    cluster = small()
    cluster.pods["p0"] = replace(cluster.pods["p0"], checkpoint_in_progress=True)
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=60))
    assert cluster.evicted == {}
    cluster.pods["p0"] = replace(cluster.pods["p0"], checkpoint_in_progress=False)
    driver.run(until=T0 + timedelta(seconds=90))
    assert sum(cluster.evicted.values()) == 2


def test_no_eviction_before_the_time_of_the_step() -> None:
    cluster = small()
    later = T0 + timedelta(minutes=5)
    driver = Driver(cluster).feed(take_back(cluster, evict={"not_before": later}))
    driver.run(until=later - timedelta(seconds=1))
    assert cluster.evicted == {}
    assert driver.run().results() == DONE


@pytest.mark.parametrize("kind", [AnswerKind.FORBIDDEN, AnswerKind.FAILED, AnswerKind.UNREACHABLE], ids=str)
def test_a_notice_that_cannot_be_given_stops_nothing(kind: AnswerKind) -> None:
    cluster = small()
    cluster.faults["give-notice"] = [Fault(Answer(kind))] * 9
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 60})).run()
    assert driver.results() == DONE
    assert len([call for call in cluster.log if isinstance(call, GiveNotice)]) <= 3


def test_a_gang_that_goes_by_itself_while_it_is_checked_is_given_no_notice() -> None:
    cluster = small()
    cluster.before = lambda call: cluster.pods.clear() if isinstance(call, EvictPod) else None
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 60})).run()
    assert driver.results() == DONE
    assert [call for call in cluster.log if isinstance(call, GiveNotice)] == []


def test_checks_are_made_again_after_a_notice() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 60}))
    driver.run(until=T0 + timedelta(seconds=30))
    cluster.budgets["a"] = budget(1)
    assert driver.run().results() == refused("budget-blocked")
    assert cluster.evicted == {}


# --- nodes ---------------------------------------------------------------------------------------------------------

NODES: dict[str, tuple[Callable[[Cluster], object], str, str]] = {
    "the node carries no mark": (
        lambda c: c.put(replace(c.nodes["n1"], loan=None)), "refused", "loan-lost"),
    "another actor has taken over": (
        lambda c: c.put(replace(c.nodes["n1"], loan=mark(epoch=7))), "stale", "stale-epoch"),
    "another loan is on it": (
        lambda c: c.put(replace(c.nodes["n1"], loan=mark(loan="x"))), "refused", "node-changed"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "result", "reason"), NODES.values(), ids=NODES)
def test_nobody_is_touched_when(change: Callable[[Cluster], object], result: str, reason: str) -> None:
    cluster = small()
    plan = take_back(cluster)
    change(cluster)
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == [f"{step} {result} {reason}" for step in ("close", "evict", "restore")]
    assert cluster.evicted == {}
    assert not any(isinstance(call, PatchNode) for call in cluster.log)


def test_a_node_that_is_gone_does_not_keep_its_gang_from_being_finished_elsewhere() -> None:
    cluster = lent_cluster("n1", "n2", pods=GANG)
    plan = take_back(cluster)
    del cluster.nodes["n2"]
    del cluster.pods["p2"], cluster.pods["p3"]
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == [
        "close done confirmed", "close refused node-gone", "evict done confirmed",
        "restore done confirmed", "restore refused node-gone",
    ]  # fmt: skip
    assert driver.finals()[2].numbers["members"] == 2


def test_a_borrower_that_came_unplanned_opens_the_node_again_soon_so_that_the_next_plan_can_have_it() -> None:
    cluster = small()
    plan = take_back(cluster)
    cluster.pods["late"] = pod("late", gang="late")
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == [*DONE[:2], "restore cancelled node-taken"]
    assert timedelta(minutes=2) <= cluster.now - T0 < timedelta(minutes=5)


def test_a_gang_on_a_node_that_cannot_be_closed_is_left_alone_and_the_others_go() -> None:
    cluster = lent_cluster("n1", "n2", pods=[pod("a0", "n1", gang="a"), pod("b0", "n2", gang="b")])
    plan = take_back(cluster)
    cluster.put(replace(cluster.nodes["n1"], loan=mark(loan="x")))
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == [
        "close refused node-changed", "close done confirmed", "evict refused node-changed", "evict done confirmed",
        "restore refused node-changed", "restore done confirmed",
    ]  # fmt: skip
    assert cluster.evicted == {"b0": 1}


def test_a_split_gang_that_then_hangs_is_told_as_both() -> None:
    cluster = small()
    cluster.sticky = {"p1"}
    cluster.faults["evict p1"] = [Fault(Answer(AnswerKind.BLOCKED))]
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(minutes=10))
    assert [reason.value for reason in driver.blocked()] == ["gang-split", "stuck"]
    assert len({item.id for item in driver.outcomes}) == len(driver.outcomes)


def test_a_squatter_keeps_the_node_and_the_node_opens_again_when_patience_is_over() -> None:
    cluster = small()
    plan = take_back(cluster)
    cluster.pods["s"] = pod("s", gang="s", reclaimable=False)
    driver = Driver(cluster).feed(plan).run()
    assert driver.results() == [*DONE[:2], "restore cancelled squatter"]
    assert [reason.value for reason in driver.blocked()] == ["squatter"]
    assert cluster.nodes["n1"].taints == LENT
    assert "s" not in cluster.evicted


def test_a_closing_taint_taken_off_while_we_wait_is_put_back_and_the_node_looked_at_again() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=10))
    cluster.edit("n1", LENT)
    assert driver.run().results() == DONE
    assert cluster.nodes["n1"].taints == HOME


def test_a_closing_taint_that_is_always_taken_off_is_contended() -> None:
    cluster = small()
    cluster.before = lambda call: cluster.edit("n1", LENT) if call.kind == "list-pods" else None
    driver = Driver(cluster).feed(take_back(cluster)).run()
    assert driver.results() == [*DONE[:2], "restore refused contended"]


# --- calling off ---------------------------------------------------------------------------------------------------


def cancel() -> Plan:
    return take_back(Cluster(), id="c", method=Method.CANCEL, cancels="plan-1")


def test_demand_that_goes_away_during_the_notice_calls_the_plan_off() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 60})).run(until=T0 + timedelta(seconds=9))
    driver.feed(cancel()).run()
    assert driver.results() == [
        "cancel done not-needed", "close done confirmed", "evict cancelled not-needed", "restore cancelled not-needed",
    ]  # fmt: skip
    assert cluster.nodes["n1"].taints == LENT
    assert cluster.evicted == {}


def test_a_plan_called_off_while_its_closing_patch_is_out_leaves_no_taint_behind() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster))
    driver.round()
    calls = driver.actor.advance(T0)
    assert [call.kind for _, call in calls if writes(call)] == ["patch-node"]
    driver.feed(cancel())
    for call_id, call in calls:
        driver.outcomes += driver.actor.answered(call_id, cluster.answer(call), T0)
    driver.run()
    assert cluster.nodes["n1"].taints == LENT
    assert driver.actor.idle


def test_after_the_first_eviction_calling_off_is_ignored() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster)).run(until=T0 + timedelta(seconds=5))
    driver.feed(cancel()).run()
    assert driver.results() == ["cancel refused in-transit", *DONE]


def test_a_plan_that_was_called_off_before_it_came_is_superseded() -> None:
    cluster = small()
    driver = Driver(cluster).feed(cancel(), take_back(cluster)).run()
    assert driver.results()[1:] == ["close stale superseded", "evict stale superseded", "restore stale superseded"]
    assert cluster.log == []


def test_a_pause_calls_off_what_does_not_press_and_leaves_what_does() -> None:
    cluster = small()
    driver = Driver(cluster).feed(take_back(cluster, evict={"notice_seconds": 60}, pressing=False))
    driver.run(until=T0 + timedelta(seconds=9))
    driver.actor.control(Control(paused_pools=("infer-a100",), by="ada"))
    driver.run()
    assert driver.results() == refused("paused")
    driver.feed(take_back(cluster, id="pressing")).run()
    assert {item.result.value for item in driver.finals() if item.plan == "pressing"} == {"done"}


def test_members_of_a_plan_are_named_by_uid_in_every_eviction() -> None:
    cluster = small()
    Driver(cluster).feed(take_back(cluster)).run()
    assert {call.member for call in cluster.real_evictions()} == {member(pod("p0", gpus=4)), member(pod("p1", gpus=4))}
