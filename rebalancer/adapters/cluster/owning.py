"""Where the objects that own gangs are found: a reference as the core spells it, into a path of the API.

Telling only: nothing that is done depends on an owner being found. Kinds are not looked up at the server; whoever
follows the naming convention of Kubernetes is reached, and who does not gets no annotation.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.adapters.cluster.permissions import ANNOTATED
from rebalancer.adapters.decode.owners import Owner, parse_reference

OWN_ENDINGS = {"s": "es", "x": "es", "y": "ies"}
"""Endings of kinds whose plural is not the kind and an s."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A top owner and where it lies."""

    owner: Owner
    namespace: str

    @property
    def path(self) -> str:
        """Its path in the API."""
        group, version = self._group, self.owner.api_version.rpartition("/")[2]
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        return f"{root}/namespaces/{self.namespace}/{plural(self.owner.kind)}/{self.owner.name}"

    @property
    def annotated(self) -> bool:
        """Whether it is of a kind that we may annotate; on any other nothing is written."""
        return plural(self.owner.kind) in ANNOTATED.get(self._group, ())

    @property
    def _group(self) -> str:
        return self.owner.api_version.rpartition("/")[0]


def owned(reference: str, namespace: str) -> Owned | None:
    """The owner that ``Kind.version.group/name`` spells; None when it spells none."""
    owner = parse_reference(reference)
    return Owned(owner, namespace) if owner.kind and namespace else None


def plural(kind: str) -> str:
    """The resource name of a kind by the convention that code generators follow."""
    low = kind.lower()
    ending = OWN_ENDINGS.get(low[-1:])
    if ending is None or low[-2:] in ("ay", "ey", "oy"):
        return low + "s"
    return low.removesuffix("y") + ending
