"""Which objects there are and which died lately, by uid alone: what a late or repeated word about them is worth.

A uid never comes back, so what is buried stays dead whatever still arrives about it. Versions of one resource are
ordered integers (KEP-5504; every API server has numbered them so before it was a promise); where they are not, nothing
is concluded from them. Only uids and versions are held, never objects, and all of it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

GRAVES = 50_000
"""Most uids that are remembered as dead: a bound on memory."""
REST = 3_600.0
"""Seconds for which a uid is remembered: longer than any list or watch that could still name it (LIST_TIMEOUT and
WATCH_SECONDS of the reflector)."""


class Graveyard:
    """Uids deleted lately; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._died: dict[str, float] = {}

    def bury(self, uid: str, tick: float) -> None:
        """It died at ``tick`` (monotonic seconds)."""
        self._died.setdefault(uid, tick)
        while self._died:
            oldest = next(iter(self._died))
            if len(self._died) <= GRAVES and tick - self._died[oldest] <= REST:
                return
            del self._died[oldest]

    def dead(self, uid: str) -> bool:
        """Whether it is known to be gone."""
        return uid in self._died

    def __len__(self) -> int:
        return len(self._died)


class Roll:
    """The objects of one resource that were told, each with the newest version seen."""

    def __init__(self) -> None:
        self._versions: dict[str, int | None] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def news(self, uid: str, version: str) -> bool:
        """Whether this version of an object was not overtaken; it is remembered if so."""
        number = _number(version)
        known = self._versions.get(uid)
        if number is not None and known is not None and number < known:
            return False
        self._versions[uid] = number
        return True

    def gone(self, uid: str) -> None:
        """It no longer exists."""
        self._versions.pop(uid, None)

    def listed(self, uids: Iterable[str], version: str) -> list[str]:
        """A full list as of ``version`` has only these: those that were known, are not in it and are not newer than it.

        What a watch showed after the list was made is newer, and stays.
        """
        present, upto = set(uids), _number(version)
        vanished = [uid for uid, known in self._versions.items() if uid not in present and _upto(known, upto)]
        for uid in vanished:
            del self._versions[uid]
        return vanished


def _number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdecimal() else None


def newer(version: str, than: str) -> bool:
    """Whether a version is certainly newer than another of the same resource."""
    number, other = _number(version), _number(than)
    return number is not None and other is not None and number > other


def _upto(known: int | None, upto: int | None) -> bool:
    """Not comparable: the marks around the list say what is gone, nothing is concluded here."""
    return known is not None and upto is not None and known <= upto
