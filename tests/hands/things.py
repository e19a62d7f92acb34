"""Raw objects and calls for the tests of the hands, fake and real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.lease import Held
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.facts import LoanMark, Taint
from rebalancer.core.plan import Member
from rebalancer.core.policy import Acting
from rebalancer.core.units import OwnerClass

NOW = datetime(2026, 3, 2, 22, tzinfo=UTC)
OWNER = Taint("workload", "inference")
FOREIGN = {"key": "example.com/maintenance", "value": "soon", "effect": "PreferNoSchedule"}
DATED = {"key": "example.com/dated", "effect": "NoExecute", "timeAdded": "2026-03-01T08:00:00Z"}
RAW_OWNER = {"key": "workload", "value": "inference", "effect": "NoSchedule"}
LABELS = {"node-pool": "infer-l20", "gpu-model": "L20", "accelerator": "nvidia", "workload-type": "inference"}


def raw_node(name: str, *taints: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(LABELS), "annotations": annotations or {}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}},
    }


def raw_pod(name: str, node: str = "", nominated: str = "", space: str = "team") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        },
        "status": {
            "phase": "Running" if node else "Pending",
            **({"nominatedNodeName": nominated} if nominated else {}),
        },
    }


def member(name: str, uid: str = "", space: str = "team") -> Member:
    return Member(uid or f"uid-{name}", space, name, "n1", 8)


def mark(node_uid: str, taint: Taint | None = OWNER, index: int | None = 0) -> LoanMark:
    hour = timedelta(hours=1)
    return LoanMark(
        "loan-1", node_uid, "infer-l20", OwnerClass.TRAINING, "team/gang", NOW + hour, NOW + hour / 2,
        "on-loan", "plan-1", 3, NOW, taint, index,
    )  # fmt: skip


def hands(api: Any, remaining: float = 60.0, seconds: float = 2.0) -> ClusterHands:
    """Hands that hold a lease for so long, with calls of at most so many seconds."""
    acting = Acting(call_timeout=timedelta(seconds=seconds))
    return ClusterHands(api, Held(3, remaining, lambda: 0.0), acting, Reading(), Metrics())
