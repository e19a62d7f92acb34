"""The way from the store to whoever watches: whole and in order, unless a fault says otherwise.

A watch gap withholds everything; when it ends, all that exists is told anew and all that vanished in between is
told as deleted. Duplicates, late and reordered events are drawn from a generator of its own. The store itself is
never wrong; only what is told of it.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from rebalancer.core.stimuli import FactDeleted, FactKind, FactObserved, kind_of
from rebalancer.simulate.store import KINDS, Store

Told: TypeAlias = FactObserved | FactDeleted


class Feed:
    """Hands out what changed since the last call."""

    def __init__(self, seed: int, store: Store) -> None:
        self._store = store
        self._rng = Random(f"{seed}/feed")
        self._known: dict[FactKind, dict[str, None]] = {kind: {} for kind in KINDS}
        self._held: list[tuple[float, Told]] = []
        self._missed = False
        self.gap = False
        self.duplicated = 0.0
        self.late = 0.0
        self.late_seconds = 0.0
        self.reordered = False
        self._snapshot_due = False

    def begin(self) -> None:
        """Nobody has been told anything yet: the first drain, or a full list before it, tells all there is."""
        self._store.feed.clear()
        self._missed = self._snapshot_due = True

    def take_snapshot_due(self) -> bool:
        """Whether full lists should be told now (at first, and after a gap); asking settles it."""
        due, self._snapshot_due = self._snapshot_due, False
        if due and not self.gap:
            self._missed = False
            self._store.feed.clear()
            for kind in KINDS:
                self._known[kind] = dict.fromkeys(fact.uid for fact in self._store.listing(kind))
        return due

    def drain(self, t: float) -> list[Told]:
        """What is told at ``t``."""
        fresh, self._store.feed = self._store.feed, []
        if self.gap:
            self._missed = self._missed or bool(fresh)
            return []
        if self._missed:
            self._missed = False
            self._snapshot_due = True
            fresh = self._everything(t)
        for told in fresh:
            self._remember(told)
        return self._spoil(fresh, t)

    def _everything(self, t: float) -> list[Told]:
        at = self._store.agenda.clock(t)
        found: list[Told] = []
        for kind in KINDS:
            listed = self._store.listing(kind)
            found += [FactObserved(fact, at) for fact in listed]
            here = {fact.uid for fact in listed}
            found += [FactDeleted(kind, uid, at) for uid in self._known[kind] if uid not in here]
        return found

    def _remember(self, told: Told) -> None:
        if isinstance(told, FactDeleted):
            self._known[told.of].pop(told.uid, None)
        else:
            self._known[kind_of(told.fact)][told.fact.uid] = None

    def _spoil(self, fresh: list[Told], t: float) -> list[Told]:
        out = [told for due, told in self._held if due <= t]
        self._held = [(due, told) for due, told in self._held if due > t]
        for told in fresh:
            if self.late and self._rng.random() < self.late:
                self._held.append((t + self.late_seconds, told))
                continue
            out.append(told)
            if self.duplicated and self._rng.random() < self.duplicated:
                out.append(told)
        if self.reordered:
            self._rng.shuffle(out)
        return out
