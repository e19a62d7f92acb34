"""That no object, event, claim or set of labels breaks a decoder; and times in every spelling."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.claims import decode_claim
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading, decode_object
from rebalancer.adapters.decode.moments import epoch, moment
from rebalancer.adapters.decode.watch import decode_watch

META: dict[str, Any] = {"name": "x", "namespace": "ns", "uid": "u"}


@pytest.mark.parametrize(
    ("spelled", "at"),
    [
        ("2026-03-03T06:00:00Z", datetime(2026, 3, 3, 6, tzinfo=UTC)),
        ("2026-03-03T06:00:00.123456789Z", datetime(2026, 3, 3, 6, 0, 0, 123456, tzinfo=UTC)),
        ("2026-03-03T06:00:00.4Z", datetime(2026, 3, 3, 6, 0, 0, 400000, tzinfo=UTC)),
        ("2026-03-03 06:00:00+0530", datetime(2026, 3, 3, 0, 30, tzinfo=UTC)),
        ("2026-12-31T23:59:60Z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-03-03T06:00:00", None),
        ("2026-02-30T06:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("2026-03-03T06:00:00+99:99", None),
        ("now", None),
        (None, None),
        (17, None),
    ],
)
def test_times_are_utc_or_absent(spelled: Any, at: datetime | None) -> None:
    assert moment(spelled) == at


@pytest.mark.parametrize("number", [True, None, "x", -1, float("inf"), float("nan"), 10**400, [], "1e400"])
def test_what_is_no_epoch_is_absent(number: Any) -> None:
    assert epoch(number) is None


KEYS = st.sampled_from([
    "metadata", "spec", "status", "labels", "annotations", "name", "namespace", "uid", "containers", "resources",
    "requests", "nvidia.com/gpu", "ownerReferences", "controller", "kind", "tolerations", "affinity", "nodeAffinity",
    "initContainers", "conditions", "type", "taints", "selector", "matchLabels", "resourceClaims", "capacity",
    "gpu-model", "workload-type", "node-pool", "gpu-rebalancer.io/loan", "data", "paused", "replicatedJobs",
    "workerGroupSpecs", "minMember", "pytorchReplicaSpecs", "devices", "allocation", "results", "priority",
])  # fmt: skip


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["u", "2k", "Ready"])
)


JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


KINDS = [
    "Pod",
    "Node",
    "PodDisruptionBudget",
    "Namespace",
    "ConfigMap",
    "PodGroup",
    "JobSet",
    "RayCluster",
    "Job",
    "TFJob",
]


OBJECTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS) | JSON, "metadata": st.just(META) | JSON},
    optional={"spec": JSON, "status": JSON, "data": JSON},
)


@given(OBJECTS)
def test_no_object_raises_anything_but_a_decode_error(raw: dict[str, Any]) -> None:
    try:
        fact = decode_object(raw, Reading())
    except DecodeError:
        return
    assert fact is None or fact.uid


@given(OBJECTS, st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "x"]) | JSON)
def test_no_event_raises_anything_but_a_decode_error(raw: dict[str, Any], kind: Any) -> None:
    try:
        seen = decode_watch({"type": kind, "object": raw}, Reading())
    except DecodeError:
        return
    assert len(seen) <= 1


@given(OBJECTS)
def test_no_claim_raises_anything_but_a_decode_error(raw: dict[str, Any]) -> None:
    try:
        claim = decode_claim(raw)
    except DecodeError:
        return
    assert claim.gpus is None or isinstance(claim.gpus, int)


@given(st.dictionaries(KEYS | st.text(max_size=12), st.text(max_size=12) | st.booleans(), max_size=8))
def test_no_labels_break_a_node(labels: dict[str, Any]) -> None:
    raw = {"kind": "Node", "metadata": {**META, "labels": labels}, "status": {"capacity": {}}}
    fact = decode_object(raw, Reading())
    assert fact is not None
    assert fact.uid == "u"
