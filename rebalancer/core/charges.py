"""What is told of usage: a pool's hour, a loan's part of an hour by gang, and what a restart must know of both.

Data only. Sums are kept in whole GPU-milliseconds; what is told is GPU-seconds, each rounded once from such a sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rebalancer.core.units import GangId, LoanId, NodeUid, PoolName


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Where a pool's GPUs were in one UTC hour: the five add up to ``capacity_gpu_seconds``.

    ``own``: held on nodes at home. ``lent``: of nodes on loan, used or not, and what borrowers still hold on the way
    home. ``transit``: changing hands and held by nobody. ``idle``: at home and free. ``unhealthy``: not ready,
    starting, missing, or free where nobody may land. ``since`` is later than the hour where accounting began in it.
    """

    id: str
    pool: PoolName
    since: datetime
    until: datetime
    capacity_gpu_seconds: float
    own_gpu_seconds: float
    lent_gpu_seconds: float
    transit_gpu_seconds: float
    idle_gpu_seconds: float
    unhealthy_gpu_seconds: float
    corrects: str = ""
    """Id of the record that this one replaces."""


@dataclass(frozen=True, slots=True)
class LoanUsage:
    """What a gang used of a loan in one UTC hour, or in the part of it in which the loan was open.

    ``busy`` is the part of ``allocated`` that telemetry judged busy. ``unused`` and ``transit`` are what nobody held
    while on loan and while changing hands: charged to the gang that the loan was made for. ``lost`` is work that our
    evictions undid.
    """

    id: str
    loan: LoanId
    since: datetime
    until: datetime
    lender: PoolName
    borrower_namespace: str
    borrower_queue: str
    gang: GangId
    model: str
    allocated_gpu_seconds: float
    busy_gpu_seconds: float
    transit_gpu_seconds: float
    lost_gpu_seconds: float
    unused_gpu_seconds: float = 0.0
    node: NodeUid = ""
    node_name: str = ""
    corrects: str = ""
    """Id of the record that this one replaces."""


Charge: TypeAlias = PoolUsage | LoanUsage


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One hour of a pool (``loan`` "") or of a loan and gang, in GPU-milliseconds as far as it was accounted.

    ``values`` in the order of the kind's fields; ``told`` as last published, up to ``until``, in so many
    ``revisions`` (0: not yet).
    """

    loan: LoanId
    gang: GangId
    hour: datetime
    values: tuple[int, ...]
    told: tuple[int, ...] = ()
    until: datetime | None = None
    revisions: int = 0
    namespace: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class LoanMove:
    """From ``at`` on a loan's node was ``moving``, ``lent``, or home (an empty word)."""

    loan: LoanId
    at: datetime
    word: str


@dataclass(frozen=True, slots=True)
class UsageMemory:
    """A pool's running totals up to ``upto``: what a restart goes on from.

    ``heard``: evictions whose lost work is in them. ``moves``: of loans whose record alone does not tell them.
    """

    began: datetime
    upto: datetime
    told_until: datetime
    rows: tuple[UsageRow, ...] = ()
    heard: tuple[str, ...] = ()
    moves: tuple[LoanMove, ...] = ()
