"""The demo's day: the shipped scenario ``demo`` under a seed, as long as asked for.

Its numbers are data in ``scenarios/demo.yaml``; only what options may change is changed here.
"""

from __future__ import annotations

from typing import Any

from rebalancer.simulate.files import open_scenario
from rebalancer.simulate.scenario import Scenario


def demo(seed: int | None = None, days: float | None = None, name: str = "demo") -> Scenario:
    """The named shipped scenario; None leaves seed and length to it."""
    overrides: dict[str, Any] = {}
    if seed is not None:
        overrides["seed"] = seed
    if days is not None:
        overrides["hours"] = days * 24.0
    return open_scenario(name, **overrides)
