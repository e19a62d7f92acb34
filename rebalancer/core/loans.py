"""The loan ledger's legality: phases, events and the one table of transitions.

An unknown pair raises :class:`IllegalTransition`; nothing else may change a phase. The diagram in the
documentation is generated from this table. What leads to an event is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from rebalancer.core.facts import Taint
from rebalancer.core.reasons import Because
from rebalancer.core.units import GangId, LoanId, Mode, NodeUid, OwnerClass, PlanId, PoolName


class LoanPhase(StrEnum):
    """Where a loan stands."""

    OPENING = "opening"
    ON_LOAN = "on-loan"
    RECALLING = "recalling"
    RETURNED = "returned"
    UNDONE = "undone"
    LOST = "lost"
    NODE_GONE = "node-gone"


class LoanEvent(StrEnum):
    """What happened to a loan."""

    LENT = "lent"
    REFUSED = "refused"
    CLOSED = "closed"
    REOPENED = "reopened"
    RESTORED = "restored"
    MARK_MISSING = "mark-missing"
    NODE_DELETED = "node-deleted"
    MARK_FOUND = "mark-found"


TRANSITIONS: Mapping[tuple[LoanPhase, LoanEvent], LoanPhase] = {
    (LoanPhase.OPENING, LoanEvent.LENT): LoanPhase.ON_LOAN,
    (LoanPhase.OPENING, LoanEvent.MARK_FOUND): LoanPhase.ON_LOAN,
    (LoanPhase.OPENING, LoanEvent.REFUSED): LoanPhase.UNDONE,
    (LoanPhase.OPENING, LoanEvent.NODE_DELETED): LoanPhase.NODE_GONE,
    (LoanPhase.ON_LOAN, LoanEvent.CLOSED): LoanPhase.RECALLING,
    (LoanPhase.ON_LOAN, LoanEvent.RESTORED): LoanPhase.RETURNED,
    (LoanPhase.ON_LOAN, LoanEvent.MARK_MISSING): LoanPhase.LOST,
    (LoanPhase.ON_LOAN, LoanEvent.NODE_DELETED): LoanPhase.NODE_GONE,
    (LoanPhase.RECALLING, LoanEvent.REOPENED): LoanPhase.ON_LOAN,
    (LoanPhase.RECALLING, LoanEvent.RESTORED): LoanPhase.RETURNED,
    (LoanPhase.RECALLING, LoanEvent.MARK_MISSING): LoanPhase.LOST,
    (LoanPhase.RECALLING, LoanEvent.NODE_DELETED): LoanPhase.NODE_GONE,
    (LoanPhase.LOST, LoanEvent.MARK_FOUND): LoanPhase.ON_LOAN,
    (LoanPhase.LOST, LoanEvent.RESTORED): LoanPhase.RETURNED,
    (LoanPhase.LOST, LoanEvent.NODE_DELETED): LoanPhase.NODE_GONE,
    (LoanPhase.UNDONE, LoanEvent.MARK_FOUND): LoanPhase.ON_LOAN,
    (LoanPhase.RETURNED, LoanEvent.MARK_FOUND): LoanPhase.ON_LOAN,
}
OPEN_PHASES = frozenset({LoanPhase.OPENING, LoanPhase.ON_LOAN, LoanPhase.RECALLING})


class IllegalTransition(ValueError):  # noqa: N818 - the name says what happened, as in h11's protocol errors
    """An event that a loan in this phase cannot have."""


@dataclass(frozen=True, slots=True)
class Loan:
    """One node lent from a lender pool to a borrower class, with its due time known from the first second.

    ``virtual`` loans exist in shadow mode only: no node was touched. ``closing_at`` is when the recall began;
    ``return_seconds`` what the return took once it is over; ``renewed_at`` when the due time last moved.
    """

    id: LoanId
    node: NodeUid
    node_name: str
    lender: PoolName
    borrower: OwnerClass
    gang: GangId
    gpus: int
    mode: Mode
    phase: LoanPhase
    plan: PlanId
    because: Because
    opened_at: datetime
    due: datetime
    recall_at: datetime
    owner_taint: Taint | None = None
    lent_at: datetime | None = None
    closing_at: datetime | None = None
    closed_at: datetime | None = None
    return_seconds: float | None = None
    lost_gpu_seconds: float = 0.0
    renewed_at: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether the node is, or is about to be, away from its owner."""
        return self.phase in OPEN_PHASES

    @property
    def virtual(self) -> bool:
        """Whether this loan exists only in the shadow ledger."""
        return self.mode is Mode.SHADOW


def advance(loan: Loan, event: LoanEvent, now: datetime) -> Loan:
    """The loan after an event; raises :class:`IllegalTransition` for a pair the table does not know."""
    try:
        phase = TRANSITIONS[loan.phase, event]
    except KeyError:
        message = f"loan {loan.id} in phase {loan.phase} cannot have event {event}"
        raise IllegalTransition(message) from None
    moved = replace(loan, phase=phase)
    if phase is LoanPhase.ON_LOAN:
        return replace(moved, lent_at=moved.lent_at or now, closing_at=None, closed_at=None)
    if phase is LoanPhase.RECALLING:
        return replace(moved, closing_at=now)
    taken = (now - moved.closing_at).total_seconds() if moved.closing_at and phase is LoanPhase.RETURNED else None
    return replace(moved, closed_at=now, return_seconds=taken)
