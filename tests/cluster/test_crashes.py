"""The acting process is killed at every step of both protocols; what it had begun is finished or undone by the next.

Every case has a node of its own, on which a request is held on its way, so that all of them stand at their step in the
one moment of a kill. The two kills are lived once; each test looks at one case.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from rebalancer.core.loans import LoanPhase
from tests.cluster.proxy import Fault
from tests.cluster.stage import IDLE_WITHIN, Stage, staged
from tests.cluster.standby import Standby
from tests.cluster.terms import Pool
from tests.cluster.watching import NodeState
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

MODELS = ("A100", "A40", "L20", "L40", "T4", "H100", "H200", "L4", "A30", "V100", "P100")
NOTICE_ASKED = "gpu-rebalancer.io/notice-seconds"
NOTICE = 2
"""Seconds that noticed gangs ask for."""
MEMBERS = 4
STANDS_WITHIN = 40.0
"""Seconds from the first held request to the last: some steps have a settling time, a notice, or a debounce before."""
PATIENT = {"retry_deadline": "90s"}
"""A step that is held is not given up before the kill."""
LEASE = {"duration": 5, "renew": 3.5, "retry": 0.5}
"""Seconds; a little more than the other stories', since the actors do much at once."""
FINISHED_WITHIN = 60.0
"""Seconds from a kill to the end of everything: 5 for the Lease, 4 until a call is repeated, the rest for the cores."""
PATCH_NODE, READ_NODE = ("PATCH", r"/api/v1/nodes/{node}(\?|$)"), ("GET", r"/api/v1/nodes/{node}(\?|$)")
LOOK, READ_MEMBER = ("GET", r"/api/v1/pods\?.*spec.nodeName(=|%3D){node}"), ("GET", "/namespaces/{space}/pods/")
NOTE, EVICT = ("PATCH", "/namespaces/{space}/pods/"), ("POST", "/namespaces/{space}/pods/.*/eviction")


class Held(NamedTuple):
    """Requests that are held on their way. ``how``: as the proxy's faults have it."""

    what: tuple[str, str]
    how: Mapping[str, Any]


def lost(what: tuple[str, str], **how: Any) -> Held:
    """Held, and never arriving."""
    return Held(what, {"lost": True, **how})


def late(what: tuple[str, str], **how: Any) -> Held:
    """Held, and arriving when the next one has long done its work."""
    return Held(what, how)


def unanswered(what: tuple[str, str], **how: Any) -> Held:
    """Done by the API server, and the answer lost."""
    return Held(what, {"after": True, "lost": True, **how})


LENDING: Mapping[str, Sequence[Held]] = {
    "the closing taint is asked for": [lost(PATCH_NODE)],
    "the closing taint is on, which nobody was told": [unanswered(PATCH_NODE, times=1), lost(READ_NODE, skip=1)],
    "it has settled, and whether the node is empty is asked": [lost(LOOK)],
    "the hand-over is asked for": [lost(PATCH_NODE, skip=1)],
    "the hand-over is done, which nobody was told": [
        unanswered(PATCH_NODE, skip=1, times=1), lost(READ_NODE, skip=2)
    ],
    "the hand-over arrives long after its sender died": [late(PATCH_NODE, skip=1)],
}  # fmt: skip
RETURNING: Mapping[str, Sequence[Held]] = {
    "closing is asked for": [lost(PATCH_NODE)],
    "the node is closed, which nobody was told": [unanswered(PATCH_NODE, times=1), lost(READ_NODE, skip=1)],
    "the node is closed, and the gang is looked at": [lost(READ_MEMBER)],
    "whether the gang may go is asked": [lost(EVICT, dry=True)],
    "one member has its notice, the others' are on their way": [lost(NOTE, skip=1)],
    "the gang has its notice, and the first eviction is on its way": [lost(EVICT, dry=False)],
    "some members are evicted": [lost(EVICT, dry=False, skip=2)],
    "all members are evicted, which nobody was told": [
        unanswered(EVICT, dry=False, times=MEMBERS),
        lost(PATCH_NODE, skip=1),
    ],
    "the gang is gone, and the restoring patch is asked for": [lost(PATCH_NODE, skip=1)],
    "the node is restored, which nobody was told": [unanswered(PATCH_NODE, skip=1, times=1), lost(READ_NODE, skip=2)],
    "evictions arrive long after their sender died": [late(EVICT, dry=False)],
}
NOTICED = frozenset(case for case in RETURNING if "notice" in case)
POOLS = {model: Pool(f"infer-{model.lower()}", model) for model in MODELS}
LENT_IN = dict(zip(LENDING, POOLS.values(), strict=False))
BACK_IN = dict(zip(RETURNING, POOLS.values(), strict=True))


