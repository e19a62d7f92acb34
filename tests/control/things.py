"""Raw objects for the tests of preflight and retirement: nodes at home and lent, pods of gangs, a policy."""

from __future__ import annotations

from typing import Any

from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_to_json
from rebalancer.core.facts import LoanMark, Taint
from rebalancer.core.policy import Policy
from rebalancer.core.units import ON_LOAN, OwnerClass
from tests.core.build import START, policy, pool_policy

OWNER = {"key": "workload", "value": "inference", "effect": "NoSchedule"}
LENT = {"key": ON_LOAN, "value": "training", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/mesh", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
POLICY: Policy = policy(pool_policy("infer-a100"))
LABELS = {"node-pool": "infer-a100", "gpu-model": "A100", "workload-type": "inference", "gpu-count": "8"}


def node(name: str, *taints: dict[str, Any], labels: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    """A GPU node as the server has it; by default at home with its owner's taint."""
    amount = {"nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": LABELS if labels is None else labels, **meta,
        },
        "spec": {"taints": list(taints) or [OWNER]},
        "status": {
            "allocatable": amount, "capacity": amount, "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


def mark(name: str, epoch: int = 3, taint_index: int = 1) -> str:
    """The loan annotation of a node."""
    return loan_mark_to_json(LoanMark(
        loan=f"loan-{name}", node_uid=f"uid-{name}", lender="infer-a100", borrower=OwnerClass.TRAINING, gang="ml/train",
        due=START, recall_at=START, phase="on-loan", plan="plan-1", epoch=epoch, opened_at=START,
        taint=Taint("workload", "inference"), taint_index=taint_index,
    ))  # fmt: skip


def lent(name: str) -> dict[str, Any]:
    """A lent node: our taint in the place of the owner's, between others' taints."""
    return node(name, FOREIGN, LENT, annotations={LOAN: mark(name), "example.com/keep": "this"})


def pod(name: str, on: str = "", **changes: Any) -> dict[str, Any]:
    """A training pod of a Job that opted in; waiting unless ``on`` names a node."""
    meta = {
        "name": name, "namespace": "ml", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"gpu-rebalancer.io/reclaimable": "true", "workload-type": "training", **changes.pop("labels", {})},
        "annotations": changes.pop("annotations", {}),
        "ownerReferences": changes.pop(
            "owners", [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}]
        ),
    }  # fmt: skip
    spec = {
        "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": ON_LOAN, "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "gpu-model", "operator": "In", "values": ["A100"]}]}
        ]}}},
        **({"nodeName": on} if on else {}), **changes,
    }  # fmt: skip
    status = {"phase": "Running" if on else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
