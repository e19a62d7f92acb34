"""Numbers of a run: quantiles, and tables for people in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of them do not exceed; nan-free input, at least one value."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 2) -> dict[str, float | int | None]:
    """Count, p50, p99 and maximum, scaled; None where there is no value."""
    told: dict[str, float | int | None] = {"count": len(values)}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        told[name] = round(scale * quantile(values, share), digits) if values else None
    return told


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(one) for one in line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def first_eviction(told: Mapping[str, Any]) -> str:
    """From a record to evictions, and where the time goes, a column a trigger."""
    triggers = told["triggers"]
    head = ["ms, p50 / p99", *triggers]
    stages = next(iter(triggers.values()))["stages"]
    rows = [[stage, *(_both(one["stages"][stage]) for one in triggers.values())] for stage in stages]
    return table(head, [["trials", *(one["trials"] for one in triggers.values())], *rows])


def _both(found: Mapping[str, Any]) -> str:
    return f"{found['p50']} / {found['p99']}"


RIVALS: Mapping[str, str] = {
    "inference_wait_p50_s": "inference wait to Running, p50, s",
    "inference_wait_p99_s": "p99, s",
    "inference_wait_max_s": "max, s",
    "whole_gpu_s": "training GPU-seconds by whole gangs",
    "broken_gpu_s": "by broken ones",
    "transit_gpu_s": "held while nobody works (starting, draining)",
    "gangs_finished": "gangs finished",
    "members_deleted": "members deleted",
    "gangs_split": "gangs split for more than 10 s",
    "below_budget": "deletions below a PDB",
    "lost_gpu_s": "GPU-seconds lost since the last checkpoint",
    "left_at_due": "trainers on inference nodes at the due time",
}


def rivals(told: Mapping[str, Any]) -> str:
    """Every variant a column, every run of it in the cell."""
    variants = told["variants"]
    rows = [
        [words, *(" / ".join(_cell(run["measures"][key]) for run in one["runs"]) for one in variants.values())]
        for key, words in RIVALS.items()
    ]
    return table(["one night", *variants], rows)


def startup(told: Mapping[str, Any]) -> str:
    """First start and restart."""
    names = [name for name in told["starts"][0] if name != "start"]
    return table(["start-up", *(one["start"] for one in told["starts"])],
                 [[name, *(one[name] for one in told["starts"])] for name in names])  # fmt: skip
