"""The invoice: usage records in force, added up by whoever is asked for.

Of one id the last record counts, and none that another one corrects. Nothing is reckoned anew here: what was told
is what is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, TypeAlias

from rebalancer.adapters.store import RawRecord
from rebalancer.adapters.translate import WireError, read
from rebalancer.core.charges import Charge, LoanUsage, PoolUsage

By: TypeAlias = Literal["loan", "gang", "namespace", "pool"]
_NAME_OF: Mapping[By, Callable[[LoanUsage], str]] = {
    "loan": lambda charge: charge.loan,
    "gang": lambda charge: charge.gang,
    "namespace": lambda charge: charge.borrower_namespace,
}
_UNIT = "_gpu_seconds"


@dataclass(frozen=True, slots=True)
class Position:
    """What one name used: GPU-seconds by field, over the hours (and parts of hours) from ``since`` to ``until``."""

    name: str
    since: datetime
    until: datetime
    records: int
    gpu_seconds: Mapping[str, float]


def charges(records: Iterable[RawRecord], cluster: str = "") -> list[Charge]:
    """Usage records in force among these, in order of time; what is no usage record is passed over."""
    latest = {charge.id: charge for charge in _read(records, cluster)}
    corrected = {charge.corrects for charge in latest.values()}
    return sorted((one for one in latest.values() if one.id not in corrected), key=lambda one: (one.since, one.id))


def _read(records: Iterable[RawRecord], cluster: str) -> Iterator[Charge]:
    for record in records:
        if record.value is None:
            continue
        try:
            told = read(record.topic, record.key, record.value, record.headers)
        except WireError:
            continue
        if isinstance(told.content, LoanUsage | PoolUsage) and cluster in ("", told.cluster):
            yield told.content


def positions(
    found: Iterable[Charge], by: By, since: datetime | None = None, until: datetime | None = None
) -> list[Position]:
    """Sums by name of what begins at or after ``since`` and before ``until``."""
    groups: dict[str, list[Charge]] = {}
    for charge in found:
        if (since is None or charge.since >= since) and (until is None or charge.since < until):
            name = _name(charge, by)
            if name is not None:
                groups.setdefault(name, []).append(charge)
    return [_position(name, group) for name, group in sorted(groups.items())]


def _name(charge: Charge, by: By) -> str | None:
    if isinstance(charge, PoolUsage):
        return charge.pool if by == "pool" else None
    return None if by == "pool" else _NAME_OF[by](charge)


def _position(name: str, group: list[Charge]) -> Position:
    units = [one.name for one in fields(group[0]) if one.name.endswith(_UNIT)]
    total = {unit.removesuffix(_UNIT): round(sum(getattr(one, unit) for one in group), 3) for unit in units}
    first, last = min(one.since for one in group), max(one.until for one in group)
    return Position(name, first, last, len(group), total)
