"""The cluster as last observed, by UID, with pool totals kept up to date by every change.

Applying a fact costs the same whatever the size of the fleet. Duplicates, late and reordered facts change
nothing twice; a deletion wins over an addition that comes after it. Nothing here decides anything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.stimuli import Fact, FactKind
from rebalancer.core.units import GangId, NodeUid, OwnerClass, PodUid, PoolName

GRAVEYARD = 20_000
"""Deleted uids remembered, so that a late addition does not resurrect (bounded: oldest forgotten first)."""
KINDS: tuple[tuple[type, FactKind], ...] = (
    (Pod, "pod"), (Node, "node"), (Budget, "budget"), (GangSpec, "group"),
    (Namespace, "namespace"), (Control, "control"),
)  # fmt: skip


def kind_of(fact: Fact) -> FactKind:
    """The fact's kind by its class."""
    return next(kind for cls, kind in KINDS if isinstance(fact, cls))


@dataclass(slots=True)
class Totals:
    """Sums over a pool's nodes, in GPUs unless named otherwise. ``away``: marked as lent, ``usable``: at home."""

    nodes: int = 0
    owned: int = 0
    usable: int = 0
    away: int = 0
    away_nodes: int = 0
    held: int = 0
    held_by_owner: int = 0
    releasing: int = 0
    borrowed: int = 0
    unusable: int = 0

    def add(self, other: Totals, sign: int) -> None:
        """Add or take away another set of sums."""
        for name in Totals.__slots__:
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))


