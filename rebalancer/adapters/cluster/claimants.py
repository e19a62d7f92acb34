"""Resource claims as they stand, and which pods rest on them: when a claim changes, its pods are read again.

Pods with claims are few and claims are small; only names and counts are held. Nothing is asked of the server here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rebalancer.adapters.decode.claims import Claim, decode_claim, has_claims
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.objects import items, mapping, metadata, text

Name = tuple[str, str]
"""Namespace and name."""


class Claimants:
    """``claims`` is what pods are decoded by; it is changed in place."""

    def __init__(self) -> None:
        self.claims: dict[Name, Claim] = {}
        self._pods: dict[str, tuple[Name, frozenset[Name]]] = {}
        """Pods with claims by uid: their own name, and those of their claims."""

    def pod(self, uid: str, raw: Mapping[str, Any]) -> None:
        """A pod as it now is."""
        if has_claims(raw):
            meta = metadata(raw)
            self._pods[uid] = ((text(meta.get("namespace")), text(meta.get("name"))), _claims_of(raw))
        else:
            self._pods.pop(uid, None)

    def gone(self, uid: str) -> None:
        """A pod no longer exists."""
        self._pods.pop(uid, None)

    def changed(self, kind: str, raw: Mapping[str, Any]) -> list[Name]:
        """A claim was added, changed or deleted; the pods that must be read again."""
        meta = metadata(raw)
        name = (text(meta.get("namespace")), text(meta.get("name")))
        before = self.claims.pop(name, None)
        if kind != "DELETED":
            claim = claim_of(raw)
            if claim is not None:
                self.claims[name] = claim
        if before == self.claims.get(name):
            return []
        return [pod for pod, claims in self._pods.values() if name in claims]

    def listed(self, claims: Iterable[Claim | None]) -> None:
        """These claims there are, and no others."""
        self.claims.clear()
        self.claims.update({(claim.namespace, claim.name): claim for claim in claims if claim is not None})


def claim_of(raw: Mapping[str, Any]) -> Claim | None:
    """A claim that cannot be read is not known, which makes the GPUs of its pods unknown."""
    try:
        return decode_claim(raw)
    except DecodeError:
        return None


def _claims_of(raw: Mapping[str, Any]) -> frozenset[Name]:
    namespace, status = text(metadata(raw).get("namespace")), mapping(raw.get("status"))
    named = [text(item.get("resourceClaimName")) for item in items(mapping(raw.get("spec")).get("resourceClaims"))]
    named += [text(item.get("resourceClaimName")) for item in items(status.get("resourceClaimStatuses"))]
    named.append(text(mapping(status.get("extendedResourceClaimStatus")).get("resourceClaimName")))
    return frozenset((namespace, name) for name in named if name)
