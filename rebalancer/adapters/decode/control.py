"""The brakes' ConfigMap and namespaces, as facts; the ConfigMap both ways.

Keys are flat and plain so that ``kubectl edit`` is enough in an emergency. A brake that cannot be read is an
error, never "not braked".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.nodes import opted_out
from rebalancer.adapters.decode.objects import annotations_of, falsy, mapping, metadata, required, texts, truthy, whole
from rebalancer.core.facts import Control, Namespace
from rebalancer.core.units import Mode

STAGE = "control"
CONTROL_NAME = "gpu-rebalancer-control"
_SEPARATORS = re.compile(r"[\s,;]+", re.ASCII)


def decode_namespace(raw: Mapping[str, Any]) -> Namespace:
    """A namespace fact.

    Raises:
        DecodeError: it has no name or uid.
    """
    meta = metadata(raw)
    uid, name = required(meta.get("uid"), "namespace", "uid"), required(meta.get("name"), "namespace", "name")
    return Namespace(uid, name, opted_out(annotations_of(raw)))


def control_from_configmap(raw: Mapping[str, Any]) -> Control:
    """The brakes. The fact's uid is always ``control``: there is one, whatever object holds it.

    Raises:
        DecodeError: a value cannot be read; the caller keeps the brakes it had.
    """
    data = texts(raw.get("data"))
    limit = data.get("max-loans", "").strip()
    number = whole(limit) if limit else None
    if limit and (number is None or number < 0):
        raise DecodeError(STAGE, f"max-loans={limit[:40]} is no count")
    return Control(
        paused=_flag(data, "paused"),
        paused_pools=_names(data, "paused-pools"),
        recall_all=_flag(data, "recall-all"),
        recall_nodes=_names(data, "recall-nodes"),
        recall_pools=_names(data, "recall-pools"),
        retired=_flag(data, "retired"),
        max_loans=number,
        modes=_modes(data),
        approved=_names(data, "approved"),
        by=data.get("by", ""),
        why=data.get("why", ""),
    )


def control_to_configmap(control: Control) -> dict[str, str]:
    """The ConfigMap's ``data``; every key is written, so that an edit finds them all."""
    return {
        "paused": _spelled(control.paused),
        "paused-pools": ",".join(control.paused_pools),
        "recall-all": _spelled(control.recall_all),
        "recall-nodes": ",".join(control.recall_nodes),
        "recall-pools": ",".join(control.recall_pools),
        "retired": _spelled(control.retired),
        "max-loans": "" if control.max_loans is None else str(control.max_loans),
        "modes": ",".join(f"{pool}={mode.value}" for pool, mode in sorted(control.modes.items())),
        "approved": ",".join(control.approved),
        "by": control.by,
        "why": control.why,
    }


def is_control(raw: Mapping[str, Any]) -> bool:
    """Whether an object is the brakes' ConfigMap, by its name."""
    return mapping(raw.get("metadata")).get("name") == CONTROL_NAME


def _flag(data: Mapping[str, str], key: str) -> bool:
    value = data.get(key, "")
    if value.strip() == "" or falsy(value):
        return False
    if truthy(value):
        return True
    raise DecodeError(STAGE, f"{key}={value[:40]} is neither true nor false")


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name for name in _SEPARATORS.split(data.get(key, "")) if name)


def _modes(data: Mapping[str, str]) -> dict[str, Mode]:
    found = {}
    for entry in _names(data, "modes"):
        pool, _, mode = entry.partition("=")
        if mode not in {member.value for member in Mode} or not pool:
            raise DecodeError(STAGE, f"modes: {entry[:40]} is not pool=shadow or pool=act")
        found[pool] = Mode(mode)
    return found


def _spelled(flag: bool) -> str:
    return "true" if flag else "false"
