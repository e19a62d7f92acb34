"""Node objects into node facts.

Supply is what the resource names say, identity what the governed labels say. A node that promises GPUs and
has none registered is starting, not empty; a node that contradicts itself is quarantined, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.dialects import Dialect
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.loan_marks import LOAN, loan_mark_from_json
from rebalancer.adapters.decode.moments import UNKNOWN_MOMENT, moment
from rebalancer.adapters.decode.node_labels import identify
from rebalancer.adapters.decode.objects import (
    annotations_of,
    condition,
    falsy,
    items,
    labels_of,
    mapping,
    metadata,
    required,
    text,
)
from rebalancer.adapters.decode.resources import gpu_counts, is_divided, sells_fractions
from rebalancer.core.facts import LoanMark, Node, Taint
from rebalancer.core.units import PREFIX

STAGE = "node"
OPT_OUT = PREFIX + "opt-out"


def opted_out(annotations: Mapping[str, str]) -> bool:
    """Whether the opt-out annotation is there and does not say no; a spelling error opts out."""
    return OPT_OUT in annotations and not falsy(annotations[OPT_OUT])


def decode_node(raw: Mapping[str, Any], known: Dialect) -> Node:
    """A node fact.

    Raises:
        DecodeError: it has no name or uid.
    """
    meta, annotations, labels = metadata(raw), annotations_of(raw), labels_of(raw)
    complaints: list[str] = []
    taints = node_taints(raw)
    mark = _mark(annotations, complaints)
    aside = (mark.taint,) if mark is not None and mark.taint is not None else ()
    seen = identify(labels, (*taints, *aside), known)
    allocatable = _supply(raw, "allocatable", complaints)
    capacity = _supply(raw, "capacity", complaints)
    divided = seen.divided or sells_fractions(mapping(raw.get("status")).get("capacity"))
    divided = divided or any(is_divided(name) for name, amount in capacity.items() if amount)
    return Node(
        uid=required(meta.get("uid"), STAGE, "uid"),
        name=required(meta.get("name"), STAGE, "name"),
        pool=seen.pool,
        model=seen.model,
        owner=seen.owner,
        gpus=sum(allocatable.values()),
        capacity=sum(capacity.values()),
        created_at=moment(meta.get("creationTimestamp")) or UNKNOWN_MOMENT,
        ready=condition(raw, "Ready").get("status") == "True",
        cordoned=mapping(raw.get("spec")).get("unschedulable") is True,
        starting=seen.labelled and sum(capacity.values()) == 0,
        divided=divided,
        opted_out=opted_out(annotations),
        quarantine="; ".join(part for part in (seen.quarantine, *complaints) if part),
        network=seen.network,
        labels=labels,
        taints=taints,
        loan=mark,
        resource_version=text(meta.get("resourceVersion")),
    )


def node_taints(raw: Mapping[str, Any]) -> tuple[Taint, ...]:
    """The node's taints in their order, which restoring keeps."""
    listed = items(mapping(raw.get("spec")).get("taints"))
    return tuple(
        Taint(text(item.get("key")), text(item.get("value")), text(item.get("effect")))
        for item in listed
        if text(item.get("key"))
    )


def _supply(raw: Mapping[str, Any], which: str, complaints: list[str]) -> dict[str, int]:
    try:
        return gpu_counts(mapping(raw.get("status")).get(which))
    except DecodeError as unreadable:
        complaints.append(f"{which} is unreadable: {unreadable.reason}")
        return {}


def _mark(annotations: Mapping[str, str], complaints: list[str]) -> LoanMark | None:
    if LOAN not in annotations:
        return None
    try:
        return loan_mark_from_json(annotations[LOAN])
    except DecodeError as unreadable:
        complaints.append(f"the loan annotation cannot be read: {unreadable.reason}")
        return None
