"""Pods for these tests: the recorded ones, and a builder of others like them."""

from __future__ import annotations

from typing import Any

from rebalancer.adapters.decode.claims import Claim
from rebalancer.adapters.decode.pods import decode_pod
from rebalancer.core.facts import Pod
from tests.decode import samples_here

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "eval", "uid": "o", "controller": True}


P = "gpu-rebalancer.io/"


def pod(
    labels: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    owners: list[Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    meta = {"name": "p-0", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-03-02T14:00:00Z"}
    raw = {
        "metadata": {**meta, "labels": labels, "annotations": annotations, "ownerReferences": owners or []},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], **spec},
        "status": {"phase": "Running", **(status or {})},
    }
    return decode_pod(raw)


def sample(name: str, claims: dict[tuple[str, str], Claim] | None = None) -> Pod:
    return decode_pod(samples_here.parsed(f"k8s/{name}.json"), claims)
