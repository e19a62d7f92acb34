"""Which resource names are GPUs, and how many of them a list holds or a pod asks for.

Units are those of the resource names: a whole GPU, a MIG instance or a share is one unit of its kind. Labels
that count something are hints only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.objects import items, mapping
from rebalancer.adapters.decode.quantities import count

WHOLE = "nvidia.com/gpu"
_DIVIDED = re.compile(r"nvidia\.com/(?:gpu\.shared|mig-[0-9]+g\.[0-9]+gb(?:\.[A-Za-z0-9._-]+)?)", re.ASCII)


def is_gpu(name: str) -> bool:
    """Whether a resource name counts GPUs, whole or divided."""
    return name == WHOLE or is_divided(name)


def is_divided(name: str) -> bool:
    """Whether a resource name counts MIG instances or time slices."""
    return _DIVIDED.fullmatch(name) is not None


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
