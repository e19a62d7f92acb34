"""Kubelets and the life of a pod on a node: start, grace, checkpoint, finalizers, lost nodes.

A deleted pod leaves when its work is done or its grace is over, whichever is first; a finalizer may keep the object
longer. A node that is not ready confirms nothing: its pods are cleared away after ``UNREACHABLE`` seconds, as the
pod garbage collector does. Who deletes, and what a gang makes of it, is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from rebalancer.core.facts import Pod, PodPhase
from rebalancer.core.units import GangId, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.store import Store

UNREACHABLE = 300.0
_RETRY = 10.0
Listener: TypeAlias = Callable[[Pod, float], None]


@dataclass(slots=True)
class Life:
    """What only the node knows of a pod: seconds from bound to running, and from deletion to a clean exit."""

    start_seconds: float
    leave_seconds: float
    hangs: bool = False
    deleted_at: float | None = None


class Kubelet:
    """Starts, ends and clears away pods; controllers listen."""

    def __init__(self, store: Store, agenda: Agenda) -> None:
        self._store = store
        self._agenda = agenda
        self._lives: dict[PodUid, Life] = {}
        self._gangs: dict[GangId, dict[PodUid, None]] = {}
        self._down_since: dict[str, float] = {}
        self.on_running: list[Listener] = []
        self.on_deleting: list[Listener] = []
        self.on_gone: list[Listener] = []
        self.on_lost: list[Listener] = []

    def create(self, pod: Pod, life: Life, t: float) -> Pod:
        """A new, unbound pod."""
        self._lives[pod.uid] = life
        self._gangs.setdefault(pod.gang, {})[pod.uid] = None
        return self._store.put_pod(pod, t)

    def gang_members(self, gang: GangId) -> tuple[PodUid, ...]:
        """Uids of the pods of a gang that still exist."""
        return tuple(self._gangs.get(gang, ()))

    def life(self, uid: PodUid) -> Life:
        """The hidden part of a pod."""
        return self._lives[uid]

    def bind(self, uid: PodUid, node: str, t: float) -> None:
        """The scheduler's word; the pod runs after its start time."""
        self._store.change_pod(uid, t, node=node, unschedulable_since=None, nominated_node="")
        self._agenda.at(t + self._lives[uid].start_seconds, lambda at: self._start(uid, at))

    def _start(self, uid: PodUid, t: float) -> None:
        pod = self._store.pods.get(uid)
        if pod is None or pod.deleting_at is not None or pod.phase is not PodPhase.PENDING:
            return
        node = self._store.nodes.get(pod.node)
        if node is None or not node.ready:
            self._agenda.at(t + _RETRY, lambda at: self._start(uid, at))
            return
        pod = self._store.change_pod(uid, t, phase=PodPhase.RUNNING, ready=True, started_at=self._agenda.clock(t))
        for listener in self.on_running:
            listener(pod, t)

    def delete(self, uid: PodUid, t: float) -> None:
        """A graceful deletion; a second one changes nothing."""
        pod = self._store.pods.get(uid)
        if pod is None or pod.deleting_at is not None:
            return
        if not pod.node or pod.terminal:
            self._clear(uid, t)
            return
        life = self._lives[uid]
        life.deleted_at = t
        due = self._agenda.clock(t) + timedelta(seconds=pod.grace_seconds)
        pod = self._store.change_pod(uid, t, deleting_at=due, ready=False)
        for listener in self.on_deleting:
            listener(pod, t)
        work = life.leave_seconds if pod.phase is PodPhase.RUNNING else 0.0
        self._agenda.at(t + min(float(pod.grace_seconds), work), lambda at: self._leave(uid, at))

    def _leave(self, uid: PodUid, t: float) -> None:
        pod, life = self._store.pods.get(uid), self._lives.get(uid)
        if pod is None or life is None or life.hangs:
            return
        node = self._store.nodes.get(pod.node)
        silent = node is not None and not node.ready
        if silent and t - (life.deleted_at or t) < UNREACHABLE:
            self._agenda.at(t + _RETRY, lambda at: self._leave(uid, at))
            return
        self._clear(uid, t)

    def release(self, uid: PodUid, t: float) -> None:
        """The finalizer lets go; a pod whose time is over leaves now."""
        life, pod = self._lives.get(uid), self._store.pods.get(uid)
        if life is None or pod is None:
            return
        life.hangs = False
        if pod.deleting_at is not None and self._agenda.clock(t) >= pod.deleting_at:
            self._leave(uid, t)

    def finish(self, uid: PodUid, t: float) -> None:
        """The pod's work is done: it holds nothing any more."""
        if uid in self._store.pods:
            self._store.change_pod(uid, t, phase=PodPhase.SUCCEEDED, ready=False)

    def node_down(self, name: str, t: float) -> None:
        """The node stopped answering: its pods are not ready, and go after a while unless it comes back."""
        for pod in self._store.pods_on(name):
            if pod.ready:
                self._store.change_pod(pod.uid, t, ready=False)
        self._down_since[name] = t
        self._agenda.at(t + UNREACHABLE, lambda at: self._abandon(name, t, at))

    def node_up(self, name: str, t: float) -> None:
        """It answers again: what still runs is ready again."""
        self._down_since.pop(name, None)
        for pod in self._store.pods_on(name):
            if pod.phase is PodPhase.RUNNING and pod.deleting_at is None:
                self._store.change_pod(pod.uid, t, ready=True)

    def _abandon(self, name: str, since: float, t: float) -> None:
        if self._down_since.get(name) == since and name in self._store.nodes:
            self.lose(name, t)

    def lose(self, name: str, t: float) -> None:
        """Everything on the node is gone at once."""
        for pod in self._store.pods_on(name):
            for listener in self.on_lost:
                listener(pod, t)
            self._clear(pod.uid, t)

    def _clear(self, uid: PodUid, t: float) -> None:
        pod = self._store.pods.get(uid)
        if pod is None:
            return
        members = self._gangs.get(pod.gang, {})
        members.pop(uid, None)
        if not members:
            self._gangs.pop(pod.gang, None)
        self._lives.pop(uid, None)
        self._store.remove_pod(uid, t)
        for listener in self.on_gone:
            listener(pod, t)
