"""A perfect actor and a plain scheduler for engine tables: what a healthy cluster would make of the plans.

Closes and lends take effect at once, evicted pods leave a step later, a node is handed back as soon as nothing holds
its GPUs. Nothing is decided here, and no plan is judged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from rebalancer.core.facts import Node, Pod, PodPhase, Taint
from rebalancer.core.fit import Room, place
from rebalancer.core.plan import EvictGang, LendNode, Method, Outcome, Plan, RenewLoan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import OutcomeReported
from rebalancer.core.supply import usable
from rebalancer.core.units import CLOSING, ON_LOAN, Mode, OwnerClass
from tests.core.build import Rig, lent

CONFIRMED = Because(Reason.CONFIRMED)
SPLIT_SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Run:
    """A plan that is being carried out: which steps have begun, which are over."""

    plan: Plan
    since: datetime
    begun: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)


class PerfectActor:
    """Carries plans out on the rig's own inventory. Gangs in ``hanging`` are evicted and never leave."""

    def __init__(self, rig: Rig, hanging: Collection[str], *, resubmit: bool) -> None:
        self._rig = rig
        self._hanging = frozenset(hanging)
        self._resubmit = resubmit
        self._runs: dict[str, Run] = {}
        self._attempts: dict[str, int] = {}

    def take(self, plan: Plan) -> None:
        """A plan was published."""
        if plan.mode is Mode.SHADOW or plan.awaits_approval:
            return
        if plan.method is Method.CANCEL:
            self._cancel(plan)
            return
        run = self._runs[plan.id] = Run(plan, self._rig.now)
        for index, step in enumerate(plan.steps):
            if isinstance(step, LendNode):
                self._lend(run, index, step)
            elif isinstance(step, RenewLoan):
                self._renew(run, index, step)
            elif step.kind == "close":
                self._taint(step.node, closing=True)
                self._tell(run, index, Result.DONE)
        self.advance()

    def advance(self) -> None:
        """What is due by now: evictions, departures, hand-backs."""
        for run in list(self._runs.values()):
            for index, step in enumerate(run.plan.steps):
                if index not in run.over and isinstance(step, EvictGang):
                    self._evict(run, index, step)
            for index, step in enumerate(run.plan.steps):
                if index not in run.over and step.kind == "restore":
                    self._restore(run, index, step.node)
            if len(run.over) == len(run.plan.steps):
                del self._runs[run.plan.id]

    # -- the steps -------------------------------------------------------------------------------------------

    def _nodes(self) -> dict[str, Node]:
        return self._rig.engine.state.inventory.nodes

    def _lend(self, run: Run, index: int, step: LendNode) -> None:
        node = self._nodes()[step.node]
        home = replace(node, taints=tuple(taint for taint in node.taints if taint.key != CLOSING))
        mark = {"recall_at": step.recall_at, "loan": step.loan, "gang": step.gang, "opened_at": self._rig.now}
        self._rig.see(lent(home, step.borrower.value, step.due, **mark))
        self._tell(run, index, Result.DONE)

    def _renew(self, run: Run, index: int, step: RenewLoan) -> None:
        node = self._nodes()[step.node]
        if node.loan is not None:
            self._rig.see(replace(node, loan=replace(node.loan, due=step.due, recall_at=step.recall_at)))
        self._tell(run, index, Result.DONE)

    def _taint(self, uid: str, *, closing: bool) -> None:
        node = self._nodes().get(uid)
        if node is not None:
            others = tuple(taint for taint in node.taints if taint.key != CLOSING)
            self._rig.see(replace(node, taints=(*others, Taint(CLOSING)) if closing else others))

    def _evict(self, run: Run, index: int, step: EvictGang) -> None:
        pods = self._rig.engine.state.inventory.pods
        if index not in run.begun:
            if self._rig.now < step.not_before:
                return
            run.begun.add(index)
            self._tell(run, index, Result.STARTED)
            ends = self._rig.now + timedelta(seconds=step.grace_seconds)
            there = [pods[member.uid] for member in step.members if member.uid in pods]
            self._rig.see(*(replace(pod, deleting_at=ends) for pod in there))
        elif step.gang not in self._hanging:
            left = [pods[member.uid] for member in step.members if member.uid in pods]
            self._rig.lose("pod", *(pod.uid for pod in left))
            self._tell(run, index, Result.DONE, members=len(step.members), lost_gpu_seconds=step.lost_gpu_seconds)
            if self._resubmit:
                self._rig.see(*(self._again(pod) for pod in left))

    def _again(self, pod: Pod) -> Pod:
        attempt = self._attempts[pod.uid.partition("~")[0]] = self._attempts.get(pod.uid.partition("~")[0], 0) + 1
        return replace(
            pod, uid=f"{pod.uid.partition('~')[0]}~{attempt}", node="", phase=PodPhase.PENDING, started_at=None,
            deleting_at=None, created_at=self._rig.now,
        )  # fmt: skip

    def _restore(self, run: Run, index: int, uid: str) -> None:
        node = self._nodes().get(uid)
        going = [at for at, step in enumerate(run.plan.steps) if isinstance(step, EvictGang) and at not in run.over]
        inventory = self._rig.engine.state.inventory
        if node is None or inventory.held(node) > 0 or any(self._stands_on(run, at, node) for at in going):
            return
        owner = node.loan.taint if node.loan is not None else None
        others = tuple(taint for taint in node.taints if taint.key not in (CLOSING, ON_LOAN))
        self._rig.now += SPLIT_SECOND
        self._rig.see(replace(node, loan=None, taints=(owner, *others) if owner is not None else others))
        self._tell(run, index, Result.DONE, return_seconds=(self._rig.now - run.since).total_seconds())
        self._rig.now -= SPLIT_SECOND

    @staticmethod
    def _stands_on(run: Run, index: int, node: Node) -> bool:
        step = run.plan.steps[index]
        return isinstance(step, EvictGang) and any(member.node == node.name for member in step.members)

    def _cancel(self, plan: Plan) -> None:
        run = self._runs.get(plan.cancels)
        if run is None or run.begun:
            return
        del self._runs[plan.cancels]
        for index, step in enumerate(run.plan.steps):
            if step.kind == "close":
                self._taint(step.node, closing=False)
            if index not in run.over or step.kind == "close":
                self._tell(run, index, Result.CANCELLED)

    def _tell(self, run: Run, index: int, result: Result, **numbers: float) -> None:
        if result is not Result.STARTED:
            run.over.add(index)
        step = run.plan.steps[index]
        target, loan = (step.gang, "") if isinstance(step, EvictGang) else (step.node, step.loan)
        plan, now = run.plan, self._rig.now
        told = Outcome(plan.id, plan.pool, index, step.kind, target, result, CONFIRMED, now, loan, 1, numbers)
        self._rig.tell(OutcomeReported(told))


