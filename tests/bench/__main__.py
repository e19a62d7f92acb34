"""All benchmarks in one run, as a table and as JSON: `python -m tests.bench --out build/bench.json`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rebalancer.adapters import logs
from tests.bench import decision, event_cost, memory, planning, scrapes
from tests.bench.machine import machine

BENCHES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "event_cost": event_cost.run,
    "plan": planning.run,
    "memory": memory.run,
    "scrapes": scrapes.run,
    "decision": decision.run,
}
BARS: Mapping[str, tuple[str, float]] = {
    "event_cost_ratio_100k_1k": ("<=", 2.0),
    "plan_500_nodes_s": ("<=", 1.0),
    "memory_100k_gpus_mb": ("<=", 500.0),
    "node_scrapes_per_s": (">=", 1000.0),
    "decision_p99_ms": ("<=", 100.0),
}
"""The design's figures and their bars."""


def measured(names: list[str]) -> dict[str, Any]:
    """One run of these benchmarks, with the machine before and after and the seconds that each took."""
    told: dict[str, Any] = {"machine": machine()}
    for name in names:
        begun = time.perf_counter()
        told |= BENCHES[name]()
        told[name] = {**told.get(name, {}), "took_seconds": round(time.perf_counter() - begun, 1)}
    return told | {"machine_after": machine()}


def table(told: Mapping[str, Any]) -> str:
    """The headline figures beside their bars, a line each."""
    lines = [f"{'figure':28}{'measured':>12}   {'bar':10}"]
    for name, (sign, bar) in BARS.items():
        if name in told:
            holds = told[name] <= bar if sign == "<=" else told[name] >= bar
            lines.append(f"{name:28}{told[name]:>12g}   {sign} {bar:<8g}{'' if holds else '  MISSED'}")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"))
    parser.add_argument("--only", nargs="*", choices=sorted(BENCHES), default=[])
    asked = parser.parse_args()
    logs.for_people()  # a line for each decision would be among what is measured
    told = measured(asked.only or list(BENCHES))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{table(told)}\n")


if __name__ == "__main__":
    main()
