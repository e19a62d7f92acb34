"""Is a node busy, idle, or unknown? One judge per node, fed with its samples, over a short window in memory.

Only idleness that every expected GPU proves counts: fresh, in range, below the threshold, from an exporter
that shows signs of life. Everything else is busy or unknown, and unknown is never read as idle. Time is
event time; ``now`` only tells broken clocks and silence. The judge knows nothing of pods, pools or loans,
and never decides what follows from a verdict: the dwell is the engine's.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from rebalancer.core.cards import WHYS, Card
from rebalancer.core.policy import Activities
from rebalancer.core.pulse import sane
from rebalancer.core.telemetry import DeviceReading, NodeSample, Verdict
from rebalancer.core.units import Activity

CAUSES = ("future", "late", "out-of-order", "out-of-range", "too-many")
"""Why a sample or a value was dropped: the keys of :attr:`NodeJudge.dropped`."""
MAX_CARDS = 64
"""More GPUs than any node has; a sample that names more is not about one node."""


class NodeJudge:
    """The short window of one node.

    - A GPU is judged by ``engine_active``, or by ``gpu_util`` when the former has not come for
      ``freshness``. The two contradicting each other (one below ``idle_below``, the other from
      ``busy_from``) make it unknown.
    - Any GPU from ``busy_from`` makes the node busy, even beside unknown ones: busy can only prevent a loan.
      The utilisation sum is None as soon as one GPU is not known.
    - Between ``idle_below`` and ``busy_from`` a GPU keeps its former activity; without one it is busy.
    - ``since`` restarts whenever the activity changes and whenever a GPU it rests on was silent for
      ``freshness``.
    - Samples older than the newest change nothing, except that a busy one disproves idleness up to its time.
      Of two samples of one time the larger values hold, so that order and repetition make no difference.
    - Under MIG every instance is judged. The row of the divided GPU itself can prove it busy, is never
      required, and gives the utilisation where it is reported (else the mean over instances does).
    - ``Verdict.why`` of an unknown node is one of ``silent missing frozen disagreement no-witness``; of a
      busy one ``suspect-hung`` when a GPU ran flat out near idle power for a whole dwell: a flag, never a
      reason to evict.
    - XID codes are a sticky "last code": ``Verdict.unhealthy`` is a level, and telling subscribers only
      when a verdict changes makes it an event on change. :attr:`xid_changes` counts changes.
    """

    __slots__ = (
        "_activities",
        "_activity",
        "_at",
        "_before",
        "_believe",
        "_cards",
        "_expected",
        "_forgotten",
        "_lost",
        "_node",
        "_seen",
        "_signal",
        "_since",
        "_sum",
        "_times",
        "_unhealthy",
        "_until",
        "_why",
        "dropped",
    )

    def __init__(self, activities: Activities, believe_idle_without_witness: bool) -> None:
        self._activities = activities
        self._believe = believe_idle_without_witness
        self._cards: dict[str, Card] = {}
        self._times: deque[datetime] = deque()
        self._node, self._expected = "", 0
        self._at: datetime | None = None
        self._since: datetime | None = None
        self._until: datetime | None = None
        self._activity = Activity.UNKNOWN
        self._before: tuple[Activity, datetime | None, datetime | None] = (Activity.UNKNOWN, None, None)
        self._sum: float | None = None
        self._seen, self._why, self._signal = 0, "silent", ""
        self._unhealthy: tuple[int, ...] = ()
        self.dropped = dict.fromkeys(CAUSES, 0)
        self._forgotten = 0
        self._lost: frozenset[int] = frozenset()

    @property
    def newest(self) -> datetime | None:
        """Event time of the newest sample that was believed."""
        return self._at

    @property
    def xid_changes(self) -> int:
        """How often a GPU's last XID code became another one than 0, since the judge began."""
        return self._forgotten + sum(card.changes for card in self._cards.values())

    def observe(self, sample: NodeSample, now: datetime) -> None:
        """Take in one sample; what cannot be believed is counted in ``dropped`` and changes nothing else."""
        at = sample.at
        if at - now > self._activities.skew:
            self.dropped["future"] += 1
        elif now - at > self._activities.lateness:
            self.dropped["late"] += 1
        elif self._at is not None and at < self._at:
            self.dropped["out-of-order"] += 1
            self._disprove(sample)
        else:
            self._accept(sample)

    def verdict(self, now: datetime, partition: int = 0) -> Verdict:
        """What the node is doing at ``now``. Reading changes nothing, so it may be asked for at any time."""
        if self._at is None or self._since is None:
            return Verdict(self._node, Activity.UNKNOWN, None, 0, now, now, partition, "silent")
        if self._until is not None and now > self._until:
            since = self._since if self._activity is Activity.UNKNOWN else self._until
            return Verdict(self._node, Activity.UNKNOWN, None, 0, since, now, partition, "silent", "", self._unhealthy)
        return Verdict(
            self._node,
            self._activity,
            self._sum,
            self._seen,
            self._since,
            self._at,
            partition,
            self._why,
            self._signal,
            self._unhealthy,
        )

    def _accept(self, sample: NodeSample) -> None:
        self._node, self._expected = sample.node, sample.expected
        at, times = sample.at, self._times
        if at != self._at:
            times.append(at)
            while at - times[0] > self._activities.lateness:
                times.popleft()
        for reading in sample.devices:
            card = self._card(reading)
            if card is not None:
                self.dropped["out-of-range"] += card.take(reading, at)
        self._forget(at)
        self._judge(at)

    def _card(self, reading: DeviceReading) -> Card | None:
        card = self._cards.get(reading.uuid)
        if card is None:
            if len(self._cards) >= MAX_CARDS:
                self.dropped["too-many"] += 1
                return None
            card = self._cards[reading.uuid] = Card()
        return card

    def _forget(self, at: datetime) -> None:
        """Long silent GPUs and instances were replaced or re-divided; the count tells if one is missing."""
        oldest = at - self._activities.lateness
        gone = [uuid for uuid, card in self._cards.items() if card.forget(oldest)]
        for uuid in gone:
            card = self._cards.pop(uuid)
            self._forgotten += card.changes
            self._lost |= card.faults

    def _disprove(self, sample: NodeSample) -> None:
        """A late sample that was busy: what is idle now was not idle then, so its idleness began after it."""
        began, busy_from = self._since, self._activities.busy_from
        if self._activity is not Activity.IDLE or began is None or sample.at < began:
            return
        for reading in sample.devices:
            if (sane(reading.engine_active, 1.0) or 0.0) >= busy_from or (
                (sane(reading.gpu_util, 100.0) or 0.0) >= 100.0 * busy_from
            ):
                self._since = next((time for time in self._times if time > sample.at), self._at)
                return

    def _judge(self, at: datetime) -> None:
        cards = list(self._cards.values())
        for card in cards:
            card.judge(self._activities, at, believe=self._believe)
        whys = {card.why for card in cards}
        seen = sum(card.seen for card in cards)
        missing = "" if 0 < self._expected <= len(cards) else "missing"
        why = next((why for why in WHYS if why in whys), missing)
        busy = any(card.busy for card in cards)
        activity = Activity.BUSY if busy else Activity.UNKNOWN if why else Activity.IDLE
        self._adopt(activity, at, _held(cards, activity))
        self._sum = None if why else sum(card.level or 0.0 for card in cards)
        self._seen = seen
        self._why = why if activity is Activity.UNKNOWN else "suspect-hung" if self._hung(at) else ""
        self._signal = _common({card.signal for card in cards})
        # A card that fell off the bus reports no more: its fault stands until the node has all its GPUs again.
        self._lost = self._lost if missing else frozenset()
        self._unhealthy = tuple(sorted(self._lost.union(*(card.faults for card in cards))))

    def _adopt(self, activity: Activity, at: datetime, held: datetime | None) -> None:
        """``since`` goes on only if the same activity held, without a gap, at the moment before this one."""
        if at != self._at:
            self._at, self._before = at, (self._activity, self._since, self._until)
        former, since, until = self._before
        gap = activity is not Activity.UNKNOWN and until is not None and at > until
        self._since = since if activity is former and since is not None and not gap else at
        self._activity = activity
        self._until = (held or at) + self._activities.freshness

    def _hung(self, at: datetime) -> bool:
        dwell = self._activities.dwell
        return any(card.hung_since is not None and at - card.hung_since >= dwell for card in self._cards.values())


def _held(cards: list[Card], activity: Activity) -> datetime | None:
    """The event time up to which readings carry the activity: the oldest of all, or the newest busy one."""
    if activity is Activity.BUSY:
        return max((card.busy_at for card in cards if card.busy_at is not None), default=None)
    return min((card.oldest for card in cards if card.oldest is not None), default=None)


def _common(signals: set[str]) -> str:
    return next(iter(signals)) if len(signals) == 1 else "mixed" if signals else ""
