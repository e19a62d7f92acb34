"""What a run was worth: loans, waits, shortage, work done and lost, counted from the cluster itself.

Nothing is taken from plans or outcomes: node marks, taints and pods are what counts, so that the books would also
notice what nobody decided. Times are seconds since the start, work is in GPU-seconds. :mod:`reckoning` turns the
books into figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rebalancer.core.facts import Node, Pod, PodPhase
from rebalancer.core.units import CLOSING, ON_LOAN, GangId, LoanId, OwnerClass, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.scenario import Scenario
from rebalancer.simulate.store import Store


@dataclass(slots=True)
class LoanBook:
    """One loan as the node showed it."""

    loan: LoanId
    node: str
    pool: str
    gpus: int
    opened: float
    due: float | None = None
    closing: float | None = None
    ended: float | None = None
    overdue: bool = False
    lost: bool = False
    usable_gpu_seconds: float = 0.0
    usable_since: float | None = None

    @property
    def return_seconds(self) -> float | None:
        """From shut to restored, None while out, or when the node itself went away."""
        return None if self.ended is None or self.closing is None or self.lost else self.ended - self.closing


@dataclass(slots=True)
class WaitBook:
    """One inference replica's way into service."""

    pool: str
    created: float
    refused: float | None = None
    """When the scheduler first found no place for it; None: placed at the first try."""
    bound: float | None = None
    running: float | None = None
    gone: float | None = None

    def waited(self, t: float) -> float:
        """Seconds without a place, from the scheduler's first refusal on, until ``t`` at the latest."""
        if self.refused is None:
            return 0.0
        until = self.bound if self.bound is not None else self.gone
        return (t if until is None else until) - self.refused


@dataclass(slots=True)
class _Stay:
    """A training pod on a lent node."""

    gpus: int
    bound: float
    running: float | None = None
    deleting: float | None = None


@dataclass(slots=True)
class _Series:
    asked: dict[str, list[int]] = field(default_factory=dict)
    served: dict[str, list[int]] = field(default_factory=dict)


