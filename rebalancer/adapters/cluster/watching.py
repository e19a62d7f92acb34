"""Counts of what the eyes go through, by kind of object: a closed set of labels, all there from the start.

Counting never fails and decides nothing.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from rebalancer.adapters.metrics import NAMESPACE

WATCHED = ("node", "pod", "budget", "group", "namespace", "control", "claim")
"""Kinds of facts, and resource claims, which are part of pods."""
SAMPLED = ("exporter",)


class Watching:
    """The counters of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lists = self._counter("lists", "Full lists read from the API server.", registry)
        self.resumed = self._counter("watches_resumed", "Watches that broke and went on where they were.", registry)
        self.lost = self._counter("watches_lost", "Watches that lost their place, so that a list is needed.", registry)
        self.unreadable = self._counter("objects_unreadable", "Objects that could not be read whole.", registry)
        self.refused = self._counter("lists_refused", "Lists that the API server refused.", registry)
        self.heard = Gauge(
            f"{NAMESPACE}_watch_heard_timestamp_seconds",
            "When the API server last said something on a watch. Labeled by kind.",
            ("kind",),
            registry=registry,
        )
        for kind in (*WATCHED, *SAMPLED):
            for counter in (self.lists, self.resumed, self.lost, self.unreadable, self.refused):
                counter.labels(kind)

    def hear(self, kind: str) -> None:
        """The API server said something about this kind now."""
        self.heard.labels(kind).set(time.time())

    @staticmethod
    def _counter(name: str, text: str, registry: CollectorRegistry) -> Counter:
        return Counter(f"{NAMESPACE}_{name}", f"{text} Labeled by kind.", ("kind",), registry=registry)
