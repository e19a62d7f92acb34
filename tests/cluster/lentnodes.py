"""Nodes as they are while they are lent, made by hand: for tests of what takes loans home without having made them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_to_json
from rebalancer.core.facts import LoanMark, Taint
from rebalancer.core.units import ON_LOAN, OwnerClass
from tests.servers.controlplane import ControlPlane

FIRST = {"key": "example.com/mesh", "value": "on", "effect": "PreferNoSchedule"}
LAST = {"key": "example.com/rack", "effect": "PreferNoSchedule"}
OWNER = {"key": "workload", "value": "inference", "effect": "NoSchedule"}
AT_HOME = [FIRST, OWNER, LAST]
"""Taints of a node at home: the owner's between two of other people."""


def lend(control_plane: ControlPlane, name: str, *, hours: float = 3.0, **changes: Any) -> None:
    """Make a node lent for so many hours, at whose end it is due; ``changes`` are to its mark's text."""
    at = f"/api/v1/nodes/{name}"
    uid = control_plane.api.get(at)["metadata"]["uid"]
    now = datetime.now(UTC)
    mark = LoanMark(
        loan=f"loan-{name}", node_uid=uid, lender="infer-a100", borrower=OwnerClass.TRAINING, gang="ml/job/train",
        due=now + timedelta(hours=hours), recall_at=now + timedelta(hours=hours) - timedelta(minutes=5),
        phase="on-loan", plan="plan-1", epoch=1, opened_at=now, taint=Taint("workload", "inference"), taint_index=1,
    )  # fmt: skip
    spelled = orjson.dumps({**orjson.loads(loan_mark_to_json(mark)), **changes}).decode()
    taints = [FIRST, {"key": ON_LOAN, "value": "training", "effect": "NoSchedule"}, LAST]
    marks = {LOAN: spelled, "example.com/keep": "this"}
    control_plane.api.patch(at, {"metadata": {"annotations": marks}, "spec": {"taints": taints}})


def taints(control_plane: ControlPlane, name: str) -> list[dict[str, str]]:
    """A node's taints, in order."""
    found: list[dict[str, str]] = control_plane.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints", [])
    return found


def ours(control_plane: ControlPlane) -> list[str]:
    """Everything of ours that stands on any node or pod."""
    raws = [*control_plane.api.items("/api/v1/nodes"), *control_plane.api.items("/api/v1/pods")]
    found = []
    for raw in raws:
        keys = [*raw["metadata"].get("annotations", {}), *(one["key"] for one in raw["spec"].get("taints", []))]
        found += [f"{raw['metadata']['name']} {key}" for key in keys if key.startswith("gpu-rebalancer.io/")]
    return found
