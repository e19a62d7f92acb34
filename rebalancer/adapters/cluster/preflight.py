"""Looks once at a cluster, with the rights of whoever asks, and hands what it sees to be judged.

Reads only, access reviews included. What may not be seen is a finding of its own, never taken for "nothing there".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rebalancer.adapters.cluster import lookatnodes, lookatpods
from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.findings import Code, Finding, Severity
from rebalancer.adapters.cluster.listing import NotListed, listed
from rebalancer.adapters.cluster.lookatdescheduler import descheduler
from rebalancer.adapters.cluster.lookatnodes import Seen
from rebalancer.adapters.cluster.permissions import Profile, Right, needed
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, decode_object
from rebalancer.core.facts import Node
from rebalancer.core.policy import Policy
from rebalancer.core.stimuli import Fact

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SIDE_BY_SIDE = 8
"""Access reviews under way at the same time."""
PATIENCE = 10.0
"""Seconds for one of them."""
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "configmaps": "/api/v1/configmaps",
}
Raw = Mapping[str, Any]
ORDER = tuple(Severity)


@dataclass(slots=True)
class Inspection:
    """One look. ``lease`` is the name that the Leases begin with."""

    api: Api
    namespace: str
    lease: str
    policy: Policy
    reading: Reading

    async def run(self, profile: Profile) -> list[Finding]:
        """All findings, the gravest first.

        Raises:
            ConnectionError, TimeoutError: the API server cannot be reached.
        """
        found: list[Finding] = await self._permissions(profile)
        raws: dict[str, list[Raw]] = {}
        for what, path in LISTS.items():
            raws[what], unseen = await self._list(what, path)
            found += unseen
        found += judged(raws, self.policy, self.reading, datetime.now(UTC))
        return sorted(found, key=lambda one: (ORDER.index(one.severity), one.code, one.object))

    async def _list(self, what: str, path: str) -> tuple[list[Raw], list[Finding]]:
        try:
            if what != "configmaps":
                return [raw async for raw in listed(self.api, path)], []
            return [raw async for raw in listed(self.api, path) if any(descheduler(raw))], []
        except NotListed as refused:
            step = f"run it with an identity that may list {what}"
            return [], [Finding(Code.NOT_SEEN, Severity.TELLS, what, f"not looked at: {refused}", step)]

    async def _permissions(self, profile: Profile) -> list[Finding]:
        slots = asyncio.Semaphore(SIDE_BY_SIDE)
        rights = await self._of_kinds_there(needed(profile, self.lease))

        async def ask(right: Right) -> Finding | None:
            async with slots:
                return await self._review(right)

        return [one for one in await asyncio.gather(*map(ask, rights)) if one is not None]

    async def _of_kinds_there(self, rights: tuple[Right, ...]) -> list[Right]:
        """A right on a kind that the server does not have is not missed."""
        groups = {right.group for right in rights if right.optional}
        there = {group for group in groups if (await self._get(f"/apis/{group}")).ok}
        return [right for right in rights if not right.optional or right.group in there]

    async def _get(self, path: str) -> Any:
        return await self.api.request("GET", path, timeout=PATIENCE)

    async def _review(self, right: Right) -> Finding | None:
        for name in right.names or ("",):
            reply = await self.api.request("POST", REVIEWS, body=review(right, self.namespace, name), timeout=PATIENCE)
            if not reply.ok:
                said = f"whether we may {right} is not known: {reply.message}"
                return Finding(Code.NOT_SEEN, Severity.TELLS, str(right), said, "let it make selfsubjectaccessreviews")
            if not reply.body["status"].get("allowed"):
                return _missing(right, self.namespace, name)
        return None


def review(right: Right, namespace: str, name: str) -> dict[str, Any]:
    """The question whether the asker has a right, on an object of this name if it has one."""
    asked = {
        "group": right.group, "resource": right.resource, "subresource": right.subresource, "verb": right.verb,
        "namespace": namespace if right.scope == "namespace" else "", "name": name,
    }  # fmt: skip
    wanted = {key: value for key, value in asked.items() if value or key == "group"}
    return {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }  # fmt: skip


def _missing(right: Right, namespace: str, name: str) -> Finding:
    where = f"in {namespace}" if right.scope == "namespace" else "in all namespaces"
    said = f"we may not {right}{f' {name}' if name else ''} {where}"
    # Deployments may be called otherwise, and without the right to end them a person does so.
    severity = Severity.WARNS if right.optional or right.subresource == "scale" else Severity.STOPS
    step = "apply the roles of the chart, or bind this identity to them"
    return Finding(Code.PERMISSION_MISSING, severity, str(right), said, step)


def judged(raws: Mapping[str, list[Raw]], policy: Policy, reading: Reading, now: datetime) -> list[Finding]:
    """What these objects are worth saying, whatever the order of reading. Pure."""
    seen: list[Seen] = []
    facts: list[Fact] = []
    for raw in (*raws["nodes"], *raws["namespaces"], *raws["budgets"], *raws["pods"]):
        try:
            fact = decode_object(raw, reading)
        except DecodeError:
            continue  # what cannot be identified is no object of a real server
        if isinstance(fact, Node):
            seen.append(Seen(fact, raw))
        facts += [fact] if fact is not None else []
    state = lookatpods.state_of(facts, policy, now)
    return [
        *lookatnodes.labels(seen, policy),
        *lookatnodes.taints(seen, policy),
        *lookatnodes.daemonsets(raws["daemonsets"], policy),
        *(finding for raw in raws["configmaps"] for finding in descheduler(raw)),
        *lookatpods.stuck(state),
        *lookatpods.cannot_borrow(state, now),
    ]
