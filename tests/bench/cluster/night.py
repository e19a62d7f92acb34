"""The load of one night, the same for every rival: what inference needs at each moment, and who wants to train.

Pure and seeded. A night of 8 hours is pressed into two minutes (`PRESSED`): drains, checkpoints, run times, lending
dwell, minimum run time and cooldown all by that factor. What cannot be pressed as far stays longer than true, for all
alike: utilisation is looked at once a second, deletion times are whole seconds, engine and schedulers need their
tenths. The autoscaler's lag (30 s for metrics and its own period) is pressed by 15, as the look at utilisation is
(15 s to 1 s): each sees the load as long before or after the other as in true time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PRESSED = 240.0
"""Seconds of a true night in one of ours."""
LAG = 2.0
"""Seconds until the autoscaler asks for what the load needs: 30 s, pressed by 15."""
DRAIN = 3
"""Seconds that a trainer takes to leave, all of its grace period: 12 minutes."""
CHECKPOINT = 7.5
"""Seconds of work between two checkpoints: 30 minutes. What a pod does in its grace period saves nothing."""
SPLIT = 10.0
"""Seconds after which a gang of which some had to go and others did not counts as split: of ours, not pressed."""
SIZES = (1, 2, 2, 4, 4, 8)  # nodes of a gang, drawn from
RUNS = (20.0, 60.0)  # seconds of work of a gang: 80 minutes to 4 hours
GUARDED = 4
"""Every so many gangs one is under a PDB that lets nobody go (`minAvailable` = all of it), and does not opt in to lent
nodes: that is what the opt-in is for. Where a cron takes the taint off there is nothing to opt in to."""
CURVE = ((0.0, 0.80), (0.12, 0.20), (0.45, 0.20), (0.49, 0.50), (0.59, 0.50), (0.63, 0.20), (0.76, 0.20), (1.0, 0.85),
         (1.2, 0.85))  # fmt: skip
"""Share of the night to share of the pool's nodes that inference needs: evening, plateau, spike, plateau, morning."""


class Gang(NamedTuple):
    """A training job: so many pods of a whole node, so many seconds of work."""

    name: str
    team: int
    size: int
    run: float
    guarded: bool


@dataclass(frozen=True, slots=True)
class Night:
    """One night of ``length`` seconds over an inference pool and a training pool, in nodes of 8 GPUs."""

    nodes: int = 40
    training: int = 8
    length: float = 122.0
    seed: int = 20261
    teams: int = 4

    def load(self, at: float) -> float:
        """Nodes' worth of load at so many seconds of the night."""
        share = at / self.length
        if share <= CURVE[0][0]:
            return CURVE[0][1] * self.nodes
        for (since, low), (until, high) in itertools.pairwise(CURVE):
            if share <= until:
                return self.nodes * (low + (high - low) * (share - since) / (until - since))
        return CURVE[-1][1] * self.nodes

    def replicas(self, at: float) -> int:
        """What the autoscaler asks for: it looks back by its lag."""
        return math.ceil(self.load(at - LAG) - 1e-9)

    def gangs(self, count: int) -> Sequence[Gang]:
        """The first so many of a backlog without end."""
        draw = random.Random(self.seed)
        largest = max(1, self.nodes // 5)
        return [
            Gang(
                f"train-{number:03}",
                number % self.teams,
                min(draw.choice(SIZES), largest),
                round(draw.uniform(*RUNS), 1),
                number % GUARDED == GUARDED - 1,
            )
            for number in range(count)
        ]
