"""A Lease object as far as leadership needs it, both ways. Nothing is sent here, and no clock is read.

Fields that are not ours (labels, owners) are kept as they came. Times always carry six digits of a second: a Go
MicroTime without a fraction is refused by the server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rebalancer.adapters.decode.objects import mapping, metadata, text, whole

API = "coordination.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Record:
    """Who holds a lease. Two equal records: nobody has renewed in between, whatever else was written."""

    holder: str = ""
    renewed: str = ""
    acquired: str = ""
    transitions: int = 0
    seconds: int | None = None


def record(lease: Mapping[str, Any]) -> Record:
    """What a Lease says; what it lacks is nobody, never and zero."""
    spec = mapping(lease.get("spec"))
    return Record(
        holder=text(spec.get("holderIdentity")),
        renewed=text(spec.get("renewTime")),
        acquired=text(spec.get("acquireTime")),
        transitions=max(0, whole(spec.get("leaseTransitions")) or 0),
        seconds=whole(spec.get("leaseDurationSeconds")),
    )


def stamp(moment: datetime) -> str:
    """A Go MicroTime; `isoformat` drops a fraction that is zero, and the server then answers 400."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def blank(name: str, namespace: str) -> dict[str, Any]:
    """A Lease that is not there yet."""
    meta = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "gpu-rebalancer"}}
    return {"apiVersion": API, "kind": "Lease", "metadata": meta}


def held(lease: Mapping[str, Any], holder: str, epoch: int, duration: float, now: datetime) -> dict[str, Any]:
    """The Lease newly taken by ``holder`` for ``duration`` seconds (others count in whole ones, rounded up)."""
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": math.ceil(duration),
        "acquireTime": stamp(now),
        "renewTime": stamp(now),
        "leaseTransitions": epoch,
    }
    return _with(lease, spec)


def renewed(lease: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The Lease renewed by whoever holds it."""
    return _with(lease, {"renewTime": stamp(now)})


def released(lease: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """The Lease given up: free at once, its count of transitions kept."""
    return _with(lease, {"holderIdentity": "", "renewTime": stamp(now), "leaseDurationSeconds": 1})


def _with(lease: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in metadata(lease).items() if key != "managedFields"}
    return {"apiVersion": API, "kind": "Lease", "metadata": kept, "spec": {**mapping(lease.get("spec")), **spec}}
