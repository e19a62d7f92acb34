"""The GPUs that the played exporters read: their load now, and what follows from it physically.

A load in percent is given from outside; power, temperature and the energy counter follow, so that whoever
judges a reading by its witnesses judges as on real cards. Time is the real clock's.
"""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.servers.manifests import PRODUCTS

Load = float | Sequence[float] | None
"""Percent of every GPU, or of each one; None: the exporter of that node says nothing."""
Loads = Mapping[str, Load] | Callable[[str], Load]

IDLE_WATTS, WATTS_PER_PERCENT = 60.0, 3.4  # an A100 SXM between idle and its limit of 400 W
IDLE_CELSIUS, CELSIUS_PER_PERCENT = 31.0, 0.35
MEMORY_MIB = 81_920.0
_NAMESPACE = uuid.UUID("6f2a1c1e-2f0e-4b7e-9d0a-5a5b7c1d9e10")  # makes a card's UUID the same in every run

HELP = {
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", "Ratio of time the graphics engine is active."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "Total energy consumption since boot (in mJ)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
}
"""Metric names of dcgm-exporter's default list, their type and help."""


@dataclass(slots=True)
class Card:
    """One GPU; `energy` in millijoules as the counter stands at `at` (monotonic seconds)."""

    number: int
    uuid: str
    load: float = 0.0
    energy: float = 1e9
    at: float = field(default_factory=time.monotonic)

    @property
    def watts(self) -> float:
        return IDLE_WATTS + WATTS_PER_PERCENT * self.load

    def turn(self, load: float) -> None:
        """Count the energy spent under the load until now, then work under the new one."""
        now = time.monotonic()
        self.energy += self.watts * (now - self.at) * 1000
        self.at, self.load = now, load

    def readings(self) -> dict[str, float]:
        """Value by metric name."""
        return {
            "DCGM_FI_DEV_GPU_UTIL": float(round(self.load)),
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": round(self.load / 100, 6),
            "DCGM_FI_DEV_POWER_USAGE": round(self.watts, 3),
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": float(round(self.energy)),
            "DCGM_FI_DEV_GPU_TEMP": float(round(IDLE_CELSIUS + CELSIUS_PER_PERCENT * self.load)),
            "DCGM_FI_DEV_FB_USED": 4.0 if self.load == 0 else round(MEMORY_MIB * 0.8),
            "DCGM_FI_DEV_XID_ERRORS": 0.0,
        }


class Meter:
    """The cards of one node."""

    def __init__(self, node: str, gpus: int, model: str) -> None:
        self.node, self.product = node, PRODUCTS.get(model, model)
        self.cards = [Card(number, f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{number}')}") for number in range(gpus)]

    def turn(self, load: float | Sequence[float]) -> None:
        """Set the load of every card, or of each."""
        each = [load] * len(self.cards) if isinstance(load, int | float) else list(load)
        for card, percent in zip(self.cards, each, strict=True):
            card.turn(float(percent))


def load_of(loads: Loads, node: str) -> Load:
    """The load of a node; one that the mapping does not name idles."""
    return loads(node) if callable(loads) else loads.get(node, 0.0)
