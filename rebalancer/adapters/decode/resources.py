"""Which resource names are GPUs, and how many of them a list holds or a pod asks for.

Units are those of the resource names: a whole GPU, a MIG instance or a share is one unit of its kind. Labels
that count something are hints only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.objects import annotations_of, items, mapping
from rebalancer.adapters.decode.quantities import count

WHOLE = "nvidia.com/gpu"
FRACTIONS = frozenset({
    "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "tencent.com/vcuda-core", "tencent.com/vcuda-memory",
    "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/gpu-number", "volcano.sh/gpu-memory",
    "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/vgpu",
})  # fmt: skip
"""Parts of GPUs as sharing schedulers sell them: what such a pod holds cannot be counted in GPUs."""
FRACTION_MARKS = ("gpu-fraction", "gpu-memory", "runai/gpu-fraction")
"""Pod annotations that ask for a part of a GPU instead of naming a resource (KAI)."""
_DIVIDED = re.compile(r"nvidia\.com/(?:gpu\.shared|mig-[0-9][A-Za-z0-9._+-]*)", re.ASCII)


def is_gpu(name: str) -> bool:
    """Whether a resource name counts GPUs, whole or divided."""
    return name == WHOLE or is_divided(name)


def is_divided(name: str) -> bool:
    """Whether a resource name counts MIG instances or time slices."""
    return _DIVIDED.fullmatch(name) is not None


def shares_gpus(raw: Mapping[str, Any]) -> bool:
    """Whether a pod asks for a part of a GPU in a unit that is no count."""
    spec = mapping(raw.get("spec"))
    asked = [mapping(c.get("resources")) for key in ("containers", "initContainers") for c in items(spec.get(key))]
    names = {name for resources in asked for which in ("requests", "limits") for name in mapping(resources.get(which))}
    marked = any(annotations_of(raw).get(key) for key in FRACTION_MARKS)
    return not names.isdisjoint(FRACTIONS) or (marked and not any(is_gpu(name) for name in names))


def sells_fractions(resources: object) -> bool:
    """Whether a node's resource list offers parts of GPUs."""
    return not FRACTIONS.isdisjoint(mapping(resources))


def gpu_counts(resources: object) -> dict[str, int]:
    """GPUs by resource name in a resource list.

    Raises:
        DecodeError: an amount of GPUs cannot be read.
    """
    return {name: count(amount) for name, amount in mapping(resources).items() if is_gpu(name)}


def pod_gpus(spec: Mapping[str, Any]) -> int:
    """GPUs that a pod holds for its whole life, by the scheduler's formula.

    Per resource: the larger of (containers + sidecars) and the peak of the init containers, where a sidecar
    (an init container that always restarts) adds to all that start after it; plus overhead. Pod-level
    resources never replace devices. Source: k8s.io/component-helpers/resource/helpers.go ``PodRequests``.

    Raises:
        DecodeError: an amount of GPUs cannot be read.
    """
    main = [_asked(container) for container in items(spec.get("containers"))]
    inits = [(_asked(c), c.get("restartPolicy") == "Always") for c in items(spec.get("initContainers"))]
    overhead = gpu_counts(spec.get("overhead"))
    names = {name for asked in (*main, *(asked for asked, _ in inits), overhead) for name in asked}
    return sum(_held(name, main, inits) + overhead.get(name, 0) for name in names)


def _held(name: str, main: list[dict[str, int]], inits: list[tuple[dict[str, int], bool]]) -> int:
    sidecars = peak = 0
    for asked, stays in inits:
        peak = max(peak, sidecars + asked.get(name, 0))
        sidecars += asked.get(name, 0) if stays else 0
    return max(sum(asked.get(name, 0) for asked in main) + sidecars, peak)


def _asked(container: Mapping[str, Any]) -> dict[str, int]:
    """Requests, or limits where only they are set (the API server copies them later)."""
    resources = mapping(container.get("resources"))
    return {**gpu_counts(resources.get("limits")), **gpu_counts(resources.get("requests"))}
