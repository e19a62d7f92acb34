"""A night on 40 nodes: lent to gangs of every kind when inference scales down, all given back by the morning.

The night is lived once; each test looks at one thing that must be true of it.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.plan import Method, Result
from rebalancer.core.reasons import Reason
from tests.cluster.stage import Stage, staged
from tests.cluster.terms import DWELL, Pool, minute_after, policy, window
from tests.cluster.watching import NodeState
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Work

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(480)]

DAY = Pool("infer-a100", "A100", nodes=40, floor_nodes=4)
EVENING, RUSH = 8, 24
"""Replicas of a whole node each that inference keeps in the evening, and wants when the morning begins."""
SEEN = 3.0
"""Seconds until the last look at the GPUs is judged, too."""
LENGTH = timedelta(seconds=140)
"""The least that the night lasts: 15 s to see the window, 10 to lend, 20 to run, 30 for the rush, 65 to return."""
GANGS = {"set": 8, "group": 6, "job-a": 4, "job-b": 2}
"""Members of gangs: a JobSet, pods of a Volcano group, plain Jobs. Each takes a whole node: smaller ones the scheduler
would spread over nodes that were opened for others, and a gang that got only half of its room waits for ever."""
NODES = sum(GANGS.values())
BORROWING = {"min_runtime": "75s"}
"""Longer than the minute by which returns begin early, as the default is: nobody is lent to in the last minutes."""
WHOLE_WITHIN = 3.0
"""Seconds within which all of a gang are told to go: 8 evictions side by side take tenths, on busy cores a second."""
FOREIGN = (
    {"key": "example.org/cabinet", "value": "a7", "effect": "PreferNoSchedule", "timeAdded": "2026-01-05T06:07:08Z"},
    {"key": "example.org/burn-in", "effect": "PreferNoSchedule"},
)


@dataclass
class Night:
    """What there was to see."""

    stage: Stage
    space: str
    due: datetime
    before: Mapping[str, NodeState]
    after: Mapping[str, NodeState] = field(default_factory=dict)
    lacking: int = 0
    """Nodes that the rush wanted beyond those at home."""
    rushed: int = 0
    """Nodes that came home for it."""

    @property
    def loans(self) -> list[Loan]:
        """All loans of the night."""
        return self.stage.hearing.loans(DAY.name)


@pytest.fixture(scope="module")
def night(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    soon = datetime.now(UTC) + timedelta(hours=6)
    by_day = DAY._replace(windows=window(soon, soon + timedelta(hours=1)))
    folder = tmp_path_factory.mktemp("night")
    with staged(control_plane, folder, [by_day], prepare=prepare, borrowing=BORROWING) as stage:
        yield lived(stage)


def prepare(stage: Stage) -> None:
    """Foreign taints before, after and on both sides of the owner's; a service on every node; gangs' kinds known."""
    stage.plane.ensure_jobset()
    stage.plane.api.apply([manifests.volcano_crd()])
    before, after = FOREIGN
    for number, node in enumerate(stage.nodes[DAY.name]):
        path = f"/api/v1/nodes/{node}"
        owner = stage.plane.api.get(path)["spec"]["taints"]
        taints = [*([before] if number % 2 else []), *owner, *([after] if number % 3 else [])]
        stage.plane.api.patch(path, {"spec": {"taints": taints}})
    space = fleet.namespace(stage.plane, "chat")
    fleet.inference(stage.plane, space, "chat", DAY.nodes, Work(DAY.model, 8, grace=1, lendable=False))
    fleet.await_pods(stage.plane, space, "chat", DAY.nodes)
    stage.serving = space


def lived(stage: Stage) -> Night:
    """Evening, night and morning.

    It is night once all gangs wait and all nodes have idled for the dwell: a gang that waits while only another's nodes
    are open would take some of those.
    """
    space, before = fleet.namespace(stage.plane, "train"), states(stage)
    fleet.scale(stage.plane, stage.serving, "chat", EVENING)
    borrow(stage, space)
    stage.await_("all gangs to wait and all nodes to be idle", lambda: calm(stage, space), 90.0, DAY.name)
    due = minute_after(datetime.now(UTC), LENGTH)
    stage.product.adopt(
        policy([DAY._replace(windows=window(datetime.now(UTC) - timedelta(minutes=1), due))], borrowing=BORROWING)
    )
    night = Night(stage, space, due, before)
    for gang, members in GANGS.items():
        stage.await_running(night.space, gang, members, 90.0, DAY.name)
    away = lent(stage)
    night.lacking = RUSH - (DAY.nodes - len(away))
    fleet.scale(stage.plane, stage.serving, "chat", RUSH)
    stage.await_running(stage.serving, "chat", RUSH, 60.0, DAY.name)
    night.rushed = len(away - lent(stage))
    left = (due - datetime.now(UTC)).total_seconds()
    stage.await_("the morning", lambda: datetime.now(UTC) >= due, left + 5.0)
    night.after = states(stage)
    stage.await_home(DAY.name)
    return night


def calm(stage: Stage, space: str) -> bool:
    """Whether every trainer waits, and those that inference let go have been gone for longer than the dwell."""
    gone = [life.gone for life in stage.watching.lives(stage.serving) if life.left is not None]
    if None in gone or len(gone) != DAY.nodes - EVENING:
        return False
    idle = min(time.monotonic() - at for at in gone if at is not None)
    return idle > DWELL + SEEN and len(fleet.pods(stage.plane, space)) == NODES


def borrow(stage: Stage, space: str) -> None:
    """Gangs of every kind, that would run for longer than the night."""
    whole = stage.work(DAY.model, checkpoint=2)
    fleet.jobset(stage.plane, space, "set", 4, whole, replicas=2)
    fleet.volcano_gang(stage.plane, space, "group", GANGS["group"], whole)
    for name in ("job-a", "job-b"):
        fleet.plain_job(stage.plane, space, name, GANGS[name], whole)


def lent(stage: Stage) -> set[str]:
    """Nodes that are on loan now."""
    return {name for name, state in states(stage).items() if state.lent}


def states(stage: Stage) -> dict[str, NodeState]:
    """Every node as it is now."""
    return {name: stage.state(name) for name in stage.nodes[DAY.name]}


def test_every_gang_got_its_nodes_and_all_of_them_at_once(night: Night) -> None:
    lends = [plan for plan in night.stage.hearing.plans(DAY.name) if plan.method is Method.LEND]
    assert sum(len(plan.steps) for plan in lends) == len(night.loans) >= NODES
    for gang, members in GANGS.items():
        sizes = {len(plan.steps) for plan in lends if str(plan.because.numbers["gang"]).endswith(f"/{gang}")}
        assert sizes == {members}, gang


def test_at_the_due_time_nothing_of_ours_is_on_any_node(night: Night) -> None:
    assert {name: state.ours for name, state in night.after.items() if state.ours} == {}


def test_every_node_is_as_it_was_its_taints_in_their_order_and_with_their_times(night: Night) -> None:
    for name, state in night.after.items():
        assert state[1:] == night.before[name][1:], name


def test_foreign_taints_were_never_touched_not_even_for_a_moment(night: Night) -> None:
    assert night.stage.watching.shaken(night.stage.nodes[DAY.name]) == []


def test_no_gang_was_ever_split(night: Night) -> None:
    splits = night.stage.watching.splits(night.space)
    assert len(splits) >= len(GANGS)
    assert [split for split in splits if split.seconds > WHOLE_WITHIN] == []


def test_nobody_was_deleted_but_by_the_eviction_api(night: Night) -> None:
    gone = {life.uid for life in night.stage.watching.lives(night.space) if life.left is not None and life.bound}
    assert gone == {life.uid for life in night.stage.watching.evicted(night.space)}


def test_the_rush_before_the_morning_was_served_by_whole_gangs_and_by_few_of_them(night: Night) -> None:
    reclaims = [plan for plan in night.stage.hearing.plans(DAY.name) if plan.method is Method.RECLAIM]
    assert reclaims
    assert reclaims[0].because.reason in {Reason.INFERENCE_PENDING, Reason.INFERENCE_RISING}
    assert 0 < night.lacking <= night.rushed < night.lacking + max(GANGS.values())


def test_every_loan_is_closed_as_returned_and_each_step_was_done(night: Night) -> None:
    assert {loan.phase for loan in night.loans} == {LoanPhase.RETURNED}
    assert all(loan.closed_at is not None and loan.closed_at <= night.due for loan in night.loans)
    fine = {Result.STARTED, Result.DONE, Result.BLOCKED, Result.CANCELLED}  # called off: its demand was met otherwise
    steps = [one for one in night.stage.hearing.outcomes(DAY.name) if one.step >= 0]
    assert [one for one in steps if one.result not in fine] == []


def test_no_alert_stands_in_the_morning(night: Night) -> None:
    assert night.stage.hearing.standing(DAY.name) == []
    assert night.stage.hearing.alerts(Reason.OVERDUE) == []
    assert night.stage.hearing.alerts(Reason.GANG_SPLIT) == []


def test_inference_ran_on_no_lent_node_and_trainers_on_none_at_home(night: Night) -> None:
    hosts = {life.node for life in night.stage.watching.lives(night.space) if life.bound}
    lent = {name for name in night.stage.nodes[DAY.name] if any(one.lent for one in night.stage.watching.states(name))}
    assert hosts <= lent
