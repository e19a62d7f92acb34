"""The scheduler: priority order, whole gangs or nothing, packed so that nodes stay empty.

A pass runs one second after something changed (several changes make one pass). It honours hard taints, node terms
and host anti-affinity. Pods that found no place get ``unschedulable_since`` once. It never preempts and never
nominates: taking back is the rebalancer's.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from rebalancer.core.facts import Node, Pod
from rebalancer.core.units import ON_LOAN, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.fitting import admits, matches
from rebalancer.simulate.kubelet import Kubelet
from rebalancer.simulate.store import Store

LATENCY = 1.0
Shape: TypeAlias = int
Signature: TypeAlias = tuple[Shape, int, int]
Placing: TypeAlias = list[tuple[PodUid, str]]


@dataclass(slots=True)
class _Waiting:
    """A gang or a single pod in the queue; ``told``: all its pods are known to be unschedulable."""

    order: tuple[int, datetime, str]
    shape: Shape
    single: bool
    pods: dict[PodUid, None] = field(default_factory=dict)
    told: bool = False


class Scheduler:
    """Binds pending pods to nodes."""

    def __init__(self, store: Store, agenda: Agenda, kubelet: Kubelet) -> None:
        self._store = store
        self._agenda = agenda
        self._kubelet = kubelet
        self._due = False
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._queue: list[_Waiting] = []
        self._admitted: dict[Shape, list[Node]] = {}
        self._epoch = -1
        self._free: dict[str, int] = {}
        store.pod_watchers.append(self._pod_changed)
        store.node_watchers.append(self._node_changed)

    # --- the queue: most important first, then oldest, then by name

    def _pod_changed(self, old: Pod | None, new: Pod | None, t: float) -> None:
        was, asks = old is not None and old.pending, new is not None and new.pending
        if new is not None and asks and not was:
            self._enqueue(new)
        elif old is not None and was and not asks:
            self._dequeue(old)
        if old is None or new is None or old.held != new.held:
            self._poke(t)

    def _enqueue(self, pod: Pod) -> None:
        key = _key(pod)
        waiting = self._waiting.get(key)
        if waiting is None:
            order = (-pod.priority, pod.created_at, pod.name)
            waiting = self._waiting[key] = _Waiting(order, self._shape(pod), pod.gang_size == 1)
            insort(self._queue, waiting, key=lambda item: item.order)
        waiting.pods[pod.uid] = None
        waiting.told = False

    def _dequeue(self, pod: Pod) -> None:
        waiting = self._waiting[_key(pod)]
        del waiting.pods[pod.uid]
        if not waiting.pods:
            del self._waiting[_key(pod)]

    def _node_changed(self, _old: Node | None, _new: Node | None, t: float) -> None:
        self._poke(t)

    def _poke(self, t: float) -> None:
        if not self._due:
            self._due = True
            self._agenda.at(t + LATENCY, self._pass)

    # --- a pass

    def _pass(self, t: float) -> None:
        self._due = False
        self._queue = [waiting for waiting in self._queue if waiting.pods]
        self._refresh()
        failed: set[Signature] = set()
        for waiting in self._queue:
            signature = self._signature(waiting)
            if signature in failed or not self._bind(waiting, signature[1], t):
                failed.add(signature)
            if not waiting.told:
                waiting.told = True
                self._give_up(waiting, t)

    def _bind(self, waiting: _Waiting, need: int, t: float) -> bool:
        placing = self._place([self._store.pods[uid] for uid in waiting.pods])
        if len(placing) < need:
            for uid, node in placing:
                self._free[node] += self._store.pods[uid].gpus or 0
            return False
        for uid, node in placing:
            self._kubelet.bind(uid, node, t)
        return True

    def _refresh(self) -> None:
        store = self._store
        if self._epoch != store.node_epoch:
            self._epoch = store.node_epoch
            self._admitted.clear()
        self._free = {name: store.free(node) for name, node in store.nodes.items()}

    def _signature(self, waiting: _Waiting) -> Signature:
        """What decides whether it fits: shape, pods that must find a place at once, pods that would like one."""
        if waiting.single:
            return waiting.shape, 1, 1
        first = self._store.pods[next(iter(waiting.pods))]
        members = (self._store.pods[uid] for uid in self._kubelet.gang_members(first.gang))
        placed = sum(1 for pod in members if pod.node and not pod.terminal and pod.deleting_at is None)
        return waiting.shape, max(1, first.gang_min - placed), len(waiting.pods)

    def _shape(self, pod: Pod) -> Shape:
        key = (pod.node_terms, pod.tolerations, pod.gpus, pod.namespace, pod.anti_affinity)
        return self._shapes.setdefault(key, len(self._shapes))

    def _place(self, group: list[Pod]) -> Placing:
        placing: Placing = []
        for pod in group:
            node = self._best(pod, placing)
            if node is None:
                break
            self._free[node] -= pod.gpus or 0
            placing.append((pod.uid, node))
        return placing

    def _best(self, pod: Pod, placing: Placing) -> str | None:
        """The fullest node that fits, lent ones last: own capacity first, and nodes stay empty."""
        best: tuple[bool, int, str] | None = None
        wanted = pod.gpus or 0
        for node in self._candidates(pod):
            free = self._free[node.name]
            if free < wanted:
                continue
            score = (any(taint.key == ON_LOAN for taint in node.taints), free, node.name)
            if (best is None or score < best) and not self._repelled(pod, node.name, placing):
                best = score
        return best[2] if best else None

    def _candidates(self, pod: Pod) -> list[Node]:
        shape = self._waiting[_key(pod)].shape
        found = self._admitted.get(shape)
        if found is None:
            nodes = self._store.nodes.values()
            found = [node for node in nodes if admits(node, pod.node_terms, pod.tolerations)]
            self._admitted[shape] = found
        return found

    def _repelled(self, pod: Pod, node: str, placing: Placing) -> bool:
        if not pod.anti_affinity:
            return False
        there = [*self._store.by_node.get(node, ()), *(uid for uid, name in placing if name == node)]
        others = [self._store.pods[uid] for uid in there]
        return any(
            matches(term, other.labels)
            for other in others
            if other.namespace == pod.namespace and not other.terminal
            for term in pod.anti_affinity
        )

    def _give_up(self, waiting: _Waiting, t: float) -> None:
        for uid in tuple(waiting.pods):
            if self._store.pods[uid].unschedulable_since is None:
                self._store.change_pod(uid, t, unschedulable_since=self._agenda.clock(t))


def _key(pod: Pod) -> str:
    return pod.gang if pod.gang_size > 1 else pod.uid
