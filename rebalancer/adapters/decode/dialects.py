"""The one governed map of label dialects: canonical keys, what teams and clouds write instead, their values.

Canonical keys: node-pool, accelerator, gpu-model, gpu-count, gpu-memory, network, workload-type. A legacy key
may stand in for a missing canonical one; when two disagree the object is quarantined with a sentence that
names the canonical key and the allowed values. Nothing guesses: what is not in the map is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rebalancer.core.policy import Policy
from rebalancer.core.units import OwnerClass, PoolName

POOL, MODEL, OWNER, NETWORK, COUNT = "node-pool", "gpu-model", "workload-type", "network", "gpu-count"
POOL_LEGACY = ("nodepool", "node_pool", "pool", "hardware/pool", "node.kubernetes.io/pool")
POOL_CLOUD = (
    "cloud.google.com/gke-nodepool", "karpenter.sh/nodepool", "karpenter.sh/provisioner-name",
    "kubernetes.azure.com/agentpool", "agentpool", "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "alibabacloud.com/nodepool-id", "doks.digitalocean.com/node-pool",
)  # fmt: skip
MODEL_LEGACY = (
    "hardware/gpu", "hardware/gpu-model", "hardware-gpu", "gpu_model", "gpu.model",
    "gpu-type", "gpu_type", "gpu-product",
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name", "k8s.amazonaws.com/accelerator", "aliyun.accelerator/nvidia_name",
    "gpu.nvidia.com/model", "gpu.nvidia.com/class", "doks.digitalocean.com/gpu-model",
)  # fmt: skip
MODEL_LOOSE = ("accelerator",)
"""A model at some sites, only a vendor at others (AKS): believed where it names a known model."""
OWNER_LEGACY = (
    "workload",
    "workload_type",
    "workload-tier",
    "tier",
    "gpu-tier",
    "node-tier",
    "hardware/workload",
)
NETWORK_LEGACY = ("hardware/network", "network-type", "network_type")
COUNT_LEGACY = (
    "nvidia.com/gpu.count",
    "karpenter.k8s.aws/instance-gpu-count",
    "aliyun.accelerator/nvidia_count",
)
PRESENCE = (
    "nvidia.com/gpu.present",
    "nvidia.com/gpu",
    "cloud.google.com/gke-gpu",
    "kubernetes.azure.com/accelerator",
)
DIVIDING = (
    "cloud.google.com/gke-gpu-sharing-strategy", "cloud.google.com/gke-max-shared-clients-per-gpu",
    "cloud.google.com/gke-gpu-partition-size", "nvidia.com/gpu.sharing-strategy",
)  # fmt: skip
"""Labels that say that cards are shared or partitioned, whatever the resource is called."""
OWNER_TAINTS = ("workload", "workload-type")
"""Taint keys that reserve nodes for an owner class, ``workload=training:NoSchedule``."""

_OWNER_WORDS = {
    "inference": OwnerClass.INFERENCE, "infer": OwnerClass.INFERENCE, "serving": OwnerClass.INFERENCE,
    "serve": OwnerClass.INFERENCE, "online": OwnerClass.INFERENCE,
    "training": OwnerClass.TRAINING, "train": OwnerClass.TRAINING,
    "batch": OwnerClass.BATCH, "offline": OwnerClass.BATCH,
}  # fmt: skip
ALLOWED_OWNERS = "inference, training, batch"

KNOWN_MODELS = frozenset({
    "K80", "M4", "M40", "M60", "P4", "P40", "P100", "V100", "T4", "T4G", "A2", "A10", "A10G", "A16", "A30", "A40",
    "A100", "A800", "A2000", "A4000", "A4500", "A5000", "A5500", "A6000", "L2", "L4", "L20", "L40", "L40S", "H20",
    "H100", "H200", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300",
})  # fmt: skip
_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off"})
"""Narrower than what an annotation may say: a tier named 1 is a name."""
_SPLIT = re.compile(r"[^A-Z0-9]+", re.ASCII)
_MIG = re.compile(r"[-_ ]MIG[-_ ]\d.*", re.ASCII)
_VIRTUAL = re.compile(r"(?<=[A-Z0-9])[-_ ]\d{1,3}[QCAB]$", re.ASCII)
"""The profile of a virtual GPU, as in A40-48Q (NVIDIA vGPU documentation): a slice, whatever its size."""
_SHARED = re.compile(r"[-_ ]SHARED$", re.ASCII)
_CARD = re.compile(r"(?:GTX|RTX)(?:PRO)?\d{3,4}(?:TI|SUPER|ADA|BLACKWELL)*", re.ASCII)
_CARD_NOISE = frozenset(
    {"GENERATION", "NVIDIA", "GEFORCE", "QUADRO", "EDITION", "SERVER", "WORKSTATION", "LAPTOP", "GPU"}
)


class Model(NamedTuple):
    """A canonical model; "" when unknown. ``divided``: the label speaks of MIG or time slices."""

    name: str
    divided: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the policy adds to the map: its models, its pools, and instance types that a site vouches for."""

    models: frozenset[str] = KNOWN_MODELS
    pools: Mapping[PoolName, tuple[str, OwnerClass]] = field(default_factory=dict)
    """Model ("" any) and owner class of each pool that the policy knows."""
    instance_types: Mapping[str, str] = field(default_factory=dict)

    def composed(self, model: str, owner: OwnerClass) -> PoolName:
        """The policy's only pool of this model and owner; "" when there is none or more than one."""
        fits = [name for name, pool in self.pools.items() if pool == (model, owner)]
        return fits[0] if len(fits) == 1 and model and owner is not OwnerClass.UNKNOWN else ""


def dialect(policy: Policy, instance_types: Mapping[str, str] | None = None) -> Dialect:
    """The map as a policy completes it. ``instance_types``: machine type to model, vouched for by the site."""
    return Dialect(
        models=KNOWN_MODELS | {name.upper() for name in policy.models},
        pools={name: (pool.model, pool.owner) for name, pool in policy.pools.items()},
        instance_types=instance_types or {},
    )


def canonical_model(spelled: str, models: frozenset[str] = KNOWN_MODELS) -> Model:
    """One name for the many spellings of a card: ``NVIDIA-H100-80GB-HBM3`` and ``nvidia-h100-80gb`` are H100.

    Exactly one known model must be named; vendors, families and part numbers are unknown.
    """
    upper = spelled.strip().upper()
    whole = _VIRTUAL.sub("", _SHARED.sub("", _MIG.sub("", upper)))
    divided = whole != upper
    words = [word for word in _SPLIT.split(whole) if word]
    named = {word for word in words if word in models}
    if len(named) == 1:
        return Model(next(iter(named)), divided)
    joined = "".join(word for word in words if word not in _CARD_NOISE)
    card = _CARD.fullmatch(joined) if not named else None
    return Model(card[0] if card else "", divided)


def owner_word(value: str) -> OwnerClass:
    """The owner class that a word stands for; unknown for all others."""
    return _OWNER_WORDS.get(value.strip().lower(), OwnerClass.UNKNOWN)


def is_boolean(value: str) -> bool:
    """Whether a label that should name something only says yes or no."""
    return value.strip().lower() in _BOOLEANS
