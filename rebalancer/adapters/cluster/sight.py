"""Raw objects into facts, also where something in them cannot be read: what is in doubt is told as unknown, loudly.

A pod that cannot be read still occupies its node, with a number of GPUs that nobody knows. Brakes that cannot be read
whole are kept where they can, and pause all lending. Every other object that cannot be read is counted and left out.
Nothing is asked of the server here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.control import control_from_configmap, control_to_configmap
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, decode_object
from rebalancer.adapters.decode.objects import mapping, metadata, text, texts
from rebalancer.core.facts import Control
from rebalancer.core.stimuli import Fact, FactKind

log = structlog.get_logger(__name__)
IDENTITY = ("uid", "name", "namespace", "resourceVersion", "creationTimestamp", "deletionTimestamp")


class Sight:
    """Reads objects as the policy's label map has them."""

    def __init__(self, reading: Reading, watching: Watching) -> None:
        self.reading = reading
        self._watching = watching

    def fact(self, of: FactKind, raw: Mapping[str, Any]) -> Fact | None:
        """What an object is; None when no decision needs it or nothing can be said about it."""
        try:
            return decode_object(raw, self.reading)
        except Exception as error:  # noqa: BLE001 - one object that no decoder foresaw must not blind us to the rest
            return self._doubtful(of, raw, error)

    def _doubtful(self, of: FactKind, raw: Mapping[str, Any], error: Exception) -> Fact | None:
        self._watching.unreadable.labels(of).inc()
        meta = metadata(raw)
        named = f"{text(meta.get('namespace'))}/{text(meta.get('name'))}"
        log.error("object cannot be read", kind=of, object=named, error=str(error) or repr(error))
        if of == "pod":
            return self._occupant(raw)
        return salvaged(raw, str(error)) if of == "control" else None

    def _occupant(self, raw: Mapping[str, Any]) -> Fact | None:
        """The pod without anything that might be what could not be read: without containers its GPUs are unknown."""
        meta, spec, status = metadata(raw), mapping(raw.get("spec")), mapping(raw.get("status"))
        bare = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {key: text(meta.get(key)) for key in IDENTITY if text(meta.get(key))},
            "spec": {"nodeName": text(spec.get("nodeName"))},
            "status": {"phase": text(status.get("phase"))},
        }
        try:
            return decode_object(bare, self.reading)
        except DecodeError:
            return None


def salvaged(raw: Mapping[str, Any], why: str) -> Control:
    """Brakes of which a part cannot be read: the readable part holds, and nothing is lent until it is put right."""
    data = texts(raw.get("data"))
    held: dict[str, str] = {}
    for key in control_to_configmap(Control()):
        try:
            control_from_configmap({"data": {key: data.get(key, "")}})
        except DecodeError:
            continue
        held[key] = data.get(key, "")
    return replace(control_from_configmap({"data": held}), paused=True, why=f"the control object is unreadable: {why}")
