"""What an inference pool wants, from three sources, and what stands ready for it.

Demand in GPUs is the largest of (a) what its running and pending pods request, (b) measured utilisation over the
target utilisation, capped at held + headroom, and (c) what the demand topic says. (b) rises before an
autoscaler reacts; where telemetry is unknown it is a lower bound of the nodes that are known, and no bound at all
when none is. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rebalancer.core.facts import Pod, Selector
from rebalancer.core.fit import selects
from rebalancer.core.headroom import Headroom, RollingMin
from rebalancer.core.inventory import Inventory
from rebalancer.core.occupancy import Rolling
from rebalancer.core.policy import Policy
from rebalancer.core.reasons import Because
from rebalancer.core.supply import usable
from rebalancer.core.telemetry import DemandSample, Verdict
from rebalancer.core.units import Activity, NodeUid, OwnerClass, PodUid, PoolName

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Demand:
    """A pool's demand in GPUs and where it comes from. ``blind``: no utilisation is known at all."""

    requested: float
    measured: float
    told: float
    pending: int
    held: int
    headroom: float
    blind: bool

    @property
    def gpus(self) -> float:
        """The largest of the three sources."""
        return max(self.requested, min(self.measured, self.held + self.headroom), self.told)


@dataclass(slots=True)
class Measured:
    """Utilisation of the known home nodes that came from one sample partition."""

    total: float = 0.0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Placing:
    """Where those who wait found room at home, and who found none (``left``) nor finds any coming (``unmet``).

    ``used`` are the nodes that took them, ``last`` the name of the last one of these in the order of names.
    """

    key: tuple[object, ...]
    left: tuple[Pod, ...]
    unmet: tuple[Pod, ...]
    used: frozenset[NodeUid]
    last: str


class PoolWatch:
    """What is remembered about one pool between two looks at it."""

    def __init__(self, policy: Policy, capacity: int) -> None:
        """Begin without history; ``capacity`` in GPUs scales the prior headroom."""
        signals = policy.signals
        self.headroom = Headroom(signals.bucket, signals.history, signals.headroom_prior_share, capacity)
        self.spare = RollingMin(policy.activities.dwell)
        self.occupancy = Rolling()
        self.told: DemandSample | None = None
        self.measured: dict[int, Measured] = {}
        self.counted: dict[NodeUid, tuple[int, float]] = {}
        self.rising_since: datetime | None = None
        self.rising_samples = 0
        self.rising_at = EPOCH
        self.placing: Placing | None = None
        self.fruitless: tuple[tuple[object, ...], datetime, tuple[int, float]] | None = None
        """Of the last search for borrowers that found none: what it began with, until when it holds, for how much."""
        self.last_look: datetime | None = None
        self.last_published: datetime | None = None
        self.last_forecast: datetime | None = None
        self.told_headroom = 0.0
        self.told_returns: tuple[float, ...] = ()
        self.told_rising: datetime | None = None
        """GPUs of headroom as of the last forecast told."""
        self.accounted: datetime | None = None
        self.idle_hours: dict[str, float] = {}
        self.idle_day: str = ""
        self.refusal: Because | None = None
        self.borrower: Because | None = None
        self.bare: dict[NodeUid, datetime] = {}
        """Nodes without the GPUs that they are labelled for, and since when."""
        self.paced: Because | None = None
        """Why fewer nodes come home for waiting pods than they need."""
        self.shadow_lent = 0.0
        self.shadow_missed = 0.0

    def adopt(self, policy: Policy, before: Policy) -> None:
        """Go on under another policy. A dwell of another length is watched anew: nothing is lent before it is over."""
        signals, former = policy.signals, before.signals
        learning = (signals.bucket, signals.history, signals.headroom_prior_share)
        if learning != (former.bucket, former.history, former.headroom_prior_share):
            self.headroom = self.headroom.under(*learning)
        if policy.activities.dwell != before.activities.dwell:
            self.spare = RollingMin(policy.activities.dwell)

    def count(self, node: NodeUid, verdict: Verdict | None) -> None:
        """Let a home node's verdict take part in the measured sum; None or unknown takes it out."""
        before = self.counted.pop(node, None)
        if before is not None:
            partition, value = before
            self.measured[partition].total -= value
            self.measured[partition].nodes -= 1
        if verdict is None or verdict.activity is Activity.UNKNOWN or verdict.utilisation is None:
            return
        entry = self.measured.setdefault(verdict.partition, Measured())
        entry.total += verdict.utilisation
        entry.nodes += 1
        self.counted[node] = (verdict.partition, verdict.utilisation)