@dataclass
class Crashed:
    """What there was to see. ``missed``: cases that were not at their step when the process died."""

    stage: Stage
    spaces: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, NodeState] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    lent: dict[str, NodeState] = field(default_factory=dict)
    """Nodes as they were when all had been lent."""
    after: dict[str, NodeState] = field(default_factory=dict)

    def node(self, pool: Pool) -> str:
        """A pool's only one."""
        return self.stage.nodes[pool.name][0]


@pytest.fixture(scope="module")
def crashed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crashed]:
    folder, pools = tmp_path_factory.mktemp("crashes"), list(POOLS.values())
    with staged(control_plane, folder, pools, lease=LEASE, start=False, acting=PATIENT) as stage:
        standby = Standby(stage)
        standby.begin()
        found = Crashed(stage)
        found.before = {pool.name: stage.state(found.node(pool)) for pool in pools}
        lend(found, standby)
        take_back(found, standby)
        yield found


def lend(found: Crashed, standby: Standby) -> None:
    """A gang for each node; the actor dies while it lends."""
    stage = found.stage
    found.spaces = {pool.name: fleet.namespace(stage.plane, "crash") for pool in POOLS.values()}
    faults = {case: hold(found, pool, LENDING[case]) for case, pool in LENT_IN.items()}
    noticed = {BACK_IN[case].name for case in NOTICED}
    for pool in POOLS.values():
        marks = {NOTICE_ASKED: str(NOTICE)} if pool.name in noticed else {}
        work = stage.work(pool.model, 8 // MEMBERS, annotations=marks)
        fleet.plain_job(stage.plane, found.spaces[pool.name], "train", MEMBERS, work)
    crash(found, standby, faults, IDLE_WITHIN)
    for pool in POOLS.values():
        stage.await_lent(pool.name, 1, FINISHED_WITHIN)
        stage.await_running(found.spaces[pool.name], "train", MEMBERS, FINISHED_WITHIN, pool.name)
        found.lent[pool.name] = stage.state(found.node(pool))
    stage.proxy.heal()


def take_back(found: Crashed, standby: Standby) -> None:
    """Inference needs every node; the actor dies while it takes them back."""
    stage = found.stage
    faults = {case: hold(found, pool, RETURNING[case]) for case, pool in BACK_IN.items()}
    for pool in POOLS.values():
        stage.serve(found.spaces[pool.name], pool.model, 1)
    crash(found, standby, faults, IDLE_WITHIN)
    for pool in POOLS.values():
        stage.await_running(found.spaces[pool.name], "chat", 1, FINISHED_WITHIN, pool.name)
        stage.await_home(pool.name, within=FINISHED_WITHIN)
    stage.proxy.heal()
    stage.await_("what was late to arrive", lambda: not stage.proxy.hanging)
    found.after.update({pool.name: stage.state(found.node(pool)) for pool in POOLS.values()})


def hold(found: Crashed, pool: Pool, held: Sequence[Held]) -> list[Fault]:
    """Hold these requests about the pool's node and gang."""
    names = {"node": found.node(pool), "space": found.spaces[pool.name]}
    return [found.stage.proxy.fault(one.what[0], filled(one.what[1], names), **one.how) for one in held]


def filled(path: str, names: Mapping[str, str]) -> str:
    """The path with its names in it."""
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def crash(found: Crashed, standby: Standby, faults: Mapping[str, list[Fault]], within: float) -> None:
    """Wait until every case stands at its step, kill, and start the killed one anew beside the other."""
    stage, victim = found.stage, standby.acting()
    stage.await_("the first case to stand", lambda: any(one.met for held in faults.values() for one in held), within)
    deadline = time.monotonic() + STANDS_WITHIN
    while waiting := [case for case, held in faults.items() if not all(one.met for one in held)]:
        if time.monotonic() > deadline:
            found.missed += waiting
            break
        time.sleep(0.05)
    victim.part.kill()
    for held in faults.values():
        for fault in held:
            stage.proxy.retire(fault)
    victim.part.start()


def case_ids(cases: Mapping[str, Pool]) -> list[Any]:
    return [pytest.param(case, pool, id=case) for case, pool in cases.items()]


@pytest.mark.parametrize(("case", "pool"), case_ids(LENT_IN))
def test_a_loan_in_the_making_is_finished_by_the_next_when(crashed: Crashed, case: str, pool: Pool) -> None:
    assert case not in crashed.missed
    lent = crashed.lent[pool.name]
    assert sorted(lent.ours) == ["gpu-rebalancer.io/loan", "gpu-rebalancer.io/on-loan"]
    assert "workload" not in {one["key"] for one in lent.taints}
    states = crashed.stage.watching.states(crashed.node(pool))
    assert sum(now.lent and not before.lent for before, now in pairwise(states)) == 1
    phases = {one.phase for one in crashed.stage.hearing.loans(pool.name)}
    assert phases <= {LoanPhase.RETURNED, LoanPhase.UNDONE}


@pytest.mark.parametrize(("case", "pool"), case_ids(BACK_IN))
def test_a_node_on_its_way_home_arrives_there_by_the_next_when(crashed: Crashed, case: str, pool: Pool) -> None:
    assert case not in crashed.missed
    assert crashed.after[pool.name][2:] == crashed.before[pool.name][2:]
    gone = [one for one in crashed.stage.watching.lives(crashed.spaces[pool.name], "train") if one.left is not None]
    assert len(gone) == MEMBERS, "the gang, and nobody else"
    assert {one.uid for one in gone} == {one.uid for one in crashed.stage.watching.evicted(crashed.spaces[pool.name])}
    assert crashed.stage.hearing.evicted(pool.name)[:1] == [f"{crashed.spaces[pool.name]}/job/train"]


def test_foreign_taints_were_never_touched(crashed: Crashed) -> None:
    assert crashed.stage.watching.shaken(crashed.node(pool) for pool in POOLS.values()) == []


def test_what_arrives_late_is_refused_by_its_own_precondition(crashed: Crashed) -> None:
    """A hand-over names the version that it was decided upon, an eviction the pod's uid."""
    hand_over = crashed.node(LENT_IN["the hand-over arrives long after its sender died"])
    space = crashed.spaces[BACK_IN["evictions arrive long after their sender died"].name]
    patches = crashed.stage.proxy.requests("PATCH", f"/api/v1/nodes/{hand_over}")
    assert 409 in {one.status for one in patches}
    evictions = crashed.stage.proxy.requests("POST", f"/namespaces/{space}/pods/.*/eviction")
    accepted = [one for one in evictions if one.status == 201 and not dry(one.body)]
    assert len(accepted) == MEMBERS
    assert {one.status for one in evictions[-MEMBERS:]} <= {404, 409}


def dry(body: Any) -> bool:
    """Whether an eviction was only tried."""
    return bool((body.get("deleteOptions") or {}).get("dryRun"))
