"""A gang that waits as a whole, as the search for borrowers sees it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rebalancer.core.facts import Pod
from rebalancer.core.units import GangId


@dataclass(frozen=True, slots=True)
class Borrower:
    """A gang all of whose members wait."""

    gang: GangId
    pods: tuple[Pod, ...]
    shapes: tuple[Pod, ...] = ()
    """One of its pods for each set of placement terms and tolerations; empty where nobody sorted them out."""

    @property
    def gpus(self) -> int:
        """GPUs that all of it needs."""
        return sum(pod.gpus or 0 for pod in self.pods)

    @property
    def leave(self) -> timedelta:
        """How long its slowest member may take to leave: notice and grace."""
        return timedelta(seconds=max(pod.grace_seconds + pod.notice_seconds for pod in self.pods))
