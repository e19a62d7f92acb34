"""The words of the field as types: identifiers, owner classes, activity, modes.

Identifiers are plain strings; the aliases only say which one is meant. UIDs identify, names are for display.
No arithmetic and no rules live here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

NodeUid: TypeAlias = str
PodUid: TypeAlias = str
GangId: TypeAlias = str
PoolName: TypeAlias = str
LoanId: TypeAlias = str
PlanId: TypeAlias = str
WorkloadId: TypeAlias = str
Number: TypeAlias = float | int | str
"""What a decision may quote: a quantity, or a name that the sentence needs."""

PREFIX = "gpu-rebalancer.io/"
CLOSING = PREFIX + "closing"
"""Taint key: shuts a node to everyone while it changes hands."""
ON_LOAN = PREFIX + "on-loan"
"""Taint key: takes the place of the owner taint while a node is lent; tolerating it is the opt-in."""


class OwnerClass(StrEnum):
    """Business class of a pool or a pod."""

    INFERENCE = "inference"
    TRAINING = "training"
    BATCH = "batch"
    UNKNOWN = "unknown"


class Activity(StrEnum):
    """Three-valued on purpose: unknown is neither idle nor busy."""

    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


class Mode(StrEnum):
    """Whether a pool's plans are carried out or only published and scored."""

    SHADOW = "shadow"
    ACT = "act"


def seconds(delta: timedelta) -> float:
    """Length of a duration in seconds."""
    return delta.total_seconds()


def later(*moments: datetime | None) -> datetime | None:
    """The latest of the moments that are known, or None when none is."""
    known = [moment for moment in moments if moment is not None]
    return max(known) if known else None
