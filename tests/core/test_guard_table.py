"""The guard table of the design, cell by cell: what each guard stops, and what it must not stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from rebalancer.core.facts import Control, GangSpec, Namespace
from rebalancer.core.instructions import WorkloadRecord
from rebalancer.core.plan import Method, Plan
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import RecallRequested, Restored, StreamLagged, TimePassed
from rebalancer.core.units import Activity
from tests.core.build import START, Rig, budget, gang, lent, node, policy, pool_policy, replica

NODES = [f"n{index}" for index in range(6)]
Break = Callable[[Rig], None]


def silent(rig: Rig) -> None:
    """Telemetry says unknown everywhere."""
    rig.judge(Activity.UNKNOWN, None, (), rig.now)


def stale(rig: Rig) -> None:
    """No heartbeat and no verdict for longer than the freshness bound."""
    rig.now += timedelta(minutes=4)


def unsynced(rig: Rig) -> None:
    """No complete list of pods is known."""
    rig.engine.state.synced.clear()


def behind(rig: Rig) -> None:
    """The streams are behind."""
    rig.tell(StreamLagged(behind=True, lag_seconds=1200.0))


def no_term(rig: Rig) -> None:
    """This decider has no term."""
    rig.engine.state.term = -1


def cooling(rig: Rig) -> None:
    """All gangs were evicted a moment ago."""
    until = rig.now + timedelta(hours=1)
    records = tuple(WorkloadRecord(f"ml/{name}", "ml", (rig.now,), until) for name in ("a", "b", "waits"))
    rig.tell(Restored((), records, (), (), (), synced=True, at=rig.now))


def often(rig: Rig) -> None:
    """All gangs were preempted three times today."""
    until, thrice = rig.now + timedelta(hours=20), (rig.now - timedelta(hours=4),) * 3
    records = tuple(WorkloadRecord(f"ml/{n}", "ml", thrice, None, until) for n in ("a", "b", "waits"))
    rig.tell(Restored((), records, (), (), (), synced=True, at=rig.now))


def capped(rig: Rig) -> None:
    """The node caps of the rolling span are used up."""
    rig.engine.state.touched.append((rig.now + timedelta(minutes=1), "infer-a100", 60))


def paused(rig: Rig) -> None:
    """An operator paused everything."""
    rig.see(Control(paused=True, by="ops"))


def untouched(rig: Rig) -> None:
    """Nothing is wrong."""


def lending(broken: Break) -> list[Plan]:
    """A fleet that would lend at the next look, with something broken first."""
    rig = Rig()
    rig.sync(*(node(name) for name in NODES), replica("chat-0", on="n0"), *gang("waits"))
    rig.idle(*NODES[1:])
    rig.busy("n0")
    for _ in range(25):
        rig.engine.state.watches["infer-a100"].spare.observe(30.0, rig.now)
        rig.now += timedelta(minutes=1)
    rig.idle(*NODES[1:])
    rig.busy("n0")
    broken(rig)
    return [plan for plan in rig.plans() if plan.method is Method.LEND]


def on_loan(**times: timedelta) -> Rig:
    """Two nodes lent to gangs a and b, four at home."""
    rig = Rig(policy(pool_policy(floor_nodes=0, floor_share=0.0)))
    due = START + times.get("due", timedelta(hours=6))
    home = [node(name) for name in NODES[2:]]
    away = [lent(node(name), due=due) for name in NODES[:2]]
    rig.sync(*home, *away, *gang("a", on=["n0"]), *gang("b", on=["n1"]))
    rig.busy()
    rig.pass_time()
    return rig


def rising(broken: Break) -> list[Plan]:
    """Demand that grew beyond what stands ready for longer than the debounce."""
    rig = on_loan()
    for index, name in enumerate(NODES[2:]):
        rig.see(replica(f"chat-{index}", on=name))
    rig.busy(utilisation=8.0)
    rig.pass_time()
    broken(rig)
    made = rig.plans()
    for _ in range(3):
        made += rig.pass_time(heartbeat=broken is not stale)
    return [plan for plan in made if plan.method is Method.RECLAIM and not plan.pressing]


def pending(broken: Break) -> list[Plan]:
    """An inference pod that finds no room."""
    rig = on_loan()
    for index, name in enumerate(NODES[2:]):
        rig.see(replica(f"chat-{index}", on=name))
    rig.see(replica("chat-new", created_at=rig.now))
    broken(rig)
    return [plan for plan in rig.plans() if plan.method is Method.RECLAIM and plan.pressing]


def due(broken: Break) -> list[Plan]:
    """Loans whose return has to begin."""
    rig = on_loan(due=timedelta(minutes=23))
    broken(rig)
    return [plan for plan in rig.pass_time(2, heartbeat=False) if plan.method is Method.RETURN]


CELLS = [
    ("nothing broken", untouched, {lending: True, rising: True, pending: True, due: True}),
    ("utilisation unknown", silent, {lending: False, rising: False, pending: True, due: True}),
    ("utilisation stale", stale, {lending: False, rising: False, pending: True, due: True}),
    ("inventory unsynced", unsynced, {lending: False, rising: False, pending: False, due: True}),
    ("streams behind", behind, {lending: False, rising: False, pending: False, due: True}),
    ("cooldown", cooling, {lending: False, rising: True, pending: True, due: True}),
    ("three preemptions a day", often, {lending: False, rising: True, pending: True, due: True}),
    ("caps used up", capped, {lending: False, rising: False, pending: True, due: True}),
    ("paused", paused, {lending: False, rising: False, pending: True, due: True}),
]


@pytest.mark.parametrize(
    ("broken", "situation", "allowed"),
    [
        pytest.param(broken, situation, allowed, id=f"{name} {'allows' if allowed else 'stops'} {situation.__name__}")
        for name, broken, row in CELLS
        for situation, allowed in row.items()
    ],
)
def test_guard_table(broken: Break, situation: Callable[[Break], list[Plan]], allowed: bool) -> None:
    """Each cell of the table: an action is planned exactly when the guard does not stop it."""
    assert bool(situation(broken)) is allowed


def test_a_stale_term_plans_nothing_at_all() -> None:
    """Without a term of its own a decider publishes no plan of any kind."""
    assert [situation(no_term) for situation in (lending, rising, pending, due)] == [[], [], [], []]


def test_paused_holds_everything_when_the_policy_says_so() -> None:
    """With recallWhilePaused off a pause stops even pending pods and due times."""
    rig = on_loan(due=timedelta(minutes=23))
    rig.engine.state.policy = replace(
        rig.engine.state.policy, pace=replace(rig.engine.state.policy.pace, recall_while_paused=False)
    )
    paused(rig)
    rig.see(replica("chat-new"), *(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])))
    assert rig.pass_time(2) == []


def test_a_budget_that_blocks_one_gang_makes_reclaim_choose_the_other() -> None:
    """PDB of one gang closed: reclaim takes the other gang's node and says why not the first."""
    rig = on_loan()
    rig.see(budget("a", "a", allowed=0))
    rig.see(*(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])), replica("chat-new"))
    (plan,) = [item for item in rig.plans() if item.method is Method.RECLAIM]
    evicted = [step.gang for step in plan.steps if step.kind == "evict"]
    told = {item.target: item.because.reason for item in plan.alternatives}
    assert evicted == ["ml/b"]
    assert told["n0"] is Reason.BUDGET_BLOCKED


