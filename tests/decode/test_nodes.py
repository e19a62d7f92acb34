"""Node objects: supply, identity in every dialect, quarantine, and the loan annotation both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.dialects import Dialect, canonical_model, dialect
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_from_json, loan_mark_to_json
from rebalancer.adapters.decode.nodes import OPT_OUT, decode_node
from rebalancer.core.facts import LoanMark, Node, Taint
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.units import OwnerClass
from tests.decode import samples_here

POLICY = Policy(
    pools={
        "infer-l20": PoolPolicy("infer-l20", "L20", OwnerClass.INFERENCE),
        "train-h100": PoolPolicy("train-h100", "H100", OwnerClass.TRAINING),
        "train-a100-a": PoolPolicy("train-a100-a", "A100", OwnerClass.TRAINING),
        "train-a100-b": PoolPolicy("train-a100-b", "A100", OwnerClass.TRAINING),
    }
)
KNOWN = dialect(POLICY, {"ecs.gn7i": "A10"})
BARE = Dialect()


def node(labels: dict[str, Any] | None = None, known: Dialect = KNOWN, **over: Any) -> Node:
    raw: dict[str, Any] = {
        "metadata": {"name": "n", "uid": "u", "labels": labels or {}, "annotations": over.get("annotations", {})},
        "spec": {"taints": over.get("taints", []), "unschedulable": over.get("cordoned", False)},
        "status": {
            "capacity": over.get("capacity", {"nvidia.com/gpu": "8"}),
            "allocatable": over.get("allocatable", {"nvidia.com/gpu": "8"}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return decode_node(raw, known)


@pytest.mark.parametrize(
    ("sample", "model", "gpus", "capacity", "flags"),
    [
        pytest.param("node_gfd_h100", "H100", 8, 8, "ready", id="feature discovery names the card"),
        pytest.param("node_gfd_l20", "L20", 4, 4, "ready", id="an inference card"),
        pytest.param("node_gke", "L4", 1, 1, "ready", id="GKE's accelerator"),
        pytest.param("node_eks_karpenter", "A100", 8, 8, "ready", id="Karpenter's GPU name"),
        pytest.param("node_aks", "", 1, 1, "ready", id="AKS names a vendor, which is no model"),
        pytest.param("node_ack", "A10", 1, 1, "ready", id="ACK's name"),
        pytest.param("node_mig_single", "H100", 7, 7, "ready divided", id="seven slices of one profile"),
        pytest.param("node_mig_mixed", "A100", 20, 20, "ready divided", id="six cards and fourteen slices"),
        pytest.param("node_cordoned", "H100", 8, 8, "ready cordoned", id="cordoned by a person"),
        pytest.param("node_unreachable", "H100", 8, 8, "", id="unreachable is not ready"),
        pytest.param("node_plugin_restarting", "H100", 0, 8, "ready", id="its plugin restarts"),
        pytest.param("node_new_before_plugin", "L4", 0, 0, "ready starting", id="new, plugin not there yet"),
    ],
)
def test_every_recorded_node_is_what_it_is(sample: str, model: str, gpus: int, capacity: int, flags: str) -> None:
    found = decode_node(samples_here.parsed(f"k8s/{sample}.json"), BARE)
    seen = [name for name in ("ready", "divided", "cordoned", "starting") if getattr(found, name)]
    assert (found.model, found.gpus, found.capacity, sorted(seen)) == (model, gpus, capacity, sorted(flags.split()))
    assert found.quarantine == ""


@pytest.mark.parametrize(
    ("spelled", "model", "divided"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100", False),
        ("NVIDIA-H100-80GB-HBM3-SHARED", "H100", True),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "H100", True),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "A100", True),
        ("NVIDIA-H100-80GB-HBM3-MIG-1c.3g.40gb", "H100", True),
        ("NVIDIA-A40-48Q", "A40", True),
        ("GRID-A100-40C", "A100", True),
        ("nvidia-rtx-pro-6000", "RTXPRO6000", False),
        ("nvidia-h100-80gb", "H100", False),
        ("nvidia-h100-mega-80gb", "H100", False),
        ("NVIDIA H100 80GB HBM3", "H100", False),
        ("h100", "H100", False),
        ("H100_NVLINK_80GB", "H100", False),
        ("nvidia-tesla-t4", "T4", False),
        ("Tesla-V100-SXM2-16GB", "V100", False),
        ("NVIDIA-A10", "A10", False),
        ("NVIDIA-L40S", "L40S", False),
        ("NVIDIA-RTX-A6000", "A6000", False),
        ("NVIDIA-GeForce-RTX-4090", "RTX4090", False),
        ("NVIDIA-RTX-6000-Ada-Generation", "RTX6000ADA", False),
        ("NVIDIA-GH200-480GB", "GH200", False),
        ("nvidia", "", False),
        ("NVIDIA-PG509-210", "", False),
        ("A100-or-H100", "", False),
        ("ampere", "", False),
        ("", "", False),
    ],
)
def test_one_card_has_one_name(spelled: str, model: str, divided: bool) -> None:
    assert canonical_model(spelled) == (model, divided)


@pytest.mark.parametrize(
    ("labels", "pool", "model", "owner"),
    [
        pytest.param({"node-pool": "infer-l20"}, "infer-l20", "", "inference", id="the pool's own owner"),
        pytest.param(
            {"gpu-model": "L20", "workload-type": "inference"}, "infer-l20", "L20", "inference", id="composed by policy"
        ),
        pytest.param(
            {"gpu-model": "A100", "workload-type": "training"},
            "",
            "A100",
            "training",
            id="two pools fit: none is chosen",
        ),
        pytest.param({"nodepool": "train-h100"}, "train-h100", "", "training", id="a legacy key the policy knows"),
        pytest.param({"pool": "blue"}, "", "", "unknown", id="a legacy key that means something else"),
        pytest.param({"cloud.google.com/gke-nodepool": "l4"}, "l4", "", "unknown", id="a cloud's pool never lends"),
        pytest.param(
            {"hardware/gpu": "L20", "tier": "serving", "karpenter.sh/nodepool": "gpu"},
            "infer-l20",
            "L20",
            "inference",
            id="composed before a cloud's",
        ),
        pytest.param({"tier": "gold"}, "", "", "unknown", id="a tier of something else"),
        pytest.param({"accelerator": "nvidia-tesla-t4"}, "", "T4", "unknown", id="a loose key that names a card"),
        pytest.param(
            {"node.kubernetes.io/instance-type": "ecs.gn7i"}, "", "A10", "unknown", id="a machine type vouched for"
        ),
        pytest.param({"node.kubernetes.io/instance-type": "p5.48xlarge"}, "", "", "unknown", id="one that is not"),
    ],
)
def test_labels_of_every_dialect_give_pool_model_and_owner(
    labels: dict[str, str], pool: str, model: str, owner: str
) -> None:
    found = node(labels)
    assert (found.pool, found.model, found.owner.value, found.quarantine) == (pool, model, owner, "")


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        pytest.param(
            {"workload-type": "true"},
            "workload-type=true is no class; workload-type must be one of inference, training, batch",
            id="a boolean class",
        ),
        pytest.param({"tier": "True"}, "tier=True is no class; workload-type must be one of", id="a boolean tier"),
        pytest.param({"workload-type": True}, "workload-type=true is no class", id="a YAML boolean"),
        pytest.param({"workload-type": "gold"}, "workload-type=gold is no class", id="a class that is none"),
        pytest.param({"gpu-model": "yes"}, "gpu-model=yes is no model", id="a boolean model"),
        pytest.param({"gpu-model": "Z9000"}, "gpu-model=Z9000 is not a known model", id="an unheard-of model"),
        pytest.param({"node-pool": "false"}, "node-pool=false is no pool", id="a boolean pool"),
        pytest.param(
            {"gpu-model": "A100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "labels disagree on gpu-model: gpu-model says A100, nvidia.com/gpu.product says H100",
            id="canonical and discovered model",
        ),
        pytest.param(
            {"workload-type": "training", "workload": "inference"},
            "labels disagree on workload-type: workload-type says training, workload says inference",
            id="canonical and legacy class",
        ),
        pytest.param(
            {"node-pool": "train-h100", "nodepool": "infer-l20"}, "labels disagree on node-pool", id="two pools"
        ),
        pytest.param(
            {"node-pool": "train-h100", "gpu-model": "L20"}, "pool train-h100 is H100, the node says", id="wrong card"
        ),
        pytest.param(
            {"node-pool": "train-h100", "workload-type": "inference"},
            "pool train-h100 is for training",
            id="wrong class",
        ),
        pytest.param({"gpu-count": "8", "nvidia.com/gpu.count": "4"}, "labels disagree on gpu-count", id="two counts"),
    ],
)
def test_contradictions_are_quarantined_with_their_sentence(labels: dict[str, Any], why: str) -> None:
    assert why in node(labels).quarantine


def test_the_owner_taint_speaks_and_can_contradict() -> None:
    taint = {"key": "workload", "value": "training", "effect": "NoSchedule"}
    assert node(taints=[taint]).owner is OwnerClass.TRAINING
    assert "taint workload says training" in node({"workload-type": "inference"}, taints=[taint]).quarantine


def test_counts_of_slices_do_not_contradict() -> None:
    labels = {"gpu-count": "1", "nvidia.com/gpu.count": "7", "nvidia.com/gpu.product": "NVIDIA-H100-NVL-MIG-1g.12gb"}
    assert node(labels).quarantine == ""


def test_time_slices_without_a_name_of_their_own_divide_the_node() -> None:
    assert node({"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}).divided
    assert node({"nvidia.com/gpu.replicas": "4"}).divided
    assert not node({"nvidia.com/gpu.replicas": "1"}).divided


@pytest.mark.parametrize(
    ("labels", "capacity", "divided"),
    [
        ({"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"}, {}, True),
        ({"cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, {}, True),
        ({"nvidia.com/gpu.sharing-strategy": "none"}, {}, False),
        ({}, {"aliyun.com/gpu-mem": "15"}, True),
        ({}, {"nvidia.com/gpu.shared": "0", "nvidia.com/gpu": "8"}, False),
        ({}, {"nvidia.com/gpu.shared": "16"}, True),
    ],
)
def test_every_way_of_sharing_cards_divides_the_node(
    labels: dict[str, str], capacity: dict[str, str], divided: bool
) -> None:
    assert node(labels, capacity=capacity).divided is divided


def test_a_supply_that_cannot_be_read_quarantines() -> None:
    found = node(allocatable={"nvidia.com/gpu": "many"})
    assert found.gpus == 0
    assert found.quarantine.startswith("allocatable is unreadable")


@pytest.mark.parametrize(("value", "out"), [("true", True), (True, True), ("", True), ("yse", True), ("false", False)])
def test_opting_out_needs_no_exact_word(value: Any, out: bool) -> None:
    assert node(annotations={OPT_OUT: value}).opted_out is out


def test_a_node_without_a_ready_condition_is_not_ready() -> None:
    assert not decode_node({"metadata": {"name": "n", "uid": "u"}}, BARE).ready


@pytest.mark.parametrize("meta", [{}, {"name": "n"}, {"uid": "u"}, {"name": None, "uid": "u"}])
def test_a_node_without_identity_is_refused(meta: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode_node({"metadata": meta}, BARE)


NOW = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
MARK = LoanMark(
    loan="l1", node_uid="u", lender="infer-l20", borrower=OwnerClass.TRAINING, gang="ns/job/a", due=NOW, recall_at=NOW,
    phase="on-loan", plan="p1", epoch=7, opened_at=NOW, taint=Taint("workload", "inference"), taint_index=0,
)  # fmt: skip


def test_a_node_on_loan_carries_its_mark_and_stays_its_owners() -> None:
    found = node(annotations={LOAN: loan_mark_to_json(MARK)})
    assert found.loan == MARK
    assert found.owner is OwnerClass.INFERENCE


@pytest.mark.parametrize("spoilt", ["", "{", "[]", "{}", "null", '{"epoch": "x"}', '"\ud800"'])
def test_an_unreadable_mark_is_quarantined_not_forgotten(spoilt: str) -> None:
    found = node(annotations={LOAN: spoilt})
    assert found.loan is None
    assert found.quarantine.startswith("the loan annotation cannot be read")


moments = st.integers(0, 2**33).map(lambda second: datetime.fromtimestamp(second, UTC))
words = st.text(min_size=1, max_size=20)
taints = st.none() | st.builds(Taint, words, st.text(max_size=9), st.sampled_from(["NoSchedule", "NoExecute"]))
marks = st.builds(
    LoanMark, words, words, words, st.sampled_from(OwnerClass), st.text(), moments, moments, words, st.text(),
    st.integers(0, 2**53), moments, taints, st.none() | st.integers(0, 99),
)  # fmt: skip


@given(marks)
def test_every_mark_survives_the_annotation(mark: LoanMark) -> None:
    assert loan_mark_from_json(loan_mark_to_json(mark)) == mark