class Accounting:
    """The books of a run; they begin at second 0."""

    def __init__(self, scenario: Scenario, store: Store, agenda: Agenda) -> None:
        self._store, self._agenda = store, agenda
        self._service_pool = {f"{item.namespace}/{item.name}": item.pool for item in scenario.services}
        self.loans: dict[LoanId, LoanBook] = {}
        self.waits: dict[PodUid, WaitBook] = {}
        self.series = _Series()
        self.steps = 0
        self.load_gpu_seconds = 0.0
        self.drain_gpu_seconds = 0.0
        self.lost_gpu_seconds = 0.0
        self.ran_gpu_seconds = 0.0
        self.ran_lent_gpu_seconds = 0.0
        self.evictions = 0
        self.gangs_evicted: dict[GangId, None] = {}
        self.gangs_split: dict[GangId, None] = {}
        self.trainers_left_at_due = 0
        self._split_since: dict[GangId, int] = {}
        self._on: dict[str, LoanBook] = {}
        self._stays: dict[PodUid, _Stay] = {}
        store.pod_watchers.append(self._pod_changed)
        store.node_watchers.append(self._node_changed)

    # --- nodes and loans

    def lent_nodes(self) -> int:
        """How many nodes are away."""
        return len(self._on)

    def _node_changed(self, _old: Node | None, new: Node | None, t: float) -> None:
        if new is None:
            self._end(_old.name if _old else "", t, lost=True)
            return
        book = self._on.get(new.name)
        away = any(taint.key == ON_LOAN for taint in new.taints)
        if not away:
            self._end(new.name, t, lost=False)
            return
        loan = new.loan.loan if new.loan else f"unmarked/{new.uid}"
        if book is None or book.loan != loan:
            self._end(new.name, t, lost=False)
            book = self._open(loan, new, t)
        self._follow(book, new, t)

    def _open(self, loan: LoanId, node: Node, t: float) -> LoanBook:
        book = LoanBook(loan, node.name, node.pool, node.gpus, t)
        self.loans[loan] = self._on[node.name] = book
        for pod in self._store.pods_on(node.name):
            self._pod_changed(None, pod, t)
        return book

    def _follow(self, book: LoanBook, node: Node, t: float) -> None:
        closing = any(taint.key == CLOSING for taint in node.taints)
        if closing != (book.closing is not None):
            book.closing = t if closing else None
        usable = node.ready and not node.cordoned
        if usable and book.usable_since is None:
            book.usable_since = t
        elif not usable:
            self._bank(book, t)
        due = (node.loan.due - self._agenda.start).total_seconds() if node.loan else None
        if due is not None and due != book.due:
            book.due = due
            self._agenda.at(due, lambda at: self._fell_due(book, due, at))

    def _bank(self, book: LoanBook, t: float) -> None:
        if book.usable_since is not None:
            book.usable_gpu_seconds += (t - book.usable_since) * book.gpus
            book.usable_since = None

    def _end(self, node: str, t: float, *, lost: bool) -> None:
        book = self._on.pop(node, None)
        if book is not None:
            self._bank(book, t)
            book.ended, book.lost = t, lost

    def _fell_due(self, book: LoanBook, due: float, _t: float) -> None:
        if book.ended is not None or book.due != due:
            return
        book.overdue = True
        pods = self._store.pods_on(book.node)
        self.trainers_left_at_due += sum(1 for pod in pods if pod.held and pod.owner is OwnerClass.TRAINING)

    # --- pods

    def _pod_changed(self, old: Pod | None, new: Pod | None, t: float) -> None:
        pod = new or old
        if pod is None:
            return
        if pod.owner is OwnerClass.INFERENCE:
            self._follow_replica(pod, new, t)
        elif pod.uid in self._stays or (pod.node in self._on and new is not None):
            self._follow_trainer(pod, new, t)

    def _follow_replica(self, pod: Pod, new: Pod | None, t: float) -> None:
        book = self.waits.get(pod.uid)
        if book is None:
            if new is None:
                return
            book = self.waits[pod.uid] = WaitBook(self._service_pool[pod.workload], t)
        if new is None:
            book.gone = t
            return
        if new.unschedulable_since is not None and book.refused is None:
            book.refused = t
        if new.node and book.bound is None:
            book.bound = t
        if new.ready and book.running is None:
            book.running = t

    def _follow_trainer(self, pod: Pod, new: Pod | None, t: float) -> None:
        stay = self._stays.get(pod.uid)
        if stay is None:
            if not pod.held:
                return
            stay = self._stays[pod.uid] = _Stay(pod.held, t, t if pod.phase is PodPhase.RUNNING else None)
        if new is None or new.terminal:
            self._settle(self._stays.pop(pod.uid), t)
            return
        if new.phase is PodPhase.RUNNING and stay.running is None:
            stay.running = t
        if new.deleting_at is not None and stay.deleting is None:
            stay.deleting = t

    def _settle(self, stay: _Stay, t: float) -> None:
        started = stay.running if stay.running is not None else (stay.deleting or t)
        self.load_gpu_seconds += stay.gpus * (started - stay.bound)
        if stay.deleting is not None:
            self.drain_gpu_seconds += stay.gpus * (t - stay.deleting)

    # --- what training tells

    def ran(self, seconds: float, pods: Sequence[Pod]) -> None:
        """A whole gang of these pods made progress for so long, until now."""
        seconds = min(seconds, max(0.0, self._agenda.now))
        self.ran_gpu_seconds += seconds * sum(pod.gpus or 0 for pod in pods)
        self.ran_lent_gpu_seconds += seconds * sum(pod.gpus or 0 for pod in pods if pod.node in self._on)

    def lost(self, seconds: float, pods: Sequence[Pod]) -> None:
        """These pods' last ``seconds`` of work are lost; only lent nodes are charged to lending."""
        self.lost_gpu_seconds += seconds * sum(pod.gpus or 0 for pod in pods if pod.node in self._on)

    def evicted(self, gang: GangId) -> None:
        """An eviction of a member was accepted."""
        self.evictions += 1
        self.gangs_evicted[gang] = None

    # --- steps

    def step(self, demand: dict[str, tuple[int, int]], split: Sequence[GangId]) -> None:
        """Close a step: GPUs asked for and in service per pool, and gangs that are split now."""
        self.steps += 1
        for pool, (asked, served) in demand.items():
            self.series.asked.setdefault(pool, []).append(asked)
            self.series.served.setdefault(pool, []).append(served)
        self._split_since = {gang: self._split_since.get(gang, 0) + 1 for gang in split}
        for gang, steps in self._split_since.items():
            if steps > 1:
                self.gangs_split[gang] = None

    def open_stays(self, t: float) -> tuple[float, float]:
        """Load and drain GPU-seconds of pods that are still on lent nodes at ``t``."""
        load = drain = 0.0
        for stay in self._stays.values():
            started = stay.running if stay.running is not None else (stay.deleting or t)
            load += stay.gpus * (started - stay.bound)
            drain += stay.gpus * (t - stay.deleting) if stay.deleting is not None else 0.0
        return load, drain

    def lent_gpu_seconds(self, t: float) -> float:
        """GPU-time of all loans up to ``t``, while their nodes were usable."""
        total = 0.0
        for book in self.loans.values():
            running = (t - book.usable_since) * book.gpus if book.usable_since is not None else 0.0
            total += book.usable_gpu_seconds + running
        return total
