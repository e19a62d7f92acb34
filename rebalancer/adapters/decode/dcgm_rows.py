"""The one internal shape of a DCGM sample, and what its names, values and labels mean.

Every dialect (text pages, Telegraf, Vector, OTLP, ...) ends here: a :class:`Row`. Names of all exporter
generations map to the fields of a reading; DCGM's "blank" values, and what rounding makes of them, are told
from loads. Nothing is summed or judged here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple


class Row(NamedTuple):
    """One sample of one series. ``at`` None: the dialect gave no time of its own. ``line`` 0: no line."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: datetime | None = None
    line: int = 0


class Field(StrEnum):
    """Fields of a device reading that rows can fill."""

    ENGINE_ACTIVE = "engine_active"
    GPU_UTIL = "gpu_util"
    POWER = "power"
    ENERGY = "energy"
    TEMPERATURE = "temperature"
    MEMORY_USED = "memory_used"
    XID = "xid"
    XID_COUNT = "xid_count"


_NAMES: Mapping[str, Field] = {
    # field names of DCGM (dcgm_fields.h), in any case, and those of the 1.x exporter
    "dcgm_fi_prof_gr_engine_active": Field.ENGINE_ACTIVE,
    "dcgm_fi_dev_gpu_util": Field.GPU_UTIL,
    "dcgm_gpu_utilization": Field.GPU_UTIL,
    "dcgm_fi_dev_power_usage": Field.POWER,
    "dcgm_power_usage": Field.POWER,
    "dcgm_fi_dev_total_energy_consumption": Field.ENERGY,
    "dcgm_total_energy_consumption": Field.ENERGY,
    "dcgm_fi_dev_gpu_temp": Field.TEMPERATURE,
    "dcgm_gpu_temp": Field.TEMPERATURE,
    "dcgm_fi_dev_fb_used": Field.MEMORY_USED,
    "dcgm_fb_used": Field.MEMORY_USED,
    "dcgm_fi_dev_xid_errors": Field.XID,
    "dcgm_xid_errors": Field.XID,
    "dcgm_exp_xid_errors_count": Field.XID_COUNT,
}
NAMES = tuple(_NAMES)
"""The exporter's names that rows may have, in lower case and without units."""
_UNIT_SUFFIXES: Mapping[Field, tuple[str, ...]] = {
    Field.ENGINE_ACTIVE: ("_ratio",),
    Field.GPU_UTIL: ("_percent",),
    Field.POWER: ("_watts",),
    Field.TEMPERATURE: ("_celsius",),
}
"""Units that a collector may append; another unit than the field's own would be another quantity."""
_RANGES: Mapping[Field, tuple[float, float]] = {
    Field.ENGINE_ACTIVE: (0.0, 1.0),
    Field.GPU_UTIL: (0.0, 100.0),
    Field.POWER: (0.0, 10_000.0),
    Field.ENERGY: (0.0, 1e14),
    Field.TEMPERATURE: (-100.0, 300.0),
    Field.MEMORY_USED: (0.0, 1e8),
    Field.XID: (0.0, 9_999.0),
    Field.XID_COUNT: (0.0, 1e9),
}
_BLANKS = ((2147483632.0, 2147483648.0), (4294967280.0, 4294967296.0), (1.4073748835e14, 1.4073748836e14))
"""INT32 blanks up to their float32 shadow 2^31, the same unsigned, FP64 blanks at 2^47 (dcgm_structs.h)."""
_BLANKS_FROM = 1.4073748835e14
"""From here on nothing is a load: FP64 blanks, the same times 100, INT64 blanks and 9.223372036854776e+18."""


class Reading(NamedTuple):
    """A usable value, or why there is none (``blank``, ``nan``, ``range``)."""

    value: float | None
    why: str = ""


@lru_cache(maxsize=1024)
def field_of(name: str) -> Field | None:
    """The field that a metric name fills, in any exporter generation; None for all other metrics."""
    plain = name.strip().lower().replace(".", "_").removesuffix("_total")
    found = _NAMES.get(plain)
    if found is not None:
        return found
    base, _, unit = plain.rpartition("_")
    found = _NAMES.get(base)
    return found if found is not None and f"_{unit}" in _UNIT_SUFFIXES.get(found, ()) else None


def is_dcgm(name: str) -> bool:
    """Whether the name is one of the exporter's, of use here or not."""
    return name.strip().lower().startswith("dcgm")


def usable(field: Field, value: float) -> Reading:
    """The value if it can be a load: finite, not one of DCGM's blanks, within the field's range."""
    if math.isnan(value):
        return Reading(None, "nan")
    if abs(value) >= _BLANKS_FROM:
        return Reading(None, "blank")
    for low, high in _blanks(field):
        if low <= value <= high:
            return Reading(None, "blank")
    low, high = _RANGES[field]
    return Reading(value) if low <= value <= high else Reading(None, "range")


def _blanks(field: Field) -> tuple[tuple[float, float], ...]:
    """Energy is a 64-bit counter that passes the 32-bit blanks on its way."""
    return _BLANKS[2:] if field is Field.ENERGY else _BLANKS


_UUID_KEYS = ("UUID", "uuid", "gpu_uuid", "GPU_UUID")
_OTHER_ENTITIES = ("nvlink", "nvswitch", "cpu", "cpucore", "link")
_INSTANCE_KEYS = ("GPU_I_ID", "gpu_i_id", "gpu_instance_id")
_MIG_UUID = re.compile(r"MIG-(GPU-[0-9A-Fa-f-]+)/(\d+)/\d+", re.ASCII)
"""The older form of a MIG device id: parent, GPU instance, compute instance."""


class Device(NamedTuple):
    """Identity of a GPU, or of a MIG instance when ``instance`` is not empty."""

    uuid: str
    instance: str


def device_of(labels: Mapping[str, str]) -> Device | None:
    """Whose row it is; None for links, switches, CPUs and rows that name no GPU."""
    if _first(labels, _OTHER_ENTITIES):
        return None
    uuid = _first(labels, _UUID_KEYS)
    if uuid == "":
        return None
    older = _MIG_UUID.fullmatch(uuid) if uuid.startswith("MIG-") else None
    return Device(older[1], older[2]) if older else Device(uuid, _first(labels, _INSTANCE_KEYS))


_POD_KEYS = (("exported_pod", "exported_namespace"), ("pod", "namespace"), ("pod_name", "pod_namespace"))


def pod_of(labels: Mapping[str, str], *, exported_only: bool = False) -> str:
    """``namespace/name`` of the pod that the exporter attributed, "" when none.

    ``exported_only``: the page was relabelled by a Prometheus that keeps its target's own pod in ``pod``.
    """
    for pod_key, namespace_key in _POD_KEYS[:1] if exported_only else _POD_KEYS:
        if labels.get(pod_key):
            namespace = labels.get(namespace_key) or ("" if "exported" in pod_key else labels.get("pod_namespace", ""))
            return f"{namespace}/{labels[pod_key]}"
    return ""


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    for key in keys:  # a plain loop: this is asked several times of each of a fleet's rows
        if found := labels.get(key):
            return found
    return ""
