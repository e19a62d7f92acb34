"""The cluster's objects: what an API server would hold, with versions, indexes and a feed of changes.

Every write bumps the version, tells the watchers and becomes one fact. Objects are the core's own frozen facts.
Nothing here decides anything; who may write is not checked here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.core.units import PodUid
from rebalancer.simulate.agenda import Agenda

PodWatcher: TypeAlias = Callable[[Pod | None, Pod | None, float], None]
NodeWatcher: TypeAlias = Callable[[Node | None, Node | None, float], None]
_SPACE = uuid.UUID("5f0c6b0e-7a0e-4a51-9c7d-6e1f0d1c9a10")


class Store:
    """Objects by kind; nodes by name, as pods refer to them so."""

    def __init__(self, agenda: Agenda, seed: int) -> None:
        self.agenda = agenda
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.budgets: dict[str, Budget] = {}
        self.groups: dict[str, GangSpec] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.control = Control()
        self.by_node: dict[str, dict[PodUid, None]] = {}
        self.by_name: dict[tuple[str, str], PodUid] = {}
        self.unbound: dict[PodUid, None] = {}
        self.used: dict[str, int] = {}
        self.node_epoch = 0
        """Grows with every change of a node: what was worked out from nodes is stale then."""
        self.feed: list[FactObserved | FactDeleted] = []
        self.pod_watchers: list[PodWatcher] = []
        self.node_watchers: list[NodeWatcher] = []
        self._seed = seed
        self._version = 1000
        self._made = 0

    def new_uid(self, what: str) -> str:
        """A uid that depends on the seed and on the order of asking only."""
        self._made += 1
        return str(uuid.uuid5(_SPACE, f"{self._seed}/{what}/{self._made}"))

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _tell(self, fact: Fact, t: float) -> None:
        self.feed.append(FactObserved(fact, self.agenda.clock(t)))

    def _gone(self, of: FactKind, uid: str, t: float) -> None:
        self.feed.append(FactDeleted(of, uid, self.agenda.clock(t)))

    # --- pods

    def put_pod(self, pod: Pod, t: float) -> Pod:
        """Add or replace a pod."""
        old = self.pods.get(pod.uid)
        pod = replace(pod, resource_version=self._next_version())
        self._unindex(old)
        self.pods[pod.uid] = pod
        self.by_name[pod.namespace, pod.name] = pod.uid
        if pod.node:
            self.by_node.setdefault(pod.node, {})[pod.uid] = None
            self.used[pod.node] = self.used.get(pod.node, 0) + pod.held
        elif pod.pending:
            self.unbound[pod.uid] = None
        self._tell(pod, t)
        for watcher in self.pod_watchers:
            watcher(old, pod, t)
        return pod

    def change_pod(self, uid: PodUid, t: float, **changes: Any) -> Pod:
        """Replace some fields of a pod."""
        return self.put_pod(replace(self.pods[uid], **changes), t)

    def remove_pod(self, uid: PodUid, t: float) -> None:
        """The pod is really gone."""
        old = self.pods.pop(uid)
        self._unindex(old, gone=True)
        self._gone("pod", uid, t)
        for watcher in self.pod_watchers:
            watcher(old, None, t)

    def _unindex(self, pod: Pod | None, *, gone: bool = False) -> None:
        if pod is None:
            return
        self.unbound.pop(pod.uid, None)
        if pod.node:
            self.used[pod.node] -= pod.held
            if gone:
                self.by_node[pod.node].pop(pod.uid, None)
        if gone and self.by_name.get((pod.namespace, pod.name)) == pod.uid:
            del self.by_name[pod.namespace, pod.name]

    def pods_on(self, node: str) -> list[Pod]:
        """Pods bound to a node, in the order in which they were bound."""
        return [self.pods[uid] for uid in self.by_node.get(node, ())]

    def free(self, node: Node) -> int:
        """GPUs of a node that nobody holds."""
        return max(0, node.gpus - self.used.get(node.name, 0))

    # --- nodes

    def put_node(self, node: Node, t: float) -> Node:
        """Add or replace a node."""
        old = self.nodes.get(node.name)
        node = replace(node, resource_version=self._next_version())
        self.nodes[node.name] = node
        self.node_epoch += 1
        self._tell(node, t)
        for watcher in self.node_watchers:
            watcher(old, node, t)
        return node

    def change_node(self, name: str, t: float, **changes: Any) -> Node:
        """Replace some fields of a node."""
        return self.put_node(replace(self.nodes[name], **changes), t)

    def remove_node(self, name: str, t: float) -> None:
        """The node object is gone; its pods are the caller's to end."""
        old = self.nodes.pop(name)
        self.node_epoch += 1
        self._gone("node", old.uid, t)
        for watcher in self.node_watchers:
            watcher(old, None, t)

    # --- the rest

    def put_budget(self, budget: Budget, t: float) -> None:
        self.budgets[budget.uid] = budget
        self._tell(budget, t)

    def remove_budget(self, uid: str, t: float) -> None:
        del self.budgets[uid]
        self._gone("budget", uid, t)

    def put_group(self, group: GangSpec, t: float) -> None:
        self.groups[group.uid] = group
        self._tell(group, t)

    def remove_group(self, uid: str, t: float) -> None:
        del self.groups[uid]
        self._gone("group", uid, t)

    def put_namespace(self, namespace: Namespace, t: float) -> None:
        self.namespaces[namespace.uid] = namespace
        self._tell(namespace, t)

    def put_control(self, control: Control, t: float) -> None:
        self.control = control
        self._tell(control, t)

    def listing(self, of: FactKind) -> tuple[Fact, ...]:
        """A full list of one kind, as it stands."""
        match of:
            case "node":
                return tuple(self.nodes.values())
            case "pod":
                return tuple(self.pods.values())
            case "budget":
                return tuple(self.budgets.values())
            case "group":
                return tuple(self.groups.values())
            case "namespace":
                return tuple(self.namespaces.values())
            case "control":
                return (self.control,)


KINDS: tuple[FactKind, ...] = ("namespace", "node", "group", "budget", "pod", "control")
"""In the order in which a full picture is best told."""
