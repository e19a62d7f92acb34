"""What foreign streams of objects leave open: which version is newest, what is gone, and which lists are whole.

Uids identify, names never. A list is whole only if we saw all of it from the end of the list before; from a topic of
several partitions, which has no order, an object must be missing from two lists in a row. Nothing is sent here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.core.facts import Node, Pod
from rebalancer.core.stimuli import Fact, FactKind, FactObserved

OBJECTS = 300_000
"""Most objects whose versions, and most objects of one list, that are remembered."""
GRAVES = 100_000
"""Most deleted uids that are remembered."""


class Versions:
    """One cluster's objects: refuses what is older than what was told, and what is gone for good."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._graves: dict[str, None] = {}

    def fresh(self, fact: Fact) -> bool:
        """Whether this says something that was not overtaken; versions of one resource are ordered integers.

        Source: KEP-5504 (Kubernetes 1.35 makes it a promise; every API server has numbered them so before).
        """
        if not isinstance(fact, Node | Pod) or not fact.resource_version.isdecimal():
            return True
        version = int(fact.resource_version)
        if version < self._versions.get(fact.uid, version):
            return False
        self._versions.pop(fact.uid, None)
        self._versions[fact.uid] = version
        if len(self._versions) > OBJECTS:
            del self._versions[next(iter(self._versions))]
        return True

    def dead(self, uid: str) -> bool:
        """Whether it is gone: a uid never comes back."""
        return uid in self._graves

    def bury(self, uid: str) -> None:
        """It is gone."""
        self._versions.pop(uid, None)
        self._graves[uid] = None
        if len(self._graves) > GRAVES:
            del self._graves[next(iter(self._graves))]


@dataclass(slots=True)
class _Run:
    """Objects between two ends of lists. ``whole``: none of them can have escaped us."""

    whole: bool
    seen: dict[str, FactObserved] = field(default_factory=dict)


class Listing:
    """One source's lists of one kind. ``runs``: how many in a row an object must be missing from to be gone."""

    def __init__(self, of: FactKind, runs: int, *, whole: bool) -> None:
        self.of = of
        self._needed = runs
        self._runs = [_Run(whole)]

    def saw(self, observed: FactObserved) -> None:
        """An object exists; where the list is not whole anyway nothing is remembered."""
        run = self._runs[-1]
        if not run.whole:
            return
        run.seen[observed.fact.uid] = observed
        if len(run.seen) > OBJECTS:
            self.broke()

    def gone(self, uid: str) -> None:
        """An object was deleted by its uid."""
        for run in self._runs:
            run.seen.pop(uid, None)

    def broke(self) -> None:
        """Something may have been missed: the list under way cannot be trusted."""
        self._runs[-1] = _Run(whole=False)

    def ended(self) -> list[FactObserved] | None:
        """The list is complete: all objects that there are, or None if it was not seen whole."""
        runs = self._runs[-self._needed :]
        whole = len(runs) == self._needed and all(run.whole for run in runs)
        found = {uid: observed for run in runs for uid, observed in run.seen.items()} if whole else {}
        self._runs = [*self._runs, _Run(whole=True)][-self._needed :]
        return list(found.values()) if whole else None
