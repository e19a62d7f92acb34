"""The last sweep of a retirement: what of ours still lies on nodes, pods and owners is taken off, and looked for anew.

Only with act's Lease in hand and no loan out. Taints and loan annotations go by the hands' guarded patch; what cannot
be put right without guessing stays and is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rebalancer.adapters.cluster import traces
from rebalancer.adapters.cluster.asking import Asked, NotAnswered
from rebalancer.adapters.cluster.connection import MERGE, Api
from rebalancer.adapters.cluster.findings import some
from rebalancer.adapters.cluster.lease import Held
from rebalancer.adapters.cluster.listing import NotListed, listed
from rebalancer.adapters.cluster.permissions import ANNOTATED
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.nodes import decode_node
from rebalancer.adapters.decode.objects import mapping, metadata, text
from rebalancer.core.facts import Node
from rebalancer.core.policy import Policy
from rebalancer.core.ports import Hands
from rebalancer.core.protocol.calls import AnswerKind, ListPods
from rebalancer.core.protocol.homeward import holds
from rebalancer.core.units import ON_LOAN

ROUNDS = 3
"""Sweeps: what changed under our hands is tried anew, as often as a guarded patch is elsewhere."""
LOOK = 10.0
"""Seconds to ask which kinds a server has."""
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sweeper:
    """One sweep over a cluster."""

    api: Api
    hands: Hands
    held: Held
    policy: Policy
    reading: Reading
    tell: Callable[[str], None]

    async def sweep(self) -> tuple[str, ...]:
        """Take off what can be; the traces that are left after that, each a sentence.

        Raises:
            NotListed: we may not see something. ConnectionError, TimeoutError: the server cannot be reached.
        """
        kinds = await self._owner_kinds()
        left: list[str] = []
        for _ in range(ROUNDS):
            left = [said async for said in self._nodes()]
            left += [said async for said in self._annotated(["/api/v1/pods"], traces.POD_MARKS)]
            left += [said async for said in self._annotated(kinds, traces.OWNER_MARKS)]
            if not left:
                break
        return tuple(left)

    async def _nodes(self) -> AsyncIterator[str]:
        """Put nodes right; yields what was found, since only a round that finds nothing proves that nothing is left."""
        async for raw in listed(self.api, "/api/v1/nodes"):
            there = traces.on_node(raw)
            if not there:
                continue
            node = decode_node(raw, self.reading.known)
            patch = traces.stripped(node, self.policy)
            kept = patch if isinstance(patch, str) else await self._kept(node)
            if isinstance(patch, str) or kept:
                yield f"node {node.name}: {', '.join(there)}; {kept}"
                continue
            answer = await self.hands.perform(patch)
            self.tell(f"node {node.name}: {', '.join(there)} taken off ({answer.kind})")
            yield f"node {node.name}: {', '.join(there)} {answer.message}".strip()

    async def _kept(self, node: Node) -> str:
        """Why a node that no mark tells of may not go back to its owner: others use it, or cannot be looked for."""
        if node.mark is not None or not any(taint.key == ON_LOAN for taint in node.taints):
            return ""
        answer = await self.hands.perform(ListPods(node.name))
        if answer.kind is not AnswerKind.OK:
            return f"who uses it is not known: {answer.message}"
        others = sorted(
            f"{pod.namespace}/{pod.name}" for pod in answer.pods if holds(pod) and pod.owner is not node.owner
        )
        return f"still used by {some(others)}: end these, then run it again" if others else ""

    async def _annotated(self, paths: list[str], marks: tuple[str, ...]) -> AsyncIterator[str]:
        for path in paths:
            async for raw in listed(self.api, path):
                if there := traces.on_other(raw, marks):
                    meta, said = metadata(raw), await self._cleaned(path, raw, marks)
                    who = f"{text(raw.get('kind'))} {text(meta.get('namespace'))}/{text(meta.get('name'))}"
                    yield f"{who}: {', '.join(there)} {said}".strip()

    async def _cleaned(self, path: str, raw: Raw, marks: tuple[str, ...]) -> str:
        """Take annotations off one object; "" or why that failed."""
        meta = metadata(raw)
        root, _, resource = path.rpartition("/")
        at = f"{root}/namespaces/{text(meta.get('namespace'))}/{resource}/{text(meta.get('name'))}"
        within = self.policy.acting.call_timeout.total_seconds()
        try:
            reply = await Asked(self.api, self.held, within).write("PATCH", at, traces.without(raw, marks), MERGE)
        except NotAnswered as failed:
            return failed.answer.message
        return "" if reply.ok else reply.message

    async def _owner_kinds(self) -> list[str]:
        """Paths of the owners that act may have annotated and this server has, in the version it prefers."""
        found: list[str] = []
        for group, resources in ANNOTATED.items():
            reply = await self.api.request("GET", f"/apis/{group}", timeout=LOOK)
            version = text(mapping(mapping(reply.body).get("preferredVersion")).get("version"))
            if reply.ok and version:
                paths = [f"/apis/{group}/{version}/{resource}" for resource in resources]
                found += [path for path in paths if await self._has(path)]
        return found

    async def _has(self, path: str) -> bool:
        """Whether the server knows the kind; a list that we may not have is not one without traces."""
        try:
            async for _ in listed(self.api, path):
                return True
        except NotListed as refused:
            if refused.status == 404:
                return False
            raise
        return True
