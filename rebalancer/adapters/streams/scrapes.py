"""Metric rows gathered into scrapes: what one node said at one moment, however many messages it came in.

Rows of a node that lie less than a second apart are one scrape. It is over when the node's own rows are well past it
(its watermark; a node whose clock is ahead must not end another's), or when nothing more came for a while. What comes
for a scrape that is over is late and counted. Everything is bounded; nothing is decoded, judged or sent here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from rebalancer.adapters.decode.dcgm_nodes import NodeEntry
from rebalancer.adapters.decode.dcgm_rows import Row, device_of

GAP = timedelta(seconds=1)
"""Between two scrapes of a node; some bridges cut their stamps to whole seconds."""
LATENESS = timedelta(seconds=5)
"""How far a node's rows must be past a scrape for it to be over."""
QUIET, PATIENCE = 1.0, 10.0
"""Seconds without a further row after which a scrape is over: with all GPUs in it, and with GPUs missing."""
AHEAD, AGE = timedelta(seconds=60), timedelta(hours=1)
"""How far a row's time may lie before or behind ours."""
NODES, ROWS, NODE_ROWS = 20_000, 500_000, 20_000
"""Most nodes, rows, and rows of one node that are held at once."""
FORGET = 3_600.0
"""Seconds of silence after which a node is forgotten."""

Place: TypeAlias = tuple[Hashable, int]
"""Partition and offset from which a row came."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """The rows of one node and scrape, in order of their time; ``at`` is that of the newest."""

    node: NodeEntry
    at: datetime
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    at: datetime
    row: Row
    place: Place


@dataclass(slots=True)
class _Pile:
    """Rows of one node that are not handed on yet. ``over`` is the newest moment handed on."""

    node: NodeEntry
    touched: float
    rows: list[_Held] = field(default_factory=list)
    newest: datetime | None = None
    over: datetime | None = None

    def groups(self) -> Iterator[list[_Held]]:
        """The rows by scrape, whatever order they came in."""
        group: list[_Held] = []
        for held in sorted(self.rows, key=lambda held: held.at):
            if group and held.at - group[-1].at >= GAP:
                yield group
                group = []
            group.append(held)
        if group:
            yield group

    def settled(self, group: list[_Held], tick: float) -> bool:
        """Whether no row of this scrape is expected any more."""
        if self.newest is not None and self.newest - group[-1].at >= LATENESS:
            return True
        gpus = {device_of(held.row.labels) for held in group}
        return tick - self.touched >= (QUIET if len(gpus) >= self.node.expected else PATIENCE)


class Scrapes:
    """Rows of one cluster between their messages and their samples. ``tick`` is a monotonic clock in seconds."""

    def __init__(self) -> None:
        self.rows = 0
        self._piles: dict[str, _Pile] = {}

    def add(self, row: Row, node: NodeEntry, place: Place, now: datetime, tick: float) -> str:
        """Hold a row that has a time; the answer says why it was not taken, "" if it was."""
        at = row.at or now
        if at > now + AHEAD:
            return "future"
        if at < now - AGE:
            return "old"
        pile = self._piles.get(node.uid)
        if pile is not None and pile.over is not None and at < pile.over + GAP:
            return "late"
        if self.rows >= ROWS or (len(self._piles) >= NODES if pile is None else len(pile.rows) >= NODE_ROWS):
            return "crowded"
        if pile is None:
            pile = self._piles[node.uid] = _Pile(node, tick)
        pile.node, pile.touched = node, tick
        pile.rows.append(_Held(at, row, place))
        pile.newest = at if pile.newest is None else max(pile.newest, at)
        self.rows += 1
        return ""

    def due(self, tick: float) -> list[Scrape]:
        """Hand on every scrape that is over, by node and time; a scrape waits for the one before it."""
        found: list[Scrape] = []
        for uid, pile in sorted(self._piles.items()):
            found += self._hand_on(pile, tick)
            if not pile.rows and tick - pile.touched > FORGET:
                del self._piles[uid]
        return found

    def oldest(self) -> dict[Hashable, int]:
        """The first offset of each partition whose rows are still held: up to there only may be committed."""
        found: dict[Hashable, int] = {}
        for pile in self._piles.values():
            for held in pile.rows:
                partition, offset = held.place
                found[partition] = min(offset, found.get(partition, offset))
        return found

    def _hand_on(self, pile: _Pile, tick: float) -> Iterator[Scrape]:
        kept: list[_Held] = []
        for group in pile.groups():
            if kept or not pile.settled(group, tick):
                kept += group
                continue
            pile.over = group[-1].at
            yield Scrape(pile.node, pile.over, tuple(held.row for held in group))
        self.rows -= len(pile.rows) - len(kept)
        pile.rows = kept
