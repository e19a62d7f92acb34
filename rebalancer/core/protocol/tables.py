"""Every legal move of the act protocol, as tables: phase and event give the next phase.

All phases, all events and all transitions live here; a pair that no table knows raises :class:`IllegalMove`.
What leads to an event is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class IllegalMove(ValueError):  # noqa: N818 - the name says what happened, as in h11's protocol errors
    """An event that cannot happen in this phase."""


class Editing(StrEnum):
    """One guarded change of one node."""

    READING = "reading"
    PATCHING = "patching"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


class Edited(StrEnum):
    """What happened to the change."""

    WANTED = "wanted"
    SO = "so"
    AGAIN = "again"
    FAILED = "failed"


EDIT: Mapping[tuple[Editing, Edited], Editing] = {
    (Editing.READING, Edited.WANTED): Editing.PATCHING,
    (Editing.READING, Edited.SO): Editing.CONFIRMED,
    (Editing.READING, Edited.AGAIN): Editing.READING,
    (Editing.READING, Edited.FAILED): Editing.REFUSED,
    (Editing.PATCHING, Edited.SO): Editing.CONFIRMED,
    (Editing.PATCHING, Edited.AGAIN): Editing.READING,
    (Editing.PATCHING, Edited.FAILED): Editing.REFUSED,
}


class Lending(StrEnum):
    """One node on its way to a borrower, or back because a sibling could not be lent."""

    CLOSING = "closing"
    SETTLING = "settling"
    LISTING = "listing"
    READY = "ready"
    LENDING = "lending"
    LENT = "lent"
    UNDOING = "undoing"
    UNWINDING = "unwinding"
    UNDONE = "undone"


class Lent(StrEnum):
    """What happened on the way."""

    CLOSED = "closed"
    FOUND_LENT = "found-lent"
    SETTLED = "settled"
    EMPTY = "empty"
    GO = "go"
    UNCLOSED = "unclosed"
    DONE = "done"
    FAILED = "failed"
    UNTOUCHED = "untouched"
    REOPENED = "reopened"
    OCCUPIED = "occupied"


LEND: Mapping[tuple[Lending, Lent], Lending] = {
    (Lending.CLOSING, Lent.CLOSED): Lending.SETTLING,
    (Lending.CLOSING, Lent.FOUND_LENT): Lending.LENT,
    (Lending.CLOSING, Lent.FAILED): Lending.UNDOING,
    (Lending.CLOSING, Lent.UNTOUCHED): Lending.UNDONE,
    (Lending.SETTLING, Lent.SETTLED): Lending.LISTING,
    (Lending.SETTLING, Lent.FAILED): Lending.UNDOING,
    (Lending.LISTING, Lent.EMPTY): Lending.READY,
    (Lending.LISTING, Lent.FAILED): Lending.UNDOING,
    (Lending.READY, Lent.GO): Lending.LENDING,
    (Lending.READY, Lent.FAILED): Lending.UNDOING,
    (Lending.LENDING, Lent.DONE): Lending.LENT,
    (Lending.LENDING, Lent.UNCLOSED): Lending.CLOSING,
    (Lending.LENDING, Lent.FAILED): Lending.UNDOING,
    (Lending.LENT, Lent.FAILED): Lending.UNWINDING,
    (Lending.UNDOING, Lent.REOPENED): Lending.UNDONE,
    (Lending.UNDOING, Lent.FOUND_LENT): Lending.LENT,
    (Lending.UNWINDING, Lent.REOPENED): Lending.UNDONE,
    (Lending.UNWINDING, Lent.OCCUPIED): Lending.LENT,
}


class Returning(StrEnum):
    """One lent node on its way home."""

    CLOSING = "closing"
    CLOSED = "closed"
    LISTING = "listing"
    RESTORING = "restoring"
    RESTORED = "restored"
    REOPENING = "reopening"
    REOPENED = "reopened"
    REFUSED = "refused"


class Returned(StrEnum):
    """What happened on the way home."""

    CLOSED = "closed"
    GO = "go"
    OCCUPIED = "occupied"
    EMPTY = "empty"
    UNCLOSED = "unclosed"
    DONE = "done"
    ABANDONED = "abandoned"
    FAILED = "failed"


RETURN: Mapping[tuple[Returning, Returned], Returning] = {
    (Returning.CLOSING, Returned.CLOSED): Returning.CLOSED,
    (Returning.CLOSING, Returned.ABANDONED): Returning.REOPENING,
    (Returning.CLOSING, Returned.FAILED): Returning.REFUSED,
    (Returning.CLOSED, Returned.GO): Returning.LISTING,
    (Returning.CLOSED, Returned.ABANDONED): Returning.REOPENING,
    (Returning.LISTING, Returned.OCCUPIED): Returning.LISTING,
    (Returning.LISTING, Returned.EMPTY): Returning.RESTORING,
    (Returning.LISTING, Returned.ABANDONED): Returning.REOPENING,
    (Returning.LISTING, Returned.FAILED): Returning.REFUSED,
    (Returning.RESTORING, Returned.DONE): Returning.RESTORED,
    (Returning.RESTORING, Returned.UNCLOSED): Returning.CLOSING,
    (Returning.RESTORING, Returned.FAILED): Returning.REFUSED,
    (Returning.REOPENING, Returned.DONE): Returning.REOPENED,
    (Returning.REOPENING, Returned.FAILED): Returning.REFUSED,
}


class Evicting(StrEnum):
    """One gang on its way out."""

    READING = "reading"
    CHECKING = "checking"
    NOTICING = "noticing"
    WAITING = "waiting"
    EVICTING = "evicting"
    GOING = "going"
    GONE = "gone"
    REFUSED = "refused"


class Evicted(StrEnum):
    """What happened to the gang."""

    READ = "read"
    PASSED = "passed"
    NOTICE = "notice"
    TOLD = "told"
    RECHECK = "recheck"
    ACCEPTED = "accepted"
    ALL_GONE = "all-gone"
    FAILED = "failed"


EVICT: Mapping[tuple[Evicting, Evicted], Evicting] = {
    (Evicting.READING, Evicted.READ): Evicting.CHECKING,
    (Evicting.READING, Evicted.ALL_GONE): Evicting.GONE,
    (Evicting.READING, Evicted.ACCEPTED): Evicting.GOING,
    (Evicting.READING, Evicted.FAILED): Evicting.REFUSED,
    (Evicting.CHECKING, Evicted.PASSED): Evicting.EVICTING,
    (Evicting.CHECKING, Evicted.NOTICE): Evicting.NOTICING,
    (Evicting.CHECKING, Evicted.TOLD): Evicting.WAITING,
    (Evicting.CHECKING, Evicted.RECHECK): Evicting.READING,
    (Evicting.CHECKING, Evicted.FAILED): Evicting.REFUSED,
    (Evicting.NOTICING, Evicted.TOLD): Evicting.WAITING,
    (Evicting.NOTICING, Evicted.FAILED): Evicting.REFUSED,
    (Evicting.WAITING, Evicted.RECHECK): Evicting.READING,
    (Evicting.WAITING, Evicted.FAILED): Evicting.REFUSED,
    (Evicting.EVICTING, Evicted.ACCEPTED): Evicting.GOING,
    (Evicting.EVICTING, Evicted.ALL_GONE): Evicting.GONE,
    (Evicting.EVICTING, Evicted.RECHECK): Evicting.READING,
    (Evicting.EVICTING, Evicted.FAILED): Evicting.REFUSED,
    (Evicting.GOING, Evicted.ALL_GONE): Evicting.GONE,
}

P = TypeVar("P", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


def move(table: Mapping[tuple[P, E], P], phase: P, event: E) -> P:
    """The next phase; raises :class:`IllegalMove` for a pair that the table does not know."""
    try:
        return table[phase, event]
    except KeyError:
        raise IllegalMove(f"{event!s} cannot happen in phase {phase!s} of {type(phase).__name__}") from None
