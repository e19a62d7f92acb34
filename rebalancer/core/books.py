"""What the ledger and the open plans add up to for one lender, reckoned once for as long as nothing in it changes.

Looks and methods ask these sums at every event; the sums change only with loans, plans and nodes that come, go or
change hands. Derived from the state, never written to, never decided from here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rebalancer.core.loans import Loan
from rebalancer.core.policy import Pace
from rebalancer.core.units import NodeUid, PlanId

HEADROOM = "headroom_gpus"
"""The number of a loan's because that says under which headroom it was made."""


@dataclass(frozen=True, slots=True)
class Books:
    """One lender's open loans in due and name order, and their sums in GPUs."""

    loans: tuple[Loan, ...]
    dues: tuple[datetime, ...]
    reserve: float | None
    """Headroom in GPUs under which the newest of these loans was made; None if none says so."""
    gpus: int
    virtual: int
    returning: int
    arriving: int
    """GPUs of nodes that were handed back and are not seen at home yet."""
    ready: int
    """GPUs of usable nodes at home that are not changing hands."""
    free_to_act: tuple[Loan, ...]
    """Loans on their way or on loan that no open plan is busy with and whose node exists."""
    later: tuple[int, ...]
    """For each of these: how many fall due within a span of the caps after it."""
    starts: tuple[datetime, ...]
    """For each of these: due, less one span per full batch of nodes that is due within a span after it."""
    unfinished: bool
    """Whether one of these is in recall already."""
    coming: tuple[NodeUid, ...]
    """Nodes of the pool that an open plan brings home, or that only wait for pods to be gone; by name."""
    plans: tuple[PlanId, ...]
    """The pool's open plans, in order of their ids."""

    def overdue(self, now: datetime) -> tuple[Loan, ...]:
        """Loans whose due time is over."""
        return self.loans[: bisect_left(self.dues, now)]


def reserve_of(loans: Sequence[Loan]) -> float | None:
    """What the newest loan says of the headroom under which it was made."""
    told = [loan for loan in loans if HEADROOM in loan.because.numbers]
    newest = max(told, key=lambda loan: (loan.opened_at, loan.id), default=None)
    return float(newest.because.numbers[HEADROOM]) if newest is not None else None


def order(loan: Loan) -> tuple[datetime, str, str]:
    """The order in which loans are told: due first."""
    return (loan.due, loan.node_name, loan.id)


def due_soon_after(loans: Sequence[Loan], per: timedelta) -> tuple[int, ...]:
    """For each loan, how many of the later ones fall due less than ``per`` after it; loans in due order."""
    dues = [loan.due for loan in loans]
    return tuple(bisect_left(dues, due + per) - index - 1 for index, due in enumerate(dues))


def batched_starts(loans: Sequence[Loan], later: Sequence[int], pace: Pace) -> tuple[datetime, ...]:
    """Due times, one span of the node caps earlier for each full batch that is due within a span after it."""
    pairs = zip(loans, later, strict=True)
    return tuple(loan.due - (count // pace.nodes_per_pool) * pace.per for loan, count in pairs)
