"""One replica at a time does a role's work: leadership by a Lease, fenced by time before it expires.

The client's own election (kubernetes.aio.leaderelection) is not used: it reads the wall clock, it leads on while a
renewal is under way however long that takes, it never releases, counts no transitions, and a renewal at a full second
is refused because its times lose their fraction. Here the holder counts from the *sending* of its last successful
renewal, by a clock that goes on while the machine sleeps; the one who waits counts a full duration from the moment
it last saw the record change. So the two never overlap, whatever the wall clocks say, unless somebody deletes the Lease
object: a new one is free at once, while the old holder works on until a renewal tells it (every ``retry`` seconds) and
its calls under way go on to their own end (at most ``call_timeout``). What guards then: every write names the uid or
the version that it was decided upon, so of two only one is taken and an eviction is no second one; and a node that
bears a higher epoch is refused, where :data:`Least` begins above all that nodes bear.
Nothing is decided here about the work itself; no write is made for it here.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import structlog

from rebalancer.adapters.cluster.connection import Api, Reply
from rebalancer.adapters.cluster.leaserecord import Record, blank, held, record, released, renewed
from rebalancer.adapters.metrics import Metrics
from rebalancer.settings import LeaseSettings

log = structlog.get_logger(__name__)
Least = Callable[[], Awaitable[int]]
"""The least epoch that may be taken: above every one that was ever written onto a node."""
LONGEST = 300.0
"""Seconds that a lease is waited for at most: the longest duration that settings allow."""


def process_name() -> str:
    """Names this process in Leases; never used twice, so that a restart does not take itself for the holder."""
    return f"{socket.gethostname()}_{uuid4().hex[:12]}"


def steady() -> float:
    """Seconds of a clock that never goes back and, where the system has one, counts a suspended machine's sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Held:
    """A lease in hand. ``epoch`` is its fencing number; it never changes while the lease is held."""

    def __init__(self, epoch: int, until: float, clock: Callable[[], float] = steady) -> None:
        self.epoch: Final[int] = epoch
        self._until, self._clock = until, clock

    def remaining(self) -> float:
        """Seconds until it expires, counted from the sending of the last successful renewal; 0.0 once it is over.

        A write is only sent when its time-out fits in here, asked right before sending. What is left: a process that
        is stopped between this question and the socket sends late. Every write therefore also names what it was
        decided upon (resourceVersion, uid), and repeating one for the same pod and plan is harmless.
        """
        return max(0.0, self._until - self._clock())

    def renew(self, until: float) -> None:
        """It is held until then."""
        self._until = until

    def drop(self) -> None:
        """It is no longer ours: nothing may be sent from now on."""
        self._until = self._clock()


class LeaseLost(RuntimeError):  # noqa: N818 - says what happened
    """Somebody else holds the lease, or it could not be renewed in time."""