def schedule(rig: Rig) -> None:
    """Bind what has room: replicas one by one, gangs whole, on nodes whose taints and labels admit them."""
    inventory = rig.engine.state.inventory
    ordered = sorted(inventory.nodes.values(), key=lambda node: node.name)
    for pods in list(_queue(rig)):
        rooms = [
            Room(node, inventory.free(node), node.taints, list(inventory.guests(node.name)))
            for node in ordered
            if usable(inventory.nodes[node.uid])
        ]
        placed = place(pods, rooms)
        for pod in pods if placed is not None else ():
            name = inventory.nodes[placed[pod.uid]].name if placed is not None else ""
            rig.see(replace(pod, node=name, phase=PodPhase.RUNNING, started_at=rig.now, ready=True))


def _queue(rig: Rig) -> Iterator[list[Pod]]:
    pods = sorted(rig.engine.state.inventory.pods.values(), key=lambda pod: (pod.created_at, pod.name, pod.uid))
    waiting = [pod for pod in pods if pod.pending]
    yield from ([pod] for pod in waiting if pod.owner is OwnerClass.INFERENCE)
    gangs = dict.fromkeys(pod.gang for pod in waiting if pod.owner is not OwnerClass.INFERENCE)
    for gang in gangs:
        members = [pod for pod in waiting if pod.gang == gang]
        if len(members) >= members[0].gang_min:
            yield members
