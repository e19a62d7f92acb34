"""Rows into one sample per node: one reading per GPU, whatever copies and dialects the page had.

Identity is the UUID (and the GPU instance under MIG). Copies of a device, made per pod, job, process, claim
or virtual GPU, are one device; of differing copies the busier one counts, so that no copy can make a GPU look
idle. The parent's row of a divided GPU says nothing about its parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from rebalancer.adapters.decode.dcgm_nodes import Directory, NodeEntry, resolve_node
from rebalancer.adapters.decode.dcgm_rows import Device, Field, Row, device_of, field_of, pod_of, usable
from rebalancer.core.telemetry import DeviceReading, NodeSample

SPREAD = timedelta(seconds=180)
"""Rows of one page this much older than its newest are leftovers of series that ended."""
APPLICATION_XIDS = frozenset({13, 31, 43, 45})
"""Codes that programs cause (NVIDIA's XID catalogue); a hardware code beside them matters more."""


_Scrape: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Assembled:
    """Samples by node, sorted by name, and what was dropped: counts by reason."""

    samples: tuple[NodeSample, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Gathered:
    """Usable rows of one node."""

    node: NodeEntry
    rows: list[tuple[Device, Field, float, Row]] = field(default_factory=list)


def assemble(rows: Iterable[Row], known: Directory, scraped_at: datetime) -> Assembled:
    """Collapse rows into node samples. ``scraped_at`` stands in where rows bring no time of their own.

    Rows of no known node are counted as ``unknown-node``. GPUs teach the directory where they are.
    """
    dropped: Counter[str] = Counter()
    listed = list(rows)
    exported = frozenset(_scrape(row) for row in listed if row.labels.get("exported_pod"))
    gathered: dict[str, _Gathered] = {}
    for row in listed:
        _gather(row, known, gathered, dropped)
    samples = [_sample(item, known, scraped_at, exported, dropped) for _, item in sorted(gathered.items())]
    return Assembled(tuple(sample for sample in samples if sample.devices), dict(sorted(dropped.items())))


def _gather(row: Row, known: Directory, gathered: dict[str, _Gathered], dropped: Counter[str]) -> None:
    device = device_of(row.labels)
    if device is None:
        dropped["no-gpu"] += 1
        return
    target = field_of(row.name)
    if target is None:
        dropped["unused-metric"] += 1
        return
    reading = usable(target, _number(target, row))
    if reading.value is None:
        dropped[reading.why] += 1
        return
    node = resolve_node(row.labels, device.uuid, known)
    if node is None:
        dropped["unknown-node"] += 1
        return
    known.learn(device.uuid, node)
    gathered.setdefault(node.name, _Gathered(node)).rows.append((device, target, reading.value, row))


def _number(target: Field, row: Row) -> float:
    """The counter of recent XIDs carries the code as a label; its value only says whether there were any."""
    code = row.labels.get("xid", "")
    if target is not Field.XID_COUNT:
        return row.value
    return float(code) if code.isascii() and code.isdigit() and row.value > 0.0 else 0.0


def _sample(
    item: _Gathered, known: Directory, scraped_at: datetime, exported: frozenset[_Scrape], dropped: Counter[str]
) -> NodeSample:
    at = max((row.at or scraped_at for *_, row in item.rows), default=scraped_at)
    devices: dict[Device, dict[Field, list[float]]] = {}
    pods: dict[Device, set[str]] = {}
    for device, target, value, row in item.rows:
        if at - (row.at or at) > SPREAD:
            dropped["stale"] += 1
            continue
        devices.setdefault(device, {}).setdefault(target, []).append(value)
        pods.setdefault(device, set()).update(_holders(row, known, exported))
    _hand_down(devices)
    readings = tuple(_reading(key, values, pods.get(key, set())) for key, values in sorted(devices.items()))
    return NodeSample(item.node.uid, item.node.name, at, item.node.expected, readings)


def _scrape(row: Row) -> _Scrape:
    """Who scraped the row: rows of one job are relabelled alike, those of another cluster may not be."""
    return row.labels.get("cluster", ""), row.labels.get("job", "")


def _holders(row: Row, known: Directory, exported: frozenset[_Scrape]) -> set[str]:
    """The pod that the row names, unless it is known to ask for no GPU: then it is the exporter itself."""
    pod = pod_of(row.labels, exported_only=_scrape(row) in exported)
    entry = known.pods.get(pod)
    return set() if pod == "" or (entry is not None and entry.gpus == 0) else {pod}


_XIDS = (Field.XID, Field.XID_COUNT)
_PHYSICAL = (Field.POWER, Field.ENERGY, Field.TEMPERATURE, *_XIDS)


def _hand_down(devices: dict[Device, dict[Field, list[float]]]) -> None:
    """Where a GPU has instances its own row goes; what the whole card suffers, every instance suffers."""
    parents = {device for device in devices if device.instance == ""}
    for device in [device for device in devices if device.instance != ""]:
        whole = devices.get(Device(device.uuid, ""), {})
        for target in _PHYSICAL:
            if target in whole and target not in devices[device]:
                devices[device][target] = whole[target]
    for parent in parents & {Device(device.uuid, "") for device in devices if device.instance != ""}:
        del devices[parent]


def _reading(device: Device, values: Mapping[Field, list[float]], pods: set[str]) -> DeviceReading:
    top = {target: max(found) for target, found in values.items()}
    return DeviceReading(
        uuid=device.uuid,
        engine_active=top.get(Field.ENGINE_ACTIVE),
        gpu_util=top.get(Field.GPU_UTIL),
        power=top.get(Field.POWER),
        energy=top.get(Field.ENERGY),
        temperature=top.get(Field.TEMPERATURE),
        memory_used=top.get(Field.MEMORY_USED),
        xid=_worst([int(code) for target in _XIDS for code in values.get(target, [])]),
        instance=device.instance,
        pod=",".join(sorted(pods)),
    )


def _worst(codes: list[int]) -> int | None:
    """Of several codes the one that says most about the card; None when none was reported."""
    return max(codes, key=lambda code: (code != 0 and code not in APPLICATION_XIDS, code)) if codes else None