def test_a_budget_that_blocks_does_not_stop_a_scheduled_return() -> None:
    """PDB closed at the due time: the return is planned all the same, act waits and alerts."""
    rig = on_loan(due=timedelta(minutes=23))
    rig.see(budget("a", "a", allowed=0), budget("b", "b", allowed=0))
    (plan,) = rig.pass_time(2)
    assert plan.method is Method.RETURN
    assert {step.node_name for step in plan.steps if step.kind == "close"} == {"n0", "n1"}


def test_an_opted_out_node_is_never_lent_and_an_opted_out_gang_never_chosen() -> None:
    """Opt-out of a node stops lending it; of a workload, choosing it while others exist."""
    rig = on_loan()
    rig.see(*(replace(pod, opted_out=True) for pod in gang("a", on=["n0"])))
    rig.see(*(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])), replica("chat-new"))
    (plan,) = [item for item in rig.plans() if item.method is Method.RECLAIM]
    assert [step.gang for step in plan.steps if step.kind == "evict"] == ["ml/b"]


def test_a_load_driven_plan_over_a_quarter_of_the_pool_waits_for_approval() -> None:
    """The circuit breaker holds load-driven plans only."""
    rig = on_loan()
    rig.see(*(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])))
    rig.busy(utilisation=8.0)
    made = [plan for _ in range(4) for plan in rig.pass_time()]
    assert [plan.awaits_approval for plan in made if plan.method is Method.RECLAIM] == [True]


