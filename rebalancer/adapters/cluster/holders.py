"""Whether somebody alive holds one of our Leases, seen from outside. Nothing is taken or written here.

As leadership does, life is told by the record changing under our own clock, never by comparing clocks: a holder is
dead once its record stood still for its own duration.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.lease import LONGEST, steady
from rebalancer.adapters.cluster.leaserecord import Record, record
from rebalancer.adapters.cluster.listing import NotListed

PATIENCE = 10.0
"""Seconds for one look."""


def lease_path(namespace: str, name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"


@dataclass(slots=True)
class Holder:
    """The holder of one Lease.

    ``there``: whether the object exists; ``name`` of whom holds it, alive or not; ``renewing``: seen alive for certain.
    """

    api: Api
    namespace: str
    lease: str
    there: bool = False
    name: str = ""
    renewing: bool = False
    _seen: Record | None = field(default=None, init=False)
    _seen_at: float = field(default=0.0, init=False)

    async def alive(self) -> bool:
        """Whether it is held by somebody who may be alive; asked again and again this becomes certain.

        Raises:
            NotListed: we may not read it.
            ConnectionError, TimeoutError: the API server cannot be reached.
        """
        path = lease_path(self.namespace, self.lease)
        reply = await self.api.request("GET", path, timeout=PATIENCE)
        if not reply.ok and reply.status != 404:
            raise NotListed(path, reply.status, reply.message)
        self.there = reply.ok
        now = record(reply.body) if reply.ok else Record()
        self.name = now.holder
        if not now.holder:
            self.renewing = False
            return False
        if now != self._seen:
            self.renewing = self._seen is not None
            self._seen, self._seen_at = now, steady()
        living = steady() - self._seen_at < min(float(now.seconds or 0), LONGEST)
        self.renewing = self.renewing and living
        return living
