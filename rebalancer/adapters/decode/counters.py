"""The exporter's counters file: which fields a site exports, and hence which signals can be expected.

Three columns (field, kind, help), ``#`` comments, blanks trimmed, commas allowed in the help. Nothing is
required here: a custom list without the usual fields is the site's choice, and is only told.
"""

from __future__ import annotations

from dataclasses import dataclass

from rebalancer.adapters.decode.dcgm_rows import Field, field_of
from rebalancer.adapters.decode.errors import DecodeError

KINDS = frozenset({"gauge", "counter", "label", "histogram", "summary", "untyped"})


@dataclass(frozen=True, slots=True)
class Counter:
    """One exported field; ``fills`` is the field of a reading that it feeds, if any."""

    name: str
    kind: str
    about: str
    fills: Field | None


def decode_counters(text: str) -> tuple[Counter, ...]:
    """Read the file.

    Raises:
        DecodeError: a line has no kind, or one that the exporter does not know.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, kind, about = (part.strip() for part in (*stripped.split(",", 2), "", "")[:3])
        if kind.lower() not in KINDS:
            raise DecodeError("counters", f"line {number}: {kind!r} is no kind of metric")
        found.append(Counter(name, kind.lower(), about, field_of(name)))
    return tuple(found)
