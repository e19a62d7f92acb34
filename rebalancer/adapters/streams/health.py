"""Whether a role is ready, how far it is behind and when it last got on: state for probes and metrics.

Readiness is about being up to date, never about the broker alone: a role that waits for a partition is ready, one
that loads is not. Nothing is started or stopped from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rebalancer.adapters.metrics import Metrics

STUCK_AFTER = 60.0
"""Seconds without a finished round after which a role is not alive."""


@dataclass(slots=True)
class Health:
    """One role's state; every change is mirrored into the metrics."""

    role: str
    metrics: Metrics
    loading: set[int] = field(default_factory=set)
    behind: bool = False
    lag_seconds: float = 0.0
    standby: bool = False
    """Whether another process does the role's work and this one waits to take over: ready, and told apart."""
    progressed: float = field(default_factory=time.monotonic)
    ended: Callable[[], bool] = lambda: False
    """Whether the stream library under the role has given up, though the role still ticks."""

    @property
    def ready(self) -> bool:
        """Whether everything assigned is loaded and not behind."""
        return not self.loading and not self.behind

    @property
    def alive(self) -> bool:
        """Whether the role finished a round of work lately, and what it rests on still runs."""
        return not self.ended() and time.monotonic() - self.progressed < STUCK_AFTER

    def began(self, partition: int) -> None:
        """A partition is being loaded."""
        self.loading.add(partition)
        self._tell()

    def loaded(self, partition: int) -> None:
        """A partition is loaded, or is no longer ours."""
        self.loading.discard(partition)
        self._tell()

    def lagged(self, lag_records: int, lag_seconds: float, *, behind: bool) -> None:
        """How far the role is behind."""
        self.behind, self.lag_seconds = behind, lag_seconds
        self.metrics.lag.labels(self.role).set(max(0, lag_records))
        self.metrics.behind.labels(self.role).set(lag_seconds)
        self._tell()

    def round(self, records: int) -> None:
        """A round of work is finished."""
        self.progressed = time.monotonic()
        self.metrics.records.labels(self.role).inc(records)
        self.metrics.progress.labels(self.role).set_to_current_time()
        self._tell()  # roles that load nothing have no other occasion

    def state(self) -> Mapping[str, object]:
        """For the readiness page."""
        return {
            "role": self.role,
            "ready": self.ready,
            "alive": self.alive,
            "standby": self.standby,
            "loading": sorted(self.loading),
            "behind": self.behind,
            "lag_seconds": round(self.lag_seconds, 3),
        }

    def _tell(self) -> None:
        self.metrics.ready.labels(self.role).set(self.ready)
