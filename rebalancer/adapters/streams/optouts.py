"""What act sees without Kafka, with everybody's opt-out on the pods: their namespace's and their gang object's as well.

Only where the policy spares who opted out, and only when pods are asked for, which is when something is to come home.
Nothing is decided here; an opt-out that cannot be listed is an error of that look, which is taken again.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from rebalancer.core.facts import Pod
from rebalancer.core.optout import marked
from rebalancer.core.policy import Policy
from rebalancer.core.ports import Eyes
from rebalancer.core.protocol.fallback import stayers
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved

log = structlog.get_logger(__name__)


class Respectful:
    """Eyes of act while it is alone. Implements ``Eyes``."""

    def __init__(self, eyes: Eyes, policy: Policy) -> None:
        self.policy = policy
        self._eyes = eyes
        self._kept: frozenset[str] = frozenset()

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind; raises what the eyes raise."""
        seen = await self._eyes.snapshot(of)
        if of != "pod" or self.policy.pace.recall_while_paused:
            return seen
        others = [*await self._eyes.snapshot("namespace"), *await self._eyes.snapshot("group")]
        pods = marked((one for one in seen if isinstance(one, Pod)), others)
        self._say(frozenset(stayers(pods, self.policy)))
        return pods

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """What the eyes say."""
        return await self._eyes.changes()

    def _say(self, kept: frozenset[str]) -> None:
        """Once, not at every look: a node that stays for an opt-out is nothing that passes by itself."""
        if kept - self._kept:
            log.warning("nodes stay while Kafka is silent: gangs there opted out", nodes=sorted(kept))
        self._kept = kept
