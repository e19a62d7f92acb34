"""Dynamic resource allocation: how many GPUs a ResourceClaim stands for, and who is charged for it.

A claim shared by several pods is one set of devices with several holders. It is charged to the first holder
that still stands in ``reservedFor``, so the sum over pods is right; when that holder goes, the claim changes
and its next holder is decoded anew. A claim that is not known makes the count unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rebalancer.adapters.decode.objects import items, mapping, metadata, required, text, whole
from rebalancer.core.units import PodUid

STAGE = "claim"
GPU_DRIVERS = frozenset({"gpu.nvidia.com", "mig.nvidia.com"})
"""Drivers and device classes whose devices are GPUs or parts of them (k8s-dra-driver-gpu)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim. ``gpus`` None: it asks for all that fit, or cannot be read, and nothing is allocated yet."""

    uid: str
    namespace: str
    name: str
    gpus: int | None
    holders: tuple[PodUid, ...] = ()


Claims: TypeAlias = Mapping[tuple[str, str], Claim]
"""Known claims by (namespace, name)."""


def decode_claim(raw: Mapping[str, Any]) -> Claim:
    """A claim from a ResourceClaim object of any served version.

    Raises:
        DecodeError: it has no name, namespace or uid.
    """
    meta, status = metadata(raw), mapping(raw.get("status"))
    allocated = mapping(mapping(status.get("allocation")).get("devices")).get("results")
    holders = [text(item.get("uid")) for item in items(status.get("reservedFor")) if item.get("resource") == "pods"]
    return Claim(
        uid=required(meta.get("uid"), STAGE, "uid"),
        namespace=required(meta.get("namespace"), STAGE, "namespace"),
        name=required(meta.get("name"), STAGE, "name"),
        gpus=_allocated(allocated) if isinstance(allocated, list) else _requested(raw),
        holders=tuple(holder for holder in holders if holder),
    )


def _allocated(results: list[Any]) -> int:
    """Distinct devices: several requests may be served by one device."""
    found = {
        (text(item.get("pool")), text(item.get("device")))
        for item in items(results)
        if text(item.get("driver")) in GPU_DRIVERS and item.get("adminAccess") is not True
    }
    return len(found)


def _requested(raw: Mapping[str, Any]) -> int | None:
    total = 0
    for request in items(mapping(mapping(raw.get("spec")).get("devices")).get("requests")):
        exactly = mapping(request.get("exactly")) or request
        if request.get("firstAvailable") is not None:
            return None
        if text(exactly.get("deviceClassName")) not in GPU_DRIVERS or exactly.get("adminAccess") is True:
            continue
        if exactly.get("allocationMode") == "All":
            return None
        amount = whole(exactly.get("count", 1))
        if amount is None:
            return None
        total += amount
    return total


def claimed_gpus(pod: Mapping[str, Any], uid: PodUid, claims: Claims) -> int | None:
    """GPUs that a pod is charged for by its claims; 0 without claims, None when one of them is not known."""
    spec, status = mapping(pod.get("spec")), mapping(pod.get("status"))
    namespace = text(metadata(pod).get("namespace"))
    made = {text(item.get("name")): item for item in items(status.get("resourceClaimStatuses"))}
    total = 0
    for entry in items(spec.get("resourceClaims")):
        name = text(entry.get("resourceClaimName"))
        name = name or text(made.get(text(entry.get("name")), {}).get("resourceClaimName"))
        claim = claims.get((namespace, name))
        if claim is None or claim.gpus is None:
            return None
        total += claim.gpus if not claim.holders or claim.holders[0] == uid else 0
    return total


def has_claims(pod: Mapping[str, Any]) -> bool:
    """Whether a pod uses claims, its own or those made for extended resources."""
    made = mapping(mapping(pod.get("status")).get("extendedResourceClaimStatus"))
    return bool(items(mapping(pod.get("spec")).get("resourceClaims"))) or bool(made)
