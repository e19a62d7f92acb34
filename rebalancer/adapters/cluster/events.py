"""What we did, as Kubernetes Events: on the node, and on whatever its owner submitted (events.k8s.io/v1).

Made from plans and outcomes only, in the words that everybody else uses. Best effort: nothing waits for an event, a
repeated one is left out for a while, too many are dropped and counted, one that the server refuses is not sent again.
Reasons are a closed set. Nothing here decides or stops anything.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

import structlog

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.leaserecord import stamp
from rebalancer.adapters.cluster.owning import Owned, owned
from rebalancer.adapters.decode.objects import items, mapping, metadata, text
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.plan import EvictGang, Outcome, Plan, Result, Step
from rebalancer.core.protocol.calls import GiveNotice
from rebalancer.core.protocol.pace import Bucket
from rebalancer.core.reasons import Because, Reason, sentence
from rebalancer.core.units import PlanId

log = structlog.get_logger(__name__)
CONTROLLER = "gpu-rebalancer.io/act"
NOTE_LIMIT, INSTANCE_LIMIT, NAME_LIMIT = 1024, 128, 200
"""Characters; the first two are the API server's own limits, the last leaves room for an ending in its 253."""
NODE_NAMESPACE = "default"
"""Where events of objects without a namespace lie."""
AGAIN_AFTER = 600.0
"""Seconds for which the same event about the same object is not told again."""
REMEMBERED, PLANS, WAITING = 4_096, 1_024, 256
"""Events told lately, plans heard lately, events that wait to be sent: bounds of memory, not of work."""
LATER = 0.5
"""Seconds that telling waits for doing: behind every write an eviction's own list of budgets waits for the API server's
cache, up to 0.1 s, and a node is told as closed just before its gang goes. What a process's last half second brought is
not told."""
PER_SECOND, BURST = 5.0, 64
"""Events a second, and at once: a night's return of a hundred nodes passes, a storm does not."""
PATIENCE = 5.0
"""Seconds for one request."""
DONE: Mapping[str, str] = {
    "lend": "Lent", "close": "Recalled", "restore": "Returned", "renew": "Renewed", "evict": "GangEvicted",
}  # fmt: skip
NOTICE = "RecallNotice"
TROUBLE = frozenset({
    Reason.CONTENDED, Reason.STUCK, Reason.GANG_SPLIT, Reason.SQUATTER, Reason.FORBIDDEN, Reason.TWO_BUDGETS,
    Reason.TIMED_OUT, Reason.UNREACHABLE,
})  # fmt: skip
"""Reasons of a refused step that somebody should look at; the others are the ordinary run of things."""
Kind = Literal["Normal", "Warning"]


