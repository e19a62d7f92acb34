"""Foreign messages for these tests: the recorded ones, and builders of others like them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item
from rebalancer.adapters.decode.dcgm_nodes import NodeEntry, directory
from rebalancer.adapters.decode.foreign import decode_foreign
from tests.decode import samples_here

SIX = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)


def told(fmt: str, value: Any, headers: Any = (), key: bytes | None = None) -> list[Item]:
    return decode_foreign(fmt, key, value if isinstance(value, bytes) else json.dumps(value).encode(), headers)


def sample(fmt: str, name: str) -> list[Item]:
    """A recorded message, as the broker would hand it over."""
    if name.endswith(".txt"):
        return decode_foreign(fmt, None, samples_here.raw(f"kafka/{name}"))
    recorded = samples_here.parsed(f"kafka/{name}.json")
    key = recorded["key"].encode() if recorded["key"] else None
    headers = [(name, value.encode()) for name, value in recorded["headers"].items()]
    value = None if recorded["value"] is None else json.dumps(recorded["value"]).encode() + b"\n"
    return decode_foreign(fmt, key, value, headers)


NODE = directory([NodeEntry("u7", "gpu-h100-07", 8)])


VOLCANO = "7e570001-0000-4000-8000-000000000001"


FRAUD = "7e570007-0000-4000-8000-000000000007"


POD = samples_here.parsed("k8s/pod_volcano_worker.json")


POINT = {"attributes": [{"key": "UUID", "value": {"stringValue": "G"}}], "timeUnixNano": "1772517600000000000"}


def otlp_metric(body: dict[str, Any]) -> dict[str, Any]:
    metric = {"name": "DCGM_FI_DEV_GPU_UTIL", **body}
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}


def cloud_event(**over: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "type": "dev.knative.apiserver.resource.add", "data": POD, **over}