def usable(node: Node) -> bool:
    """Whether a node counts as supply: ready, not cordoned, registered, labels and taints in order (F36, F38, F58)."""
    return node.ready and not (node.cordoned or node.starting or node.quarantine or node.stray) and node.gpus > 0


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
        self.budgets: dict[str, dict[str, Budget]] = {}
        self.specs: dict[GangId, GangSpec] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.control: Control = Control()
        self.pools: dict[PoolName, Totals] = {}
        self.members: dict[PoolName, dict[NodeUid, None]] = {}
        self.empty: dict[PoolName, dict[NodeUid, None]] = {}
        self.marked: dict[NodeUid, None] = {}
        self.odd: dict[PoolName, dict[NodeUid, None]] = {}
        self.squatted: dict[NodeUid, None] = {}
        self.labels_version = 0
        self.label_keys: set[str] = set()
        """Label keys that waiting pods' terms name: a change of another label moves no pod's home."""
        self.asked: dict[PodUid, None] = {}
        """Inference pods that began or ceased to wait, or changed while waiting, since it was last cleared."""
        self.waits: dict[OwnerClass, int] = dict.fromkeys(OwnerClass, 0)
        self.rooms: dict[PoolName, int] = {}
        self.candidates: dict[PoolName, int] = {}
        self.elsewhere = self.handovers = 0
        self.others = 0
        """How often what these names say changed, so that what follows from it need not be asked again."""
        self.population = 0
        self.longest_leave = timedelta(0)
        """No pod that was ever seen may take longer to leave."""
        self.turns: dict[PoolName, int] = {}
        self._others: dict[tuple[FactKind, str], Fact] = {}
        self._at: dict[str, datetime] = {}
        self._gone: dict[str, None] = {}
        self.shelves: dict[PoolName, dict[int, list[tuple[str, NodeUid]]]] = {}
        self._shelf: dict[NodeUid, tuple[PoolName, int, str]] = {}
        self._shares: dict[NodeUid, tuple[PoolName, Totals]] = {}

    # -- changes ---------------------------------------------------------------------------------------------

    def observe(self, fact: Fact, at: datetime) -> bool:
        """Apply an addition or change; False when it is old news (late, repeated, or of a deleted object)."""
        uid = fact.uid
        if uid in self._gone or self._stale(fact, at):
            return False
        self._at[uid] = at
        if isinstance(fact, Pod):
            self._put_pod(fact)
        elif isinstance(fact, Node):
            self._put_node(fact)
        else:
            self._put_other(fact)
        return True

    def delete(self, of: FactKind, uid: str) -> Fact | None:
        """Forget an object; returns what it was, None if it was unknown. A later addition of the uid is ignored."""
        if of != "control":
            self._bury(uid)
        self._at.pop(uid, None)
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

    def _stale(self, fact: Fact, at: datetime) -> bool:
        uid = fact.uid
        known = self._at.get(uid)
        if known is None:
            return False
        old: Fact | None = self.pods.get(uid) or self.nodes.get(uid)
        if isinstance(fact, Pod | Node) and isinstance(old, Pod | Node):
            new_version, old_version = fact.resource_version, old.resource_version
            if new_version.isdigit() and old_version.isdigit():
                return int(new_version) <= int(old_version)
            return at < known or fact == old
        return at < known

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > GRAVEYARD:
            del self._gone[next(iter(self._gone))]

    def _put_pod(self, pod: Pod) -> None:
        old = self.pods.get(pod.uid)
        if old is not None:
            self._unindex(old)
        self._note(old, pod)
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
            for name in _touched(pod, None):
                self._recount(name)
        return pod

    def _note(self, old: Pod | None, new: Pod | None) -> None:
        """Count what this change may concern: those who wait, and room on the nodes that it was or is bound to."""
        if _footprint(old) != _footprint(new):
            for name in {pod.node for pod in (old, new) if pod is not None and pod.node}:
                node = self.node_named(name)
                if node is not None:
                    self._room_changed(node)
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
        self.nodes[node.uid] = node
        self.by_name[node.name] = node.uid
        self.members.setdefault(node.pool, {})[node.uid] = None
        self._turned(old, node)
        if moved or old is None or old.taints != node.taints or _supply(old) != _supply(node):
            self._room_changed(node)
        if old is None or (_supply(old), old.taints, old.labels) != (_supply(node), node.taints, node.labels):
            self.elsewhere += any(_open_to_others(item) for item in (old, node))
        if old is None or _lendable(old) != _lendable(node):
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
        self._withdraw(uid)
        self._turned(node, None)
        self.elsewhere += _open_to_others(node)
        _discard(self.members, node.pool, uid)
        self.marked.pop(uid, None)
        if self.by_name.get(node.name) == uid:
            del self.by_name[node.name]
        self.labels_version += 1
        return node

    def _relabelled(self, old: Node, new: Node) -> bool:
        if old.labels == new.labels:
            return False
        return any(old.labels.get(key) != new.labels.get(key) for key in self.label_keys)

    def _room_changed(self, node: Node) -> None:
        _count(self.rooms, node.pool)
        self.elsewhere += _open_to_others(node)

    def candidate_changed(self, node: Node) -> None:
        """Something else than a fact says otherwise about this node: whether it may be lent is to be asked again."""
        if node.uid in self.empty.get(node.pool, ()):
            _count(self.candidates, node.pool)

    def _turned(self, old: Node | None, new: Node | None) -> None:
        """Keep what depends on the node alone: the odd ones, and how often supply changed hands."""
        if old is None or new is None or old.pool != new.pool:
            self.population += 1
        if old is None or new is None or (old.loan is None) != (new.loan is None):
            self.handovers += 1
        for node in (old, new):
            if node is not None and _supply(old) != _supply(new):
                _count(self.turns, node.pool)
        if old is not None:
            _discard(self.odd, old.pool, old.uid)
        if new is not None and (new.quarantine or (new.starting and new.gpus == 0 and new.capacity > 0)):
            self.odd.setdefault(new.pool, {})[new.uid] = None

    def _put_other(self, fact: Fact) -> None:
        self.others += 1
        self._others[kind_of(fact), fact.uid] = fact
        if isinstance(fact, Budget):
            self.budgets.setdefault(fact.namespace, {})[fact.uid] = fact
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
            self.budgets.get(fact.namespace, {}).pop(uid, None)
        elif isinstance(fact, GangSpec):
            self.specs.pop(fact.gang, None)
        elif isinstance(fact, Namespace):
            self.namespaces.pop(fact.name, None)
        elif isinstance(fact, Control):
            self.control = Control()
        return fact

    # -- totals ----------------------------------------------------------------------------------------------

    def _recount(self, node_name: str) -> None:
        uid = self.by_name.get(node_name)
        if uid is None:
            return
        node = self.nodes[uid]
        was_empty = uid in self.empty.get(node.pool, ())
        self._withdraw(uid)
        share = self._share(node)
        self._shares[uid] = (node.pool, share)
        self.pools.setdefault(node.pool, Totals()).add(share, 1)
        if node.loan is not None and any(_squats(pod) for pod in self.guests(node_name)):
            self.squatted[uid] = None
        emptied = share.held == 0 and share.usable > 0 and not self.nominated.get(node_name)
        if emptied:
            self.empty.setdefault(node.pool, {})[uid] = None
        if emptied is not was_empty:
            _count(self.candidates, node.pool)
        self._shelve(node, share)

    def _shelve(self, node: Node, share: Totals) -> None:
        """Nodes at home by how much of them is free, so that a pod is shown only those that are large enough."""
        if share.usable:
            free = max(0, node.gpus - share.held)
            insort(self.shelves.setdefault(node.pool, {}).setdefault(free, []), (node.name, node.uid))
            self._shelf[node.uid] = (node.pool, free, node.name)

    def _unshelve(self, uid: NodeUid) -> None:
        at = self._shelf.pop(uid, None)
        if at is not None:
            pool, free, name = at
            shelf = self.shelves[pool][free]
            del shelf[bisect_left(shelf, (name, uid))]

    def _withdraw(self, uid: NodeUid) -> None:
        self._unshelve(uid)
        before = self._shares.pop(uid, None)
        if before is not None:
            pool, share = before
            self.squatted.pop(uid, None)
            self.pools[pool].add(share, -1)
            self.empty.get(pool, {}).pop(uid, None)

    def _share(self, node: Node) -> Totals:
        share = Totals(nodes=1, owned=node.gpus)
        for pod in self.guests(node.name):
            share.held += pod.held
            share.releasing += pod.releasing
            share.held_by_owner += pod.held if pod.owner is node.owner else 0
        if node.mark is not None:
            share.away, share.away_nodes, share.borrowed = node.gpus, 1, share.held
        elif usable(node):
            share.usable = node.gpus
        else:
            share.unusable = node.gpus
        return share

    # -- reading ---------------------------------------------------------------------------------------------

    def guests(self, node_name: str) -> Iterator[Pod]:
        """Pods bound to a node and not ended."""
        return (self.pods[uid] for uid in self.pods_on.get(node_name, ()))

    def held(self, node: Node) -> int:
        """GPUs held on a node, those being released included."""
        found = self._shares.get(node.uid)
        return found[1].held if found else 0

    def free(self, node: Node) -> int:
        """max(0, allocatable - held) (CASES 0)."""
        return max(0, node.gpus - self.held(node))

    def gang_pods(self, gang: GangId) -> list[Pod]:
        """Members of a gang that exist, in name order."""
        pods = [self.pods[uid] for uid in self.gangs.get(gang, ())]
        return sorted(pods, key=lambda pod: (pod.name, pod.uid))

    def observed_at(self, uid: str) -> datetime | None:
        """Event time of the last fact applied for a uid."""
        return self._at.get(uid)

    def node_named(self, name: str) -> Node | None:
        """The node that bears a name now."""
        uid = self.by_name.get(name)
        return self.nodes[uid] if uid is not None else None

    def totals(self, pool: PoolName) -> Totals:
        """Sums of a pool; zeros for a pool without nodes."""
        return self.pools.get(pool, Totals())