class Leadership:
    """Holds, or waits for, the lease of one role. ``identity`` names this process in it."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        api: Api,
        settings: LeaseSettings,
        namespace: str,
        role: str,
        identity: str,
        metrics: Metrics,
        least: Least | None = None,
        clock: Callable[[], float] = steady,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """``least``: see :data:`Least`; ``waiting`` is called at each look at a lease that others hold."""
        self.held: Held | None = None
        self._api, self._settings, self._role, self._identity = api, settings, role, identity
        self._metrics, self._least, self._clock, self._waiting = metrics, least, clock, waiting
        self._name, self._namespace = f"{settings.name}-{role}", namespace
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] = {}
        self._seen: Record | None = None
        self._seen_at = 0.0
        self._wrote: Record | None = None
        self._silent = False

    @property
    def leading(self) -> bool:
        """Whether the lease is held."""
        return self.held is not None and self.held.remaining() > 0.0

    async def lead(self, work: Callable[[Held], Awaitable[None]]) -> None:
        """Until cancelled: wait for the lease, run ``work`` while it is held, give it back, wait again.

        Work is cancelled while the lease is still ours for a call's length, and ends before it is released. Work
        that ends by itself ends this too, with its exception if it had one.
        """
        while True:
            holding = await self._acquire()
            task = asyncio.ensure_future(work(holding))
            try:
                await self._keep(holding, task)
                return task.result()
            except LeaseLost as lost:
                log.warning("lease lost", lease=self._name, epoch=holding.epoch, why=str(lost))
            finally:
                await self._end(holding, task)

    # -- holding ---------------------------------------------------------------------------------------------

    async def _keep(self, holding: Held, task: asyncio.Future[None]) -> None:
        """Renew until work ends by itself; raises LeaseLost in time for work to be ended before expiry."""
        while True:
            done, _ = await asyncio.wait({task}, timeout=self._settings.retry)
            if done:
                return
            await self._renew(holding)

    async def _renew(self, holding: Held) -> None:
        """One renewal, tried until it succeeds or the deadline for renewing is over."""
        kept_back = self._settings.duration - self._settings.renew
        while (left := holding.remaining() - kept_back) > 0.0:
            if await self._renewed(holding, min(left, self._settings.renew / 2)):
                return
            await asyncio.sleep(min(self._settings.retry, max(0.0, holding.remaining() - kept_back)))
        raise LeaseLost("it could not be renewed in time")

    async def _renewed(self, holding: Held, within: float) -> bool:
        sent = self._clock()
        reply = await self._put(renewed(self._lease, datetime.now(UTC)), within)
        if reply is None:
            return False
        if reply.ok:
            self._wrote = record(self._lease)
            holding.renew(sent + self._settings.duration)
            return True
        if reply.status in (404, 409):  # gone or written by somebody: is it still ours?
            await self._still_ours(holding, within)
        log.warning("lease not renewed", lease=self._name, status=reply.status, why=reply.message)
        return False

    async def _still_ours(self, holding: Held, within: float) -> None:
        found = await self._ask("GET", f"{self._all}/{self._name}", within)
        if found is None or (not found.ok and found.status != 404):
            return
        now = record(found.body) if found.ok else Record()
        if (now.holder, now.transitions) != (self._identity, holding.epoch):
            holding.drop()
            raise LeaseLost(f"it is held by {now.holder or 'nobody'}")
        self._lease = found.body

    async def _end(self, holding: Held, task: asyncio.Future[None]) -> None:
        """Work over, lease back: in this order, whatever led here."""
        self._metrics.leader.labels(self._role).set(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self._settings.duration)
        if not done:
            holding.drop()
            raise RuntimeError(f"the work of {self._name} does not end")
        if not task.cancelled() and task.exception() is not None:
            log.warning("work ended", lease=self._name, error=repr(task.exception()))
        if holding.remaining() > 0.0:
            await self._release(holding)
        holding.drop()
        self.held = None

    async def _release(self, holding: Held) -> None:
        within = min(self._settings.retry, holding.remaining())
        holding.drop()
        reply = await self._put(released(self._lease, datetime.now(UTC)), within)
        if reply is not None and reply.status == 409:  # a renewal that was under way when work ended has come first
            try:
                await self._still_ours(holding, within)
            except LeaseLost:
                return
            reply = await self._put(released(self._lease, datetime.now(UTC)), within)
        if reply is None or not reply.ok:
            log.info("lease not released, it expires", lease=self._name)

    # -- waiting ---------------------------------------------------------------------------------------------

    async def _acquire(self) -> Held:
        self._metrics.leader.labels(self._role).set(0)
        while True:
            self._waiting()
            holding = await self._tried()
            if holding is not None:
                self.held = holding
                self._metrics.leader.labels(self._role).set(1)
                self._metrics.lease_taken.labels(self._role).inc()
                log.info("lease taken", lease=self._name, epoch=holding.epoch, identity=self._identity)
                return holding
            await asyncio.sleep(self._settings.retry)

    async def _tried(self) -> Held | None:
        """One look at the lease; taken if it is free, expired by our own clock, or not there yet."""
        found = await self._ask("GET", f"{self._all}/{self._name}", self._settings.renew / 2)
        if found is None:
            return None
        if found.ok:
            self._lease = found.body
            if not self._free(record(found.body)):
                return None
        elif found.status == 404:
            self._lease = blank(self._name, self._namespace)
        else:
            log.warning("lease not read", lease=self._name, status=found.status, why=found.message)
            return None
        return await self._take(record(self._lease))

    def _free(self, now: Record) -> bool:
        if not now.holder or now == self._wrote:  # what this process wrote last: its own work has ended since
            return True
        if now != self._seen:
            self._seen, self._seen_at = now, self._clock()
        patience = min(max(float(now.seconds or 0), self._settings.duration), LONGEST)
        return self._clock() - self._seen_at >= patience

    async def _take(self, before: Record) -> Held | None:
        # A new epoch each time, also for the same identity: an old process of this name may only be stopped.
        try:
            least = await self._least() if self._least is not None else 1
        except (ConnectionError, TimeoutError, ValueError) as error:
            log.warning("lease not taken", lease=self._name, why=str(error))
            return None
        epoch = max(before.transitions + 1, least)
        wanted = held(self._lease, self._identity, epoch, self._settings.duration, datetime.now(UTC))
        sent = self._clock()
        reply = await self._put(wanted, self._settings.renew / 2)
        if reply is None or not reply.ok:
            return None
        self._wrote = record(self._lease)
        return Held(epoch, sent + self._settings.duration, self._clock)

    # -- the API ---------------------------------------------------------------------------------------------

    async def _put(self, lease: dict[str, Any], within: float) -> Reply | None:
        """Write the lease as it was last read, guarded by its resourceVersion; remember what was written."""
        new = "resourceVersion" not in lease["metadata"]
        path = self._all if new else f"{self._all}/{self._name}"
        reply = await self._ask("POST" if new else "PUT", path, within, lease)
        if reply is not None and reply.ok:
            self._lease = reply.body
        return reply

    async def _ask(self, method: str, path: str, within: float, body: object = None) -> Reply | None:
        try:
            reply = await self._api.request(method, path, body=body, timeout=within)
        except (ConnectionError, TimeoutError) as error:
            self._metrics.failures.labels(self._role).inc()
            if not self._silent:  # told once, not every two seconds for as long as the server is away
                log.warning("lease: no answer", lease=self._name, why=str(error))
            self._silent = True
            return None
        self._silent = False
        return reply
