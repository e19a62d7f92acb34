"""Which of the facts that are told are news: duplicates, late and reordered ones are not, nor those of the deleted.

Only uids, versions and moments are kept here; what an object is stays in the inventory.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.facts import Node, Pod
from rebalancer.core.stimuli import Fact

GRAVEYARD = 20_000
"""Deleted uids remembered, so that a late addition does not resurrect (bounded: oldest forgotten first)."""


class News:
    """The event time of the last fact that counted, by uid, and the uids that are gone."""

    def __init__(self) -> None:
        """Start with everything unheard."""
        self._at: dict[str, datetime] = {}
        self._gone: dict[str, None] = {}

    def take(self, fact: Fact, known: Pod | Node | None, at: datetime) -> bool:
        """Whether a fact counts, ``known`` being the pod or node as it is held; if so its time is remembered."""
        if fact.uid in self._gone or self._stale(fact, known, at):
            return False
        self._at[fact.uid] = at
        return True

    def deleted(self, uid: str, buried: bool) -> None:
        """Forget a uid's time; one that is buried never counts again."""
        self._at.pop(uid, None)
        if buried:
            self._gone[uid] = None
            if len(self._gone) > GRAVEYARD:
                del self._gone[next(iter(self._gone))]

    def at(self, uid: str) -> datetime | None:
        """Event time of the last fact that counted for a uid."""
        return self._at.get(uid)

    def _stale(self, fact: Fact, old: Pod | Node | None, at: datetime) -> bool:
        known = self._at.get(fact.uid)
        if known is None:
            return False
        if isinstance(fact, Pod | Node) and old is not None:
            new_version, old_version = fact.resource_version, old.resource_version
            if new_version.isdigit() and old_version.isdigit():
                return int(new_version) <= int(old_version)
            return at < known or fact == old
        return at < known
