"""All figures in one run, as tables and as JSON: `python -m tests.bench.cluster --out build/bench-cluster.json`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.bench.cluster import figures, firsteviction, rivals, startup
from tests.bench.machine import machine
from tests.servers.goparts import binary

NEEDS = ("kubemini", "kwok", "descheduler")
BAR_MS = 250.0
"""The design's bar for the first eviction, p99."""
Bench = Callable[..., dict[str, Any]]
BENCHES: Mapping[str, tuple[Bench, Callable[[Mapping[str, Any]], str]]] = {
    "first_eviction": (firsteviction.run, figures.first_eviction),
    "startup": (startup.run, figures.startup),
    "rivals": (rivals.run, figures.rivals),
}
TINY: Mapping[str, Mapping[str, Any]] = {
    "first_eviction": {"nodes": 8, "rounds": 1, "recalls": 2, "warm": 0},
    "startup": {"nodes": 20},
    "rivals": {"nodes": 10, "length": 62.0, "times": 1},
}
"""Sizes to see that everything works: minutes, and figures that mean nothing."""


def measured(names: list[str], sizes: Mapping[str, Mapping[str, Any]], save: Callable[[Any], None]) -> dict[str, Any]:
    """One run of these benchmarks; what is measured so far is saved after each."""
    told: dict[str, Any] = {"machine": machine()}
    for name in names:
        began = time.perf_counter()
        told |= BENCHES[name][0](**sizes.get(name, {}))
        told[name]["took_seconds"] = round(time.perf_counter() - began, 1)
        told[name]["machine_after"] = machine()
        save(told)
    return told


def tables(told: Mapping[str, Any]) -> str:
    """What was measured, for people."""
    parts = [show(told[name]) for name, (_, show) in BENCHES.items() if name in told]
    if "first_eviction_p99_ms" in told:
        p99 = told["first_eviction_p99_ms"]
        parts.insert(0, f"first eviction, p99: {p99} ms (bar {BAR_MS:g}{'' if p99 <= BAR_MS else ', MISSED'})")
    return "\n\n".join(parts)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cluster", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench-cluster.json"))
    parser.add_argument("--only", nargs="*", choices=sorted(BENCHES), default=[])
    parser.add_argument("--variants", nargs="*", choices=sorted(rivals.VARIANTS), default=[])
    parser.add_argument("--tiny", action="store_true", help="small and short, to see that it works")
    asked = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # topics have no leader for a moment after their birth
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for name in NEEDS:
        binary(name)
    sizes = {name: dict(one) for name, one in (TINY if asked.tiny else {}).items()}
    if asked.variants:
        sizes.setdefault("rivals", {})["variants"] = asked.variants

    def save(told: Any) -> None:
        asked.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    told = measured(asked.only or list(BENCHES), sizes, save)
    sys.stdout.write(f"{tables(told)}\n")


if __name__ == "__main__":
    main()