def camel(reason: Reason) -> str:
    """A reason as Kubernetes spells reasons."""
    return "".join(part.capitalize() for part in reason.value.split("-"))


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about. ``path``: where its uid can be looked up when it is not known."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """One event to be sent."""

    about: Subject
    action: str
    reason: str
    note: str
    type: Kind
    at: datetime


class Events:
    """Tells what act does. A witness for its outbox, and heard by its hands; :meth:`run` sends."""

    def __init__(
        self, api: Api, identity: str, cooldown: timedelta, metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._api, self._identity, self._metrics, self._clock = api, identity[:INSTANCE_LIMIT], metrics, clock
        self._cooldown = cooldown
        self._plans: OrderedDict[PlanId, Plan] = OrderedDict()
        self._lately: OrderedDict[tuple[Subject, str, str], float] = OrderedDict()
        self._uids: OrderedDict[str, str] = OrderedDict()
        self._waiting: asyncio.Queue[tuple[float, Told]] = asyncio.Queue(WAITING)

    async def run(self) -> None:
        """Send what is told, until cancelled; at a pace, and one after the other."""
        bucket = Bucket(PER_SECOND, BURST)
        while True:
            since, one = await self._waiting.get()
            now = datetime.now(UTC)
            await asyncio.sleep(max(since + LATER - self._clock(), (bucket.ready_at(now) - now).total_seconds()))
            bucket.take(datetime.now(UTC))
            try:
                sent = await self._sent(one)
            except Exception:  # telling is nobody's reason to stop, not even of telling the rest
                log.exception("event not told", reason=one.reason, name=one.about.name)
                sent = False
            self._count("told" if sent else "failed")

    # -- what is told ------------------------------------------------------------------------------------------

    def heard(self, plan: Plan) -> None:
        """A plan whose outcomes may follow."""
        self._plans[plan.id] = plan
        while len(self._plans) > PLANS:
            self._plans.popitem(last=False)

    def told(self, outcome: Outcome) -> None:
        """What became of a step; a step of a plan that is not known has nobody to tell it to."""
        plan = self._plans.get(outcome.plan)
        if plan is None or not 0 <= outcome.step < len(plan.steps):
            return
        step = plan.steps[outcome.step]
        about = _about(step)
        if about is None:
            return
        if outcome.result is Result.DONE:
            because = step.because if isinstance(step, EvictGang) else plan.because
            self._tell(Told(about, step.kind, DONE[step.kind], sentence(because), "Normal", outcome.at))
            if isinstance(step, EvictGang) and outcome.numbers.get("members"):
                self._rests(about, step, outcome)
        elif outcome.result in (Result.BLOCKED, Result.REFUSED):
            why = outcome.because
            warns = outcome.result is Result.BLOCKED or why.reason in TROUBLE
            kind: Kind = "Warning" if warns else "Normal"
            self._tell(Told(about, step.kind, camel(why.reason), sentence(why), kind, outcome.at))

    def noticed(self, call: GiveNotice, at: datetime) -> None:
        """Notice was given to a gang."""
        top = owned(call.top_owner, call.members[0].namespace) if call.members else None
        if top is not None:
            note = f"to be evicted from {call.evict_at:%Y-%m-%d %H:%M:%SZ} on: {call.why}"
            self._tell(Told(_subject(top), "notice", NOTICE, note, "Normal", at))

    def _rests(self, about: Subject, step: EvictGang, outcome: Outcome) -> None:
        """The first cooldown, which is the least: how often it was evicted before is the decider's to know."""
        least = self._cooldown.total_seconds() / 60
        until = f"{outcome.at + self._cooldown:%Y-%m-%d %H:%MZ} at the earliest (it rests at least {least:g} min)"
        because = Because(Reason.COOLDOWN, {"workload": step.workload, "until": until})
        self._tell(Told(about, step.kind, camel(because.reason), sentence(because), "Normal", outcome.at))

    def _tell(self, one: Told) -> None:
        key, now = (one.about, one.action, one.reason), self._clock()
        last = self._lately.get(key)
        if last is not None and now - last < AGAIN_AFTER:
            self._count("repeated")
            return
        try:
            self._waiting.put_nowait((now, one))
        except asyncio.QueueFull:
            self._count("crowded")
            return
        self._lately[key] = now
        self._lately.move_to_end(key)
        while len(self._lately) > REMEMBERED:
            self._lately.popitem(last=False)

    def _count(self, result: str) -> None:
        self._metrics.events.labels(result).inc()

    # -- sending -----------------------------------------------------------------------------------------------

    async def _sent(self, one: Told) -> bool:
        space = one.about.namespace or NODE_NAMESPACE
        try:
            body = event(one, await self._uid(one.about), self._identity)
            path = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
            reply = await self._api.request("POST", path, body=body, timeout=PATIENCE)
        except (ConnectionError, TimeoutError) as error:
            log.info("event not told", reason=one.reason, name=one.about.name, why=str(error))
            return False
        if not reply.ok:
            log.info("event not told", reason=one.reason, name=one.about.name, why=reply.message)
        return reply.ok

    async def _uid(self, about: Subject) -> str:
        """`kubectl describe` shows events by uid; without one they are only found by name."""
        if about.uid or not about.path:
            return about.uid
        if about.path not in self._uids:
            # A list, since reading single gang objects is no right that anything else needs.
            listed, _, name = about.path.rpartition("/")
            query = {"fieldSelector": f"metadata.name={name}", "limit": "1"}
            reply = await self._api.request("GET", listed, query=query, timeout=PATIENCE)
            found = items(mapping(reply.body).get("items")) if reply.ok else []
            if not found:
                return ""
            self._uids[about.path] = text(metadata(found[0]).get("uid"))
            while len(self._uids) > REMEMBERED:
                self._uids.popitem(last=False)
        return self._uids[about.path]


def event(one: Told, uid: str, identity: str) -> dict[str, Any]:
    """The event as the API server wants it."""
    about = {
        "apiVersion": one.about.api_version,
        "kind": one.about.kind,
        "name": one.about.name,
        **({"namespace": one.about.namespace} if one.about.namespace else {}),
        **({"uid": uid} if uid else {}),
    }
    name = f"{one.about.name[:NAME_LIMIT].rstrip('-.')}.{uuid4().hex[:16]}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": one.about.namespace or NODE_NAMESPACE},
        "eventTime": stamp(one.at),
        "reportingController": CONTROLLER,
        "reportingInstance": identity,
        "action": one.action,
        "reason": one.reason,
        "regarding": about,
        "note": one.note[:NOTE_LIMIT],
        "type": one.type,
    }


def _about(step: Step) -> Subject | None:
    if not isinstance(step, EvictGang):
        return Subject("v1", "Node", step.node_name, uid=step.node)
    top = owned(step.top_owner, step.namespace)
    return None if top is None else _subject(top)


def _subject(top: Owned) -> Subject:
    return Subject(top.owner.api_version, top.owner.kind, top.owner.name, top.namespace, path=top.path)
