"""The scheduler: priority order, whole gangs or nothing, packed so that nodes stay empty.

A pass runs one second after something changed (several changes make one pass). It honours hard taints, node terms,
host anti-affinity and nominated capacity is not modelled. Pods that found no place get ``unschedulable_since``
once. It never preempts: taking back is the rebalancer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from rebalancer.core.facts import Node, Pod
from rebalancer.core.units import ON_LOAN, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.fitting import admits, matches
from rebalancer.simulate.kubelet import Kubelet
from rebalancer.simulate.store import Store

LATENCY = 1.0
Shape: TypeAlias = int
Placing: TypeAlias = list[tuple[PodUid, str]]


class Scheduler:
    """Binds pending pods to nodes."""

    def __init__(self, store: Store, agenda: Agenda, kubelet: Kubelet) -> None:
        self._store = store
        self._agenda = agenda
        self._kubelet = kubelet
        self._due = False
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._shape_of: dict[PodUid, Shape] = {}
        self._admitted: dict[Shape, list[Node]] = {}
        self._epoch = -1
        self._free: dict[str, int] = {}
        store.pod_watchers.append(self._pod_changed)
        store.node_watchers.append(self._node_changed)

    def _pod_changed(self, old: Pod | None, new: Pod | None, t: float) -> None:
        if new is None and old is not None:
            self._shape_of.pop(old.uid, None)
        if old is None or new is None or old.held != new.held:
            self._poke(t)

    def _node_changed(self, _old: Node | None, _new: Node | None, t: float) -> None:
        self._poke(t)

    def _poke(self, t: float) -> None:
        if not self._due:
            self._due = True
            self._agenda.at(t + LATENCY, self._pass)

    def _pass(self, t: float) -> None:
        self._due = False
        self._refresh()
        failed: set[tuple[Shape, int, int]] = set()
        for group in self._queue():
            need, signature = self._need(group)
            if signature in failed:
                self._give_up(group, t)
                continue
            placing = self._place(group)
            if len(placing) >= need:
                for uid, node in placing:
                    self._kubelet.bind(uid, node, t)
            else:
                self._undo(placing)
                failed.add(signature)
            bound = {uid for uid, _ in placing} if len(placing) >= need else set()
            self._give_up([pod for pod in group if pod.uid not in bound], t)

    def _refresh(self) -> None:
        store = self._store
        if self._epoch != store.node_epoch:
            self._epoch = store.node_epoch
            self._admitted.clear()
        self._free = {name: store.free(node) for name, node in store.nodes.items()}

    def _queue(self) -> list[list[Pod]]:
        """Pending gangs and single pods, most important first, then oldest, then by name."""
        groups: dict[str, list[Pod]] = {}
        for uid in self._store.unbound:
            pod = self._store.pods[uid]
            groups.setdefault(pod.gang if pod.gang_size > 1 else pod.uid, []).append(pod)
        return sorted(groups.values(), key=lambda pods: (-pods[0].priority, pods[0].created_at, pods[0].name))

    def _need(self, group: list[Pod]) -> tuple[int, tuple[Shape, int, int]]:
        first = group[0]
        if first.gang_size == 1:
            return 1, (self._shape(first), 1, 1)
        placed = sum(1 for pod in self._members(first) if pod.node and not pod.terminal and pod.deleting_at is None)
        need = max(1, first.gang_min - placed)
        return need, (self._shape(first), need, len(group))

    def _members(self, pod: Pod) -> Iterable[Pod]:
        return (self._store.pods[uid] for uid in self._kubelet.gang_members(pod.gang))

    def _shape(self, pod: Pod) -> Shape:
        shape = self._shape_of.get(pod.uid)
        if shape is None:
            key = (pod.node_terms, pod.tolerations, pod.gpus, pod.namespace, pod.anti_affinity)
            shape = self._shapes.setdefault(key, len(self._shapes))
            self._shape_of[pod.uid] = shape
        return shape

    def _place(self, group: list[Pod]) -> Placing:
        placing: Placing = []
        for pod in group:
            node = self._best(pod, placing)
            if node is None:
                break
            self._free[node] -= pod.gpus or 0
            placing.append((pod.uid, node))
        return placing

    def _undo(self, placing: Placing) -> None:
        for uid, node in placing:
            self._free[node] += self._store.pods[uid].gpus or 0

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
        shape = self._shape(pod)
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

    def _give_up(self, group: Iterable[Pod], t: float) -> None:
        for pod in group:
            if pod.unschedulable_since is None:
                self._store.change_pod(pod.uid, t, unschedulable_since=self._agenda.clock(t))
