"""What a full fleet costs in memory: ``memory_100k_gpus_mb``.

A fresh process builds the fleet of ``fleet`` in one engine (100 blocks: 100,000 GPUs, 12,500 nodes) and tells how much
its resident memory has grown since the code was loaded, in MB of 10^6 bytes. The objects of the fleet themselves
count: they are what the engine keeps.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.fleet import NODES, blocks, policy, warm

WITHIN = 900.0  # seconds


def resident() -> int:
    """Resident bytes of this process now (Linux)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def here(count: int, *, one_pool: bool) -> dict[str, Any]:
    """Build the fleet in this process and tell its growth."""
    gc.collect()
    before = resident()
    engine = warm(blocks(count, one_pool=one_pool), policy(count, one_pool=one_pool), minutes=2)
    gc.collect()
    inventory = engine.state.inventory
    grown = (resident() - before) / 1e6
    return {
        "mb": round(grown, 1),
        "nodes": len(inventory.nodes),
        "pods": len(inventory.pods),
        "gpus": count * NODES * 8,
    }


def run(*, large: int = 100) -> dict[str, Any]:
    """The figure, from a process of its own."""
    command = [sys.executable, "-m", "tests.bench.memory", str(large)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=True)
    told = json.loads(ended.stdout)
    return {"memory_100k_gpus_mb": told["mb"], "memory": told}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(here(int(sys.argv[1]), one_pool=False)))
