"""The hands on a real cluster: each call of the core's protocol as bounded requests, each answer by its kind.

Reads go to the API server itself, never to a cache of a watch. Writes are guarded by what they were decided upon and
are only sent while the lease outlasts their time-out. Nothing is retried, nothing is deleted, nothing ever raises:
what to do about an answer is the core's to say. A request that is under way when its caller is cancelled runs to its
own end, so that whoever releases the lease can wait for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog

from rebalancer.adapters.cluster.asking import Asked, NotAnswered, answered, good
from rebalancer.adapters.cluster.connection import MERGE, Api, Reply
from rebalancer.adapters.cluster.events import Events
from rebalancer.adapters.cluster.lease import Held
from rebalancer.adapters.cluster.owning import owned
from rebalancer.adapters.cluster.patching import (
    eviction,
    node_patch,
    notice_patch,
    recall_patch,
    same_version,
    uid_refused,
)
from rebalancer.adapters.decode.budgets import decode_budget
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.eviction import eviction_answer
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.decode.nodes import decode_node
from rebalancer.adapters.decode.pods import decode_pod
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.facts import Pod
from rebalancer.core.plan import Member
from rebalancer.core.policy import Acting
from rebalancer.core.protocol.calls import (
    Answer,
    AnswerKind,
    Call,
    EvictPod,
    GiveNotice,
    ListPods,
    PatchNode,
    ReadBudgets,
    ReadMembers,
    ReadNode,
)

log = structlog.get_logger(__name__)
T = TypeVar("T")
SIDE_BY_SIDE = 16
"""Requests that one call has under way at the same time: a gang of hundreds must not take all connections."""
VERSIONS = 512
"""Raw nodes kept between a read and the patch that follows from it; a plan touches at most tens."""
TOLD_AS = {
    "read-node": ("get", "node"), "patch-node": ("patch", "node"), "list-pods": ("list", "pod"),
    "read-members": ("get", "pod"), "read-budgets": ("list", "budget"), "give-notice": ("patch", "pod"),
    "evict-pod": ("evict", "pod"),
}  # fmt: skip
"""Verb and kind under which a call is counted; dry runs count as evictions that were asked for."""


class ClusterHands:
    """Performs the calls of one actor while it holds the lease. Implements ``Hands``."""

    def __init__(  # noqa: PLR0917 - made in few places
        self, api: Api, held: Held, acting: Acting, reading: Reading, metrics: Metrics, events: Events | None = None
    ) -> None:
        self._events = events
        self._api, self._held, self._acting, self._reading, self._metrics = api, held, acting, reading, metrics
        self._nodes: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self._under_way: set[asyncio.Task[Answer]] = set()

    def adopt(self, acting: Acting, reading: Reading) -> None:
        """A new policy: further calls follow it."""
        self._acting, self._reading = acting, reading

    async def perform(self, call: Call) -> Answer:
        """Carry out one call within the policy's call time-out. Never raises but for being cancelled."""
        task = asyncio.create_task(self._performed(call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def settled(self) -> None:
        """Wait until nothing is under way any more; each call ends by its own time-out."""
        while self._under_way:
            await asyncio.wait(set(self._under_way))

    async def _performed(self, call: Call) -> Answer:
        began = time.monotonic()
        answer = await self._safely(call)
        self._metrics.called(*TOLD_AS[call.kind], answer.kind.value, time.monotonic() - began)
        return answer

    async def _safely(self, call: Call) -> Answer:
        asked = Asked(self._api, self._held, self._acting.call_timeout.total_seconds())
        try:
            return await self._do(call, asked)
        except NotAnswered as failed:
            return failed.answer
        except DecodeError as unreadable:
            return Answer(AnswerKind.FAILED, message=f"the answer cannot be read: {unreadable}")
        except Exception as error:
            self._metrics.failures.labels("act").inc()
            log.exception("a call broke", call=call.kind)
            return Answer(AnswerKind.FAILED, message=repr(error))

    async def _do(self, call: Call, asked: Asked) -> Answer:
        match call:
            case PatchNode():
                return await self._patch_node(call, asked)
            case GiveNotice():
                return await self._give_notice(call, asked)
            case EvictPod():
                return await self._evict(call, asked)
            case _:
                return await self._look(call, asked)

    async def _look(self, call: ReadNode | ListPods | ReadMembers | ReadBudgets, asked: Asked) -> Answer:
        match call:
            case ReadNode():
                return self._node(await asked.good("GET", f"/api/v1/nodes/{call.node_name}"))
            case ListPods():
                return await self._list_pods(call.node_name, asked)
            case ReadMembers():
                return await self._read_members(call.members, asked)
            case ReadBudgets():
                found = await asked.listed(f"/apis/policy/v1/namespaces/{call.namespace}/poddisruptionbudgets")
                return Answer(AnswerKind.OK, budgets=tuple(decode_budget(raw) for raw in found))

    # -- nodes -----------------------------------------------------------------------------------------------

    async def _patch_node(self, call: PatchNode, asked: Asked) -> Answer:
        raw = self._nodes.pop((call.node, call.resource_version), None)
        if raw is None:  # not read by these hands: the raw list is needed, and it must be that version's
            raw = (await asked.good("GET", f"/api/v1/nodes/{call.node_name}")).body
            if not same_version(raw, call):
                return Answer(AnswerKind.CONFLICT, message=f"{call.node_name} has changed since it was decided upon")
        reply = await asked.write("PATCH", f"/api/v1/nodes/{call.node_name}", node_patch(call, raw), MERGE)
        if uid_refused(reply.status, reply.body):
            return Answer(AnswerKind.CONFLICT, message=reply.message)
        return self._node(good(reply))

    def _node(self, reply: Reply) -> Answer:
        raw = reply.body
        node = decode_node(raw, self._reading.known)
        self._nodes[node.uid, node.resource_version] = raw
        while len(self._nodes) > VERSIONS:
            self._nodes.popitem(last=False)
        return Answer(AnswerKind.OK, node=node)

    # -- pods ------------------------------------------------------------------------------------------------

    async def _list_pods(self, node: str, asked: Asked) -> Answer:
        """Bound ones, and those that a scheduler has promised the node to: two lists that the server filters."""
        bound, promised = await asyncio.gather(
            asked.listed("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}),
            asked.listed("/api/v1/pods", {"fieldSelector": f"status.nominatedNodeName={node}"}),
        )
        found = {pod.uid: pod for pod in map(self._pod, (*promised, *bound))}
        return Answer(AnswerKind.OK, pods=tuple(found.values()))

    async def _read_members(self, members: Sequence[Member], asked: Asked) -> Answer:
        async def read(member: Member) -> Pod | None:
            reply = await asked.send("GET", f"/api/v1/namespaces/{member.namespace}/pods/{member.name}")
            if eviction_answer(reply.status, reply.headers, reply.body).kind is AnswerKind.GONE:
                return None
            pod = self._pod(good(reply).body)
            return pod if pod.uid == member.uid else None  # another pod has taken over the name

        found = await _side_by_side(members, read)
        return Answer(AnswerKind.OK, pods=tuple(pod for pod in found if pod is not None))

    def _pod(self, raw: Any) -> Pod:
        return decode_pod(raw, self._reading.claims)

    # -- the gang --------------------------------------------------------------------------------------------

    async def _give_notice(self, call: GiveNotice, asked: Asked) -> Answer:
        async def tell(member: Member) -> Answer:
            path = f"/api/v1/namespaces/{member.namespace}/pods/{member.name}"
            try:
                reply = await asked.write("PATCH", path, notice_patch(member, call.evict_at), MERGE)
            except NotAnswered as failed:
                return failed.answer
            another = uid_refused(reply.status, reply.body)
            return Answer(AnswerKind.GONE) if another else answered(reply)

        told = await _side_by_side(call.members, tell)
        await self._tell_owner(call, asked)
        staying = [one for one in told if one.kind is not AnswerKind.GONE]
        if not staying:
            return Answer(AnswerKind.GONE, message=f"nobody of {call.gang} is left")
        if self._events is not None:
            self._events.noticed(call, datetime.now(UTC))
        return next((one for one in staying if one.kind is not AnswerKind.OK), Answer(AnswerKind.OK))

    async def _tell_owner(self, call: GiveNotice, asked: Asked) -> None:
        """Best effort: an owner that cannot be annotated changes nothing, and only who may be is asked for."""
        top = owned(call.top_owner, call.members[0].namespace) if call.members else None
        if top is None or not top.annotated:
            return
        try:
            reply = await asked.write("PATCH", top.path, recall_patch(call.evict_at, call.why), MERGE)
        except NotAnswered as failed:
            log.info("top owner not told", owner=call.top_owner, why=failed.answer.message)
            return
        if not reply.ok:
            log.info("top owner not told", owner=call.top_owner, why=reply.message)

    async def _evict(self, call: EvictPod, asked: Asked) -> Answer:
        path = f"/api/v1/namespaces/{call.member.namespace}/pods/{call.member.name}/eviction"
        query = {"dryRun": "All"} if call.dry_run else {}
        return answered(await asked.write("POST", path, eviction(call), None, query))


async def _side_by_side(over: Iterable[Member], do: Callable[[Member], Awaitable[T]]) -> list[T]:
    """All of them, a few at a time, in their order; the first that raises ends it."""
    slots = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(member: Member) -> T:
        async with slots:
            return await do(member)

    return list(await asyncio.gather(*(one(member) for member in over)))
