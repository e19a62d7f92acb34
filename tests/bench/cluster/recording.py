"""The lives of all pods of a night, from a watch of our own with all rights: nobody's word for it is taken.

Moments are this process's monotonic seconds at which an event was seen, milliseconds after it happened.
"""

from __future__ import annotations

import time
from typing import Any

from tests.bench.cluster.spans import PodLife
from tests.cluster.watching import Watching
from tests.servers.boundloads import gpus_of
from tests.servers.controlplane import ControlPlane


class Recording(Watching):
    """While its context is open."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.lives_of: dict[str, PodLife] = {}

    def by_app(self) -> dict[tuple[str, str], list[PodLife]]:
        """Every pod that was ever seen, by namespace and workload."""
        found: dict[tuple[str, str], list[PodLife]] = {}
        for life in list(self.lives_of.values()):
            if life.gone is None:
                life.gone = self.pods[life.uid].gone  # a list may have shown it as gone, without an event
            found.setdefault((life.namespace, life.app), []).append(life)
        return found

    def _pod(self, raw: dict[str, Any], *, gone: bool) -> None:
        super()._pod(raw, gone=gone)
        now, meta = time.monotonic(), raw["metadata"]
        known, labels = self.pods[meta["uid"]], meta.get("labels") or {}
        life = self.lives_of.get(meta["uid"])
        if life is None:
            serves = labels.get("workload-type") == "inference"
            life = PodLife(meta["uid"], meta["namespace"], labels.get("app", ""), serves, gpus_of(raw), now)
            self.lives_of[meta["uid"]] = life
        life.node, life.bound, life.told, life.gone = known.node, known.bound, known.told, known.gone
        if known.phase == "Running" and life.ran is None:
            life.ran = now
