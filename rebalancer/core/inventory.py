"""The cluster as last observed, by UID, with pool totals kept up to date by every change.

Applying a fact costs the same whatever the size of the fleet. Duplicates, late and reordered facts change
nothing twice; a deletion wins over an addition that comes after it. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from rebalancer.core.budgetindex import BudgetIndex
from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.news import News
from rebalancer.core.shares import Shares
from rebalancer.core.stimuli import Fact, FactKind, kind_of
from rebalancer.core.stirrings import Stirrings
from rebalancer.core.supply import Totals, bare, footprint, lendable, open_to_others, supply
from rebalancer.core.units import GangId, NodeUid, OwnerClass, PodUid, PoolName


class Inventory:
    """All objects by uid, with the indexes that planning reads."""

    def __init__(self) -> None:
        """Start empty and unsynced."""
        self.nodes: dict[NodeUid, Node] = {}
        self.by_name: dict[str, NodeUid] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.pods_on: dict[str, dict[PodUid, None]] = {}
        self.nominated: dict[str, dict[PodUid, None]] = {}
        self.gangs: dict[GangId, dict[PodUid, None]] = {}
        self.pending: dict[OwnerClass, dict[PodUid, None]] = {cls: {} for cls in OwnerClass}
        self.budgets = BudgetIndex()
        self.specs: dict[GangId, GangSpec] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.control: Control = Control()
        self.shares = Shares()
        self.members: dict[PoolName, dict[NodeUid, None]] = {}
        self.marked: dict[NodeUid, None] = {}
        self.odd: dict[PoolName, dict[NodeUid, None]] = {}
        self.labels_version = 0
        self.label_keys: set[str] = set()
        """Label keys that waiting pods' terms name: a change of another label moves no pod's home."""
        self.asked: dict[PodUid, None] = {}
        """Inference pods that began or ceased to wait, or changed while waiting, since it was last cleared."""
        self.stirred = Stirrings()
        self.rooms: dict[PoolName, dict[NodeUid, bool]] = {}
        """Nodes whose room changed since it was last cleared, and whether it may have grown."""
        self.waits: dict[OwnerClass, int] = dict.fromkeys(OwnerClass, 0)
        self.candidates: dict[PoolName, int] = {}
        self.elsewhere = self.handovers = 0
        self.others = 0
        """How often what these names say changed, so that what follows from it need not be asked again."""
        self.population = 0
        self.longest_leave = timedelta(0)
        """No pod that was ever seen may take longer to leave."""
        self.turns: dict[PoolName, int] = {}
        self._others: dict[tuple[FactKind, str], Fact] = {}
        self._news = News()

    # -- changes ---------------------------------------------------------------------------------------------

    def observe(self, fact: Fact, at: datetime) -> bool:
        """Apply an addition or change; False when it is old news (late, repeated, or of a deleted object)."""
        uid = fact.uid
        if not self._news.take(fact, self.pods.get(uid) or self.nodes.get(uid), at):
            return False
        if isinstance(fact, Pod):
            self._put_pod(fact)
        elif isinstance(fact, Node):
            self._put_node(fact)
        else:
            self._put_other(fact)
        return True

    def delete(self, of: FactKind, uid: str) -> Fact | None:
        """Forget an object; returns what it was, None if it was unknown. A later addition of the uid is ignored."""
        self._news.deleted(uid, buried=of != "control")
        if of == "pod":
            return self._drop_pod(uid)
        if of == "node":
            return self._drop_node(uid)
        return self._drop_other(of, uid)

    def uids(self, of: FactKind) -> list[str]:
        """All known uids of a kind."""
        if of == "pod":
            return list(self.pods)
        if of == "node":
            return list(self.nodes)
        return [uid for kind, uid in self._others if kind == of]

    def _put_pod(self, pod: Pod) -> None:
        old = self.pods.get(pod.uid)
        if old is not None:
            self._unindex(old)
        self._note(old, pod)
        self.stirred.pod(old, pod)
        self.pods[pod.uid] = pod
        self.gangs.setdefault(pod.gang, {})[pod.uid] = None
        self.longest_leave = max(self.longest_leave, timedelta(seconds=pod.grace_seconds + pod.notice_seconds))
        if pod.node and not pod.terminal:
            self.pods_on.setdefault(pod.node, {})[pod.uid] = None
        elif pod.pending and pod.gpus != 0:
            self.pending[pod.owner][pod.uid] = None
            if pod.nominated_node:
                self.nominated.setdefault(pod.nominated_node, {})[pod.uid] = None
        for name in _touched(pod, old):
            self._recount(name)

    def _drop_pod(self, uid: PodUid) -> Pod | None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._unindex(pod)
            self._note(pod, None)
            self.stirred.pod(pod, None)
            for name in _touched(pod, None):
                self._recount(name)
        return pod

    def _note(self, old: Pod | None, new: Pod | None) -> None:
        """Count what this change may concern: those who wait, and room on the nodes that it was or is bound to."""
        if footprint(old) != footprint(new):
            for name in {pod.node for pod in (old, new) if pod is not None and pod.node}:
                node = self.node_named(name)
                if node is not None:
                    self._room_changed(node, grew=footprint(old) is not None)
                    self.candidate_changed(node)
        for pod in (old, new):
            if pod is None:
                continue
            if pod.pending and pod.owner is OwnerClass.INFERENCE:
                self.asked[pod.uid] = None
            if pod.pending or any(uid in self.pending[pod.owner] for uid in self.gangs.get(pod.gang, ())):
                self.waits[pod.owner] += 1

    def _unindex(self, pod: Pod) -> None:
        _discard(self.gangs, pod.gang, pod.uid)
        if pod.node:
            _discard(self.pods_on, pod.node, pod.uid)
        self.pending[pod.owner].pop(pod.uid, None)
        if pod.nominated_node:
            _discard(self.nominated, pod.nominated_node, pod.uid)

    def _put_node(self, node: Node) -> None:
        old = self.nodes.get(node.uid)
        namesake = self.by_name.get(node.name)
        if namesake is not None and namesake != node.uid:
            self.delete("node", namesake)
        moved = old is None or old.pool != node.pool or self._relabelled(old, node)
        self.labels_version += moved
        if old is not None and old.pool != node.pool:
            _discard(self.members, old.pool, node.uid)
        self.stirred.node(old, node)
        self.nodes[node.uid] = node
        self.by_name[node.name] = node.uid
        self.members.setdefault(node.pool, {})[node.uid] = None
        self._turned(old, node)
        if moved or old is None or old.taints != node.taints or supply(old) != supply(node):
            self._room_changed(node, grew=True)
        if old is None or (supply(old), old.taints, old.labels) != (supply(node), node.taints, node.labels):
            self.elsewhere += any(open_to_others(item) for item in (old, node))
        if old is None or lendable(old) != lendable(node):
            self.candidate_changed(node)
        if node.loan is not None:
            self.marked[node.uid] = None
        else:
            self.marked.pop(node.uid, None)
        self._recount(node.name)

    def _drop_node(self, uid: NodeUid) -> Node | None:
        node = self.nodes.pop(uid, None)
        if node is None:
            return None
        self.shares.withdraw(uid)
        self.stirred.node(node, None)
        self._turned(node, None)
        self.elsewhere += open_to_others(node)
        _discard(self.members, node.pool, uid)
        self.marked.pop(uid, None)
        if self.by_name.get(node.name) == uid:
            del self.by_name[node.name]
        self.labels_version += 1
        return node

    def _recount(self, node_name: str) -> None:
        node = self.node_named(node_name)
        if node is None:
            return
        nominated = bool(self.nominated.get(node_name))
        if self.shares.count(node, tuple(self.guests(node_name)), nominated):
            _count(self.candidates, node.pool)

    def _relabelled(self, old: Node, new: Node) -> bool:
        if old.labels == new.labels:
            return False
        return any(old.labels.get(key) != new.labels.get(key) for key in self.label_keys)

    def _room_changed(self, node: Node, *, grew: bool) -> None:
        rooms = self.rooms.setdefault(node.pool, {})
        rooms[node.uid] = grew or rooms.get(node.uid, False)
        self.elsewhere += open_to_others(node)

    def candidate_changed(self, node: Node) -> None:
        """Something else than a fact says otherwise about this node: whether it may be lent is to be asked again."""
        if self.shares.is_empty(node):
            _count(self.candidates, node.pool)

    def _turned(self, old: Node | None, new: Node | None) -> None:
        """Keep what depends on the node alone: the odd ones, and how often supply changed hands."""
        if old is None or new is None or old.pool != new.pool:
            self.population += 1
        if old is None or new is None or (old.loan is None) != (new.loan is None):
            self.handovers += 1
        for node in (old, new):
            if node is not None and supply(old) != supply(new):
                _count(self.turns, node.pool)
        if old is not None:
            _discard(self.odd, old.pool, old.uid)
        if new is not None and (new.quarantine or bare(new)):
            self.odd.setdefault(new.pool, {})[new.uid] = None

    def _put_other(self, fact: Fact) -> None:
        self.others += 1
        key = kind_of(fact), fact.uid
        old = self._others.get(key)
        self._others[key] = fact
        if isinstance(fact, Budget):
            self.budgets.put(fact, old if isinstance(old, Budget) else None)
        elif isinstance(fact, GangSpec):
            self.specs[fact.gang] = fact
        elif isinstance(fact, Namespace):
            self.namespaces[fact.name] = fact
        elif isinstance(fact, Control):
            self.control = fact

    def _drop_other(self, of: FactKind, uid: str) -> Fact | None:
        self.others += 1
        fact = self._others.pop((of, uid), None)
        if isinstance(fact, Budget):
            self.budgets.drop(fact)
        elif isinstance(fact, GangSpec):
            self.specs.pop(fact.gang, None)
        elif isinstance(fact, Namespace):
            self.namespaces.pop(fact.name, None)
        elif isinstance(fact, Control):
            self.control = Control()
        return fact

    # -- reading ---------------------------------------------------------------------------------------------

    def guests(self, node_name: str) -> Iterator[Pod]:
        """Pods bound to a node and not ended."""
        return (self.pods[uid] for uid in self.pods_on.get(node_name, ()))

    def held(self, node: Node) -> int:
        """GPUs held on a node, those being released included."""
        return self.shares.held(node)

    def free(self, node: Node) -> int:
        """max(0, allocatable - held) (CASES 0)."""
        return max(0, node.gpus - self.held(node))

    def gang_pods(self, gang: GangId) -> list[Pod]:
        """Members of a gang that exist, in name order."""
        pods = [self.pods[uid] for uid in self.gangs.get(gang, ())]
        return sorted(pods, key=lambda pod: (pod.name, pod.uid))

    def observed_at(self, uid: str) -> datetime | None:
        """Event time of the last fact applied for a uid."""
        return self._news.at(uid)

    def node_named(self, name: str) -> Node | None:
        """The node that bears a name now."""
        uid = self.by_name.get(name)
        return self.nodes[uid] if uid is not None else None

    def totals(self, pool: PoolName) -> Totals:
        """Sums of a pool; zeros for a pool without nodes."""
        return self.shares.totals(pool)


def _touched(pod: Pod, old: Pod | None) -> tuple[str, ...]:
    names = {pod.node, pod.nominated_node}
    if old is not None:
        names |= {old.node, old.nominated_node}
    return tuple(sorted(names - {""}))


def _count(versions: dict[PoolName, int], pool: PoolName) -> None:
    versions[pool] = versions.get(pool, 0) + 1


def _discard(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
    inner = index.get(key)
    if inner is not None:
        inner.pop(uid, None)
        if not inner:
            del index[key]
