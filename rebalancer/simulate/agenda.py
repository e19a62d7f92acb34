"""Simulated time: a heap of things to happen, each at its own second.

Seconds are floats since the scenario's start; ties are settled by the order of asking, so that a run is
repeatable. Nothing here knows what the things are, and nothing reads a real clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

Happening: TypeAlias = Callable[[float], None]


class Agenda:
    """What is to happen, and the present second."""

    def __init__(self, start: datetime, begin: float = 0.0) -> None:
        self.start = start.astimezone(UTC)
        self.now = begin
        self._heap: list[tuple[float, int, Happening]] = []
        self._asked = 0

    def at(self, moment: float, happening: Happening) -> None:
        """Let ``happening`` take place at ``moment`` (not before now)."""
        self._asked += 1
        heapq.heappush(self._heap, (max(moment, self.now), self._asked, happening))

    def run_to(self, end: float) -> None:
        """Let everything up to and including ``end`` take place, in order of time."""
        while self._heap and self._heap[0][0] <= end:
            moment, _, happening = heapq.heappop(self._heap)
            self.now = max(self.now, moment)
            happening(self.now)
        self.now = end

    def clock(self, moment: float) -> datetime:
        """The aware UTC time of a second."""
        return self.start + timedelta(seconds=moment)