def _touched(pod: Pod, old: Pod | None) -> tuple[str, ...]:
    names = {pod.node, pod.nominated_node}
    if old is not None:
        names |= {old.node, old.nominated_node}
    return tuple(sorted(names - {""}))


def _supply(node: Node | None) -> tuple[object, ...] | None:
    """What makes a node supply, or not."""
    return None if node is None else (node.pool, node.gpus, usable(node), node.loan is None)


def _open_to_others(node: Node | None) -> bool:
    """Whether the scheduler may put others than inference there without us."""
    return node is not None and (node.loan is not None or node.owner is not OwnerClass.INFERENCE)


def _lendable(node: Node) -> tuple[object, ...]:
    """What decides whether a node may be lent, and to whom."""
    marks = (node.quarantine, node.divided, node.opted_out, node.model, node.network)
    return (_supply(node), marks, node.taints, node.labels)


def _footprint(pod: Pod | None) -> tuple[object, ...] | None:
    """What a bound pod means to others who want its node."""
    if pod is None or not pod.node or pod.terminal:
        return None
    return (pod.node, pod.gpus, pod.namespace, pod.labels, pod.anti_affinity)


def _count(versions: dict[PoolName, int], pool: PoolName) -> None:
    versions[pool] = versions.get(pool, 0) + 1


def _squats(pod: Pod) -> bool:
    return not pod.reclaimable and (pod.gpus is None or pod.gpus > 0)


def _discard(index: dict[str, dict[str, None]], key: str, uid: str) -> None:
    inner = index.get(key)
    if inner is not None:
        inner.pop(uid, None)
        if not inner:
            del index[key]
