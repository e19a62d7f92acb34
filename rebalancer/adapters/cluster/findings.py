"""What preflight may find: a closed set of codes, each finding a sentence and a next step. Data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SHOWN = 3
"""Names in one finding; there may be thousands."""


class Severity(StrEnum):
    """Whether acting is safe with it."""

    STOPS = "stops"
    """Not safe: loans would be undone, gangs split, or calls refused."""
    WARNS = "warns"
    """Safe, but less will be lent than could be, or something else goes without."""
    TELLS = "tells"
    """Could not be looked at, or is good to know."""


class Code(StrEnum):
    """What was found. Values are stable."""

    PERMISSION_MISSING = "permission-missing"
    NOT_SEEN = "not-seen"
    DESCHEDULER_EVICTS = "descheduler-evicts"
    TAINTS_KEPT = "taints-kept"
    NODE_QUARANTINED = "node-quarantined"
    NODE_WITHOUT_POOL = "node-without-pool"
    OWNER_TAINT_MISSING = "owner-taint-missing"
    TRACE_LEFT = "trace-left"
    POOL_EMPTY = "pool-empty"
    DAEMONSET_STAYS_AWAY = "daemonset-stays-away"
    NEVER_EVICTED = "never-evicted"
    NEVER_BORROWS = "never-borrows"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. ``object``: what it is about; ``step``: what to do about it."""

    code: Code
    severity: Severity
    object: str
    sentence: str
    step: str


def some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
