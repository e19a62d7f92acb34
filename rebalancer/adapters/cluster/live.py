"""What act looks at when nobody tells it anything: whole lists, read from the API server at that moment.

For a silent Kafka, for the fencing number, and for what a crash left behind. Nothing is watched, kept or decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import structlog

from rebalancer.adapters.cluster import discovery
from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.listing import NotListed, listed
from rebalancer.adapters.cluster.sight import Sight
from rebalancer.adapters.decode.control import CONTROL_NAME
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_from_json
from rebalancer.adapters.decode.objects import annotations_of
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved

log = structlog.get_logger(__name__)


async def gang_objects(api: Api) -> AsyncIterator[Mapping[str, Any]]:
    """All objects that define gangs, of the kinds that the server has now.

    A kind that we may not list, or that went since it was looked for, is told and left out: what it says is unknown,
    and that keeps no node from coming home.

    Raises:
        NotListed: the server cannot list one of them just now.
        ConnectionError, TimeoutError: it cannot be reached.
    """
    found = await discovery.optional(api)
    for path in (discovery.JOBS.path, *(one.path for one in found if one.of == "group")):
        try:
            async for raw in listed(api, path):
                yield raw
        except NotListed as refused:
            if refused.passing:
                raise
            log.warning("a kind of gangs is not seen", why=str(refused))


class LiveEyes:
    """Eyes that only ever list what a return needs, opt-outs included. Implements ``Eyes``."""

    def __init__(self, api: Api, namespace: str, sight: Sight) -> None:
        self.sight = sight
        self._api = api
        self._lists: dict[FactKind, tuple[str, dict[str, str]]] = {
            "node": ("/api/v1/nodes", {}),
            "pod": ("/api/v1/pods", {}),
            "budget": ("/apis/policy/v1/poddisruptionbudgets", {}),
            "namespace": ("/api/v1/namespaces", {}),
            "control": (
                f"/api/v1/namespaces/{namespace}/configmaps",
                {"fieldSelector": f"metadata.name={CONTROL_NAME}"},
            ),
        }

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """A full live list of one kind; only those that a return needs.

        Raises:
            NotListed: the server refused.
            ConnectionError, TimeoutError: it cannot be reached.
        """
        seen = [self.sight.fact(of, dict(raw)) async for raw in self._raw(of)]
        return [fact for fact in seen if fact is not None]

    def _raw(self, of: FactKind) -> AsyncIterator[Mapping[str, Any]]:
        if of == "group":
            return gang_objects(self._api)
        path, query = self._lists[of]
        return listed(self._api, path, **query)

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """Nothing: these eyes do not watch."""
        return ()


async def least_epoch(api: Api) -> int:
    """An epoch above every one that any node's mark carries: after a deleted Lease counting must not begin anew.

    Raises:
        ConnectionError, TimeoutError: nodes cannot be listed.
    """
    most = 0
    try:
        async for raw in listed(api, "/api/v1/nodes"):
            said = annotations_of(raw).get(LOAN)
            most = max(most, _epoch(said)) if said is not None else most
    except NotListed as refused:
        raise ConnectionError(str(refused)) from refused
    return most + 1


def _epoch(annotation: str) -> int:
    """Zero for a mark that cannot be read: it fences nobody."""
    try:
        return loan_mark_from_json(annotation).epoch
    except DecodeError:
        return 0
