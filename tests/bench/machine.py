"""On what machine, and beside what load, figures were taken."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def machine() -> dict[str, Any]:
    """Cores, load averages of 1, 5 and 15 minutes, Python and platform; load is None where the system tells none."""
    try:
        load = [round(value, 2) for value in os.getloadavg()]
    except OSError:
        load = None
    return {
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": load,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
    }
