"""PodDisruptionBudgets into facts.

A status that does not reflect the spec yet is marked, not believed; a budget without status allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.objects import mapping, metadata, required, text, whole
from rebalancer.adapters.decode.placement import label_selector
from rebalancer.core.facts import Budget, Selector

STAGE = "budget"


def decode_budget(raw: Mapping[str, Any]) -> Budget:
    """A budget fact.

    Raises:
        DecodeError: it has no name, namespace or uid.
    """
    meta, spec, status = metadata(raw), mapping(raw.get("spec")), mapping(raw.get("status"))
    generation, observed = whole(meta.get("generation")), whole(status.get("observedGeneration"))
    return Budget(
        uid=required(meta.get("uid"), STAGE, "uid"),
        namespace=required(meta.get("namespace"), STAGE, "namespace"),
        name=required(meta.get("name"), STAGE, "name"),
        selector=_selector(raw, spec),
        allowed=max(whole(status.get("disruptionsAllowed")) or 0, 0),
        expected=whole(status.get("expectedPods")) or 0,
        healthy=whole(status.get("currentHealthy")) or 0,
        min_available=_threshold(spec.get("minAvailable")),
        max_unavailable=_threshold(spec.get("maxUnavailable")),
        current=bool(status) and (generation is None or (observed is not None and observed >= generation)),
    )


def _selector(raw: Mapping[str, Any], spec: Mapping[str, Any]) -> Selector | None:
    """An empty selector matches every pod in policy/v1 and none in policy/v1beta1."""
    found = label_selector(spec.get("selector"))
    return None if found == () and text(raw.get("apiVersion")) == "policy/v1beta1" else found


def _threshold(value: object) -> int | str | None:
    number = whole(value)
    return number if number is not None else (text(value) or None)
