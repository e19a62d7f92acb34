"""The policy of a story: the real one with its times pressed together, so that a night takes minutes.

What keeps its length whatever the policy says: the return starts 60 s before a loan is due (`return_.MARGIN`), the
engine ticks once a second, and a window opens and closes at whole minutes.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import yaml

DWELL = 14.0
"""Seconds a node must have been idle; above the freshness, or idleness is never proven."""
FRESHNESS = 12.0
"""Seconds; utilisation is looked at once a second, but two cores may be busy with several servers."""
LEAD = 6.0
"""Seconds allowed for a gang's notice and grace, and the return time that is assumed until one was measured."""
OWNER_TAINT = "workload=inference:NoSchedule"

ACTIVITIES: Mapping[str, Any] = {"dwell": f"{DWELL:g}s", "freshness": f"{FRESHNESS:g}s"}
PACE: Mapping[str, Any] = {
    "evictions_per_second": 20,
    "nodes_per_pool": 40,
    "nodes_per_cluster": 200,
    "per": "30s",
    "circuit_share": "100%",
}
BORROWING: Mapping[str, Any] = {
    "min_age": "3s",  # pressed like the dwell it would be a tenth of a second: two cores need longer to tell a budget
    "min_runtime": "200ms",
    "cooldown": "2m",  # longer than a story: who was evicted does not come back in the middle of it
    "cooldown_max": "4m",
    "lead_time": f"{LEAD:g}s",
    "max_grace": f"{LEAD:g}s",
    "max_loan": "30m",
    "gang_cost_gpu_seconds": 60,
}
SIGNALS: Mapping[str, Any] = {"debounce": "2s", "pending_debounce": "1s", "headroom_prior_share": 0}
ACTING: Mapping[str, Any] = {
    "settle": "1s",
    "call_timeout": "2s",
    "retry_first": "1s",
    "retry_max": "4s",
    "retry_deadline": "30s",
    "stuck_after": "4s",
    "poll": "500ms",
    "kafka_silent": "10s",
    "quarantine_ttl": "8s",
    "plan_validity": "2m",
}


class Pool(NamedTuple):
    """One lending pool of a story: its name, its GPU model, how many nodes it has, and when it lends."""

    name: str
    model: str
    nodes: int = 1
    windows: Any = "always"
    mode: str = "act"
    floor_nodes: int = 0
    floor_share: str = "0%"

    def entry(self) -> dict[str, Any]:
        """As the policy file has it."""
        return {
            "model": self.model,
            "owner": "inference",
            "mode": self.mode,
            "owner_taint": OWNER_TAINT,
            "lends_to": ["training", "batch"],
            "windows": self.windows,
            "floor_nodes": self.floor_nodes,
            "floor_share": self.floor_share,
        }


def policy(pools: Sequence[Pool], **sections: Mapping[str, Any]) -> str:
    """The file's text; ``sections`` override single values, such as ``acting={"settle": "2s"}``."""
    usual = {
        "activities": ACTIVITIES,
        "pace": PACE,
        "borrowing": BORROWING,
        "signals": SIGNALS,
        "acting": ACTING,
    }
    given: dict[str, Any] = {name: {**values, **sections.get(name, {})} for name, values in usual.items()}
    given["models"] = sorted({pool.model for pool in pools})
    return yaml.safe_dump({"pools": {pool.name: pool.entry() for pool in pools}, **given}, sort_keys=False)


def window(start: datetime, end: datetime) -> list[dict[str, str]]:
    """A window in UTC over the whole minutes that contain ``start`` and end at ``end``."""
    return [{"name": "night", "zone": "UTC", "from": f"{start:%H:%M}", "to": f"{end:%H:%M}"}]


def minute_after(moment: datetime, least: timedelta) -> datetime:
    """The first whole minute that lies at least so long after the moment."""
    later = moment + least
    whole = later.replace(second=0, microsecond=0)
    return whole if whole == later else whole + timedelta(minutes=1)