class Homes:
    """Which inference pool each waiting pod could call home; asked again only where something changed."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._version = -1
        self._policy: Policy | None = None
        self._known: dict[tuple[Selector, ...], PoolName | None] = {}
        self._home: dict[PodUid, PoolName] = {}
        self._waiting: dict[PoolName, dict[PodUid, None]] = {}
        self._sorted: dict[PoolName, tuple[Pod, ...]] = {}

    def of(self, pod: Pod, inventory: Inventory, policy: Policy) -> PoolName | None:
        """The first inference pool, by name, with a node that the pod's terms accept; None if there is none."""
        if self._version != inventory.labels_version or self._policy is not policy:
            self._forget(inventory, policy)
        if pod.node_terms not in self._known:
            inventory.label_keys.update(item.key for term in pod.node_terms for item in term)
            self._known[pod.node_terms] = self._search(pod, inventory, policy)
        return self._known[pod.node_terms]

    def waiting(self, pool: PoolName, inventory: Inventory, policy: Policy) -> tuple[Pod, ...]:
        """Pending inference pods that belong to the pool, oldest first; the same object until one of them changes."""
        if self._version != inventory.labels_version or self._policy is not policy:
            self._forget(inventory, policy)
        for uid in inventory.asked:
            self._place(uid, inventory, policy)
        inventory.asked.clear()
        if pool not in self._sorted:
            pods = (inventory.pods[uid] for uid in self._waiting.get(pool, ()))
            self._sorted[pool] = tuple(sorted(pods, key=lambda pod: (pod.created_at, pod.name, pod.uid)))
        return self._sorted[pool]

    def _forget(self, inventory: Inventory, policy: Policy) -> None:
        self._version, self._policy = inventory.labels_version, policy
        for memory in (self._known, self._home, self._waiting, self._sorted):
            memory.clear()
        inventory.asked.update(inventory.pending[OwnerClass.INFERENCE])

    def _place(self, uid: PodUid, inventory: Inventory, policy: Policy) -> None:
        before = self._home.pop(uid, None)
        if before is not None:
            del self._waiting[before][uid]
            self._sorted.pop(before, None)
        if uid not in inventory.pending[OwnerClass.INFERENCE]:
            return
        pool = self.of(inventory.pods[uid], inventory, policy)
        if pool is not None:
            self._home[uid] = pool
            self._waiting.setdefault(pool, {})[uid] = None
            self._sorted.pop(pool, None)

    @staticmethod
    def _search(pod: Pod, inventory: Inventory, policy: Policy) -> PoolName | None:
        names = sorted(name for name, pool in policy.pools.items() if pool.owner is OwnerClass.INFERENCE)
        return next((name for name in names if _accepted(pod, inventory, name)), None)


def _accepted(pod: Pod, inventory: Inventory, pool: PoolName) -> bool:
    return any(selects(pod.node_terms, inventory.nodes[uid].labels) for uid in inventory.members.get(pool, ()))


def measured_gpus(
    watch: PoolWatch, heartbeats: dict[int, datetime], now: datetime, freshness: timedelta
) -> float | None:
    """Sum of utilisation over fresh partitions, in GPUs; None when nothing is known."""
    fresh = [
        entry.total
        for partition, entry in sorted(watch.measured.items())
        if entry.nodes > 0 and now - heartbeats.get(partition, now - 2 * freshness) <= freshness
    ]
    return sum(fresh) if fresh else None


def told_gpus(watch: PoolWatch, now: datetime, freshness: timedelta) -> float:
    """What the demand topic said last, 0 when it is silent or stale."""
    if watch.told is None or now - watch.told.at > freshness:
        return 0.0
    return watch.told.gpus


def ready_gpus(inventory: Inventory, pool: PoolName, taken: set[NodeUid]) -> int:
    """GPUs of usable nodes at home; ``taken`` are nodes that are changing hands."""
    ready = inventory.totals(pool).usable
    for uid in taken:
        node = inventory.nodes.get(uid)
        if node is not None and node.pool == pool and node.loan is None and usable(node):
            ready -= node.gpus
    return ready
