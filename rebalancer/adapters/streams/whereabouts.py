"""Where metric rows belong: a cluster's nodes and pods as the facts told them, indexed for the assembler.

Fed from the sources themselves, which also know addresses, and from our own fact topics. Nothing is guessed: a row
that names no known node stays without one. Nothing is read or sent here.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rebalancer.adapters.decode.dcgm_nodes import Directory, NodeEntry, PodEntry, directory
from rebalancer.core.facts import Node, Pod
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved, SnapshotBegan, SnapshotEnded

HOSTNAME = "kubernetes.io/hostname"
PODS_EVERY = 1.0
"""Seconds between two indexings that only pods ask for; pods come and go all the time, nodes seldom do."""
PODS = 300_000
"""Most pods that are remembered; pods are hints here, and those beyond it give none."""


class Whereabouts:
    """One cluster's directory, kept up to date. ``tick`` is a monotonic clock in seconds."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeEntry] = {}
        self._pods: dict[str, PodEntry] = {}
        self._lists: dict[FactKind, tuple[str, set[str]]] = {}
        self._index = directory(())
        self._nodes_changed = self._pods_changed = False
        self._indexed: float | None = None

    def known(self, tick: float) -> Directory:
        """The directory as of now; pods may be ``PODS_EVERY`` seconds behind."""
        waited = self._indexed is None or tick - self._indexed >= PODS_EVERY
        if self._nodes_changed or (self._pods_changed and waited):
            self._index = directory(self._nodes.values(), self._pods.values(), self._index.learnt)
            self._index.forget_strangers()
            self._nodes_changed = self._pods_changed = False
            self._indexed = tick
        return self._index

    def saw(self, fact: Fact, addresses: Sequence[str] = ()) -> None:
        """A node or pod as it now is; other facts say nothing about places."""
        if isinstance(fact, Node):
            self._saw_node(fact, addresses)
        elif isinstance(fact, Pod):
            self._saw_pod(fact, addresses)

    def gone(self, of: FactKind, uid: str) -> None:
        """It no longer exists."""
        if of == "node":
            self._nodes_changed |= self._nodes.pop(uid, None) is not None
        elif of == "pod":
            self._pods_changed |= self._pods.pop(uid, None) is not None

    def heard(self, content: object) -> None:
        """What our own fact topics say, full lists included."""
        if isinstance(content, FactObserved):
            self.saw(content.fact)
            of: FactKind = "node" if isinstance(content.fact, Node) else "pod"
            if of in self._lists:
                self._lists[of][1].add(content.fact.uid)
        elif isinstance(content, FactDeleted):
            self.gone(content.of, content.uid)
        elif isinstance(content, SnapshotBegan):
            self._lists[content.of] = (content.snapshot, set())
        elif isinstance(content, SnapshotEnded):
            self._listed(content)

    def _listed(self, end: SnapshotEnded) -> None:
        """What a complete list left out is gone; compaction makes lists incomplete, and those say nothing."""
        name, seen = self._lists.pop(end.of, ("", set()))
        if name != end.snapshot or len(seen) < end.count:
            return
        self.listed(end.of, seen)

    def listed(self, of: FactKind, uids: AbstractSet[str]) -> None:
        """A complete list has only these: what is not in it is gone."""
        held = [*self._nodes] if of == "node" else [*self._pods] if of == "pod" else []
        for uid in [uid for uid in held if uid not in uids]:
            self.gone(of, uid)

    def _saw_node(self, node: Node, addresses: Sequence[str]) -> None:
        old = self._nodes.get(node.uid)
        kept = tuple(addresses) or (old.aliases if old is not None else ())
        aliases = {*kept, node.labels.get(HOSTNAME, "")} - {""}
        entry = NodeEntry(node.uid, node.name, node.gpus, tuple(sorted(aliases)))
        if entry != old:
            self._nodes[node.uid] = entry
            self._nodes_changed = True

    def _saw_pod(self, pod: Pod, addresses: Sequence[str]) -> None:
        if pod.terminal:
            self.gone("pod", pod.uid)
            return
        old = self._pods.get(pod.uid)
        if old is None and len(self._pods) >= PODS:
            return
        kept = tuple(addresses) or (old.addresses if old is not None else ())
        entry = PodEntry(pod.namespace, pod.name, pod.node, pod.gpus, kept)
        if entry != old:
            self._pods[pod.uid] = entry
            self._pods_changed = True
