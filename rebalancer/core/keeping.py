"""How long what is over is kept: closed loans and cleared alerts, in the order in which their time comes.

Each waits in one queue, so that the passage of time costs what is due and not what is kept; a pass does a bounded
share and the next one goes on. Nothing is decided here, and what came back to life meanwhile is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from rebalancer.core.units import LoanId

What: TypeAlias = Literal["loan-memory", "loan", "alert"]
IN_MEMORY = timedelta(days=2)
"""A closed loan may still be asked about for so long; after that only the topic has it."""
ON_TOPICS = timedelta(days=30)
"""After so long its key is deleted from the topic (DESIGN 4)."""
A_PASS = 200
"""Entries handled per passage of time."""


class Entry(NamedTuple):
    """What is due after ``at``; ``over`` is the moment at which it closed or was cleared."""

    at: datetime
    what: What
    key: str
    over: datetime


class Keeping:
    """The queue. ``over``: the last moment at which each kept key closed or was cleared; older entries are void."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._queue: list[Entry] = []
        self._loans: dict[LoanId, datetime] = {}
        self._alerts: dict[str, datetime] = {}

    def loan_closed(self, loan: LoanId, at: datetime) -> None:
        """A loan is over; told twice, it waits once."""
        if self._loans.get(loan) != at:
            self._loans[loan] = at
            heapq.heappush(self._queue, Entry(at + IN_MEMORY, "loan-memory", loan, at))
            heapq.heappush(self._queue, Entry(at + ON_TOPICS, "loan", loan, at))

    def loan_opened(self, loan: LoanId) -> None:
        """A loan is open, perhaps once more."""
        self._loans.pop(loan, None)

    def alert_cleared(self, alert: str, at: datetime) -> None:
        """An alert is over."""
        if self._alerts.get(alert) != at:
            self._alerts[alert] = at
            heapq.heappush(self._queue, Entry(at + ON_TOPICS, "alert", alert, at))

    def alert_raised(self, alert: str) -> None:
        """An alert stands, perhaps once more."""
        self._alerts.pop(alert, None)

    def due(self, now: datetime) -> Iterator[Entry]:
        """What is to be forgotten now, oldest first; each is told once."""
        for _ in range(A_PASS):
            if not self._queue or self._queue[0].at >= now:
                return
            entry = heapq.heappop(self._queue)
            known = self._alerts if entry.what == "alert" else self._loans
            if known.get(entry.key) != entry.over:
                continue
            if entry.what != "loan-memory":
                del known[entry.key]
            yield entry
