"""One process that sees and decides, and two that act, of which one stands by: so that the acting one may be stopped.

Who acts is read from the processes' own metrics. What each of them is, and what is done to them, is the story's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cluster.product import Replica
from tests.cluster.stage import Stage

BRAIN = "collect,telemetry,decide"
LEADS = re.compile(r'^gpu_rebalancer_leader\{role="act"\} 1\.0$', re.MULTILINE)
ACTORS = ("one-acts", "two-acts")


class Standby:
    """The processes of one installation whose act role has a warm standby."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.actors: dict[str, Replica] = {}

    def begin(
        self,
        names: Sequence[str] = ACTORS,
        *,
        lease: Mapping[str, Any] | None = None,
        who: Mapping[str, Path] | None = None,
    ) -> None:
        """Start the brain unless it runs, and actors with these names; ready when this returns.

        Args:
            names: of the processes that act.
            lease: their Leases' settings, the product's if not said.
            who: kubeconfigs of those that have an identity of their own.
        """
        product, usual = self._stage.product, self._stage.product.place
        if "brain" not in product.replicas:
            product.start("brain", BRAIN, wait=False)
        for name in names:
            at = (who or {}).get(name, usual.kubeconfig)
            product.place = replace(usual, kubeconfig=at, lease=usual.lease if lease is None else lease)
            self.actors[name] = product.start(name, "act", wait=False)
        product.place = usual
        for replica in product.replicas.values():
            if replica.part.runs:
                replica.await_ready()

    def acting(self) -> Replica:
        """The one that leads, once one does."""
        found = self._stage.await_("somebody to act", self._leader)
        assert found is not None
        return found

    def _leader(self) -> Replica | None:
        running = [one for one in self.actors.values() if one.part.runs]
        return next((one for one in running if LEADS.search(one.page("/metrics"))), None)

    def other(self, than: Replica) -> Replica:
        """The one beside it."""
        return next(one for one in self.actors.values() if one is not than)