def test_used_up_caps_pace_a_reclaim_for_waiting_pods_to_one_node_a_look_and_raise_an_alert() -> None:
    """Caps pace what inference waits for, they do not stop it, and somebody is told."""
    rig = on_loan()
    rig.see(*(replica(f"chat-{index}", on=name) for index, name in enumerate(NODES[2:])))
    rig.see(replica("chat-new", created_at=rig.now), replica("chat-newer", created_at=rig.now))
    capped(rig)
    answers = rig.tell(TimePassed())
    closed = [len([s for s in i.plan.steps if s.kind == "close"]) for i in answers if i.kind == "publish-plan"]
    raised = [i.because.reason for i in answers if i.kind == "raise-alert"]
    assert closed == [1]
    assert Reason.CAP in raised


def test_an_operators_recall_does_not_stay_valid_until_a_due_time_hours_away() -> None:
    """A plan outlives its last deadline by its validity only, so that a restart still finds it in the tail it reads."""
    rig = on_loan()
    rig.tell(RecallRequested("all", "", "ops", rig.now))
    (plan,) = rig.plans()
    acting = rig.engine.state.policy.acting
    assert plan.valid_until <= rig.now + acting.retry_deadline + acting.plan_validity


def quiet(rig: Rig, *names: str) -> None:
    """The gangs of these nodes have opted out, by their own annotation, their namespace, or their gang object."""
    for index, name in enumerate(names):
        rig.see(*(replace(pod, opted_out=True) for pod in gang(name, on=[f"n{index}"])))


OPT_OUTS: dict[str, Callable[[Rig], None]] = {
    "the pod": lambda rig: quiet(rig, "a"),
    "the gang object": lambda rig: rig.see(GangSpec("uid-spec", "ml/a", "ml", 1, 1, opted_out=True)),
    "the namespace": lambda rig: rig.see(Namespace("uid-ns", "ml", opted_out=True)),
}


@pytest.mark.parametrize("opt_out", OPT_OUTS.values(), ids=OPT_OUTS)
def test_who_opted_out_leaves_a_node_that_is_due(opt_out: Callable[[Rig], None]) -> None:
    """Opted out, scheduled return: only if recallWhilePaused, which is the default."""
    rig = on_loan(due=timedelta(minutes=23))
    opt_out(rig)
    (plan,) = rig.pass_time(2)
    assert [step.gang for step in plan.steps if step.kind == "evict"] == ["ml/a", "ml/b"]


@pytest.mark.parametrize("opt_out", OPT_OUTS.values(), ids=OPT_OUTS)
def test_who_opted_out_stays_on_a_due_node_where_the_policy_says_so(opt_out: Callable[[Rig], None]) -> None:
    """The same cell, switched off: the node waits and the plan says for whom."""
    rig = on_loan(due=timedelta(minutes=23))
    pace = replace(rig.engine.state.policy.pace, recall_while_paused=False)
    rig.engine.state.policy = replace(rig.engine.state.policy, pace=pace)
    opt_out(rig)
    (plan,) = rig.pass_time(2)
    assert "ml/a" not in [step.gang for step in plan.steps if step.kind == "evict"]
    assert {item.target: item.because.reason for item in plan.alternatives}["n0"] is Reason.OPTED_OUT


def test_waiting_inference_takes_who_opted_out_only_where_nobody_else_can_go() -> None:
    """Opted out, reclaim for pending inference pods: others first, then them."""
    rig = on_loan()
    quiet(rig, "a", "b")
    rig.see(*(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])), replica("chat-new"))
    (plan,) = [item for item in rig.plans() if item.method is Method.RECLAIM]
    assert [step.kind for step in plan.steps if step.kind == "evict"] == ["evict"]


def test_a_rising_load_takes_nobody_who_opted_out() -> None:
    """Opted out, load-driven reclaim: stopped."""
    rig = on_loan()
    quiet(rig, "a", "b")
    rig.see(*(replica(f"chat-{i}", on=name) for i, name in enumerate(NODES[2:])))
    rig.busy(utilisation=8.0)
    made = [plan for _ in range(4) for plan in rig.pass_time()]
    assert [plan for plan in made if plan.method is Method.RECLAIM] == []
