"""What exporters would say: one native sample per GPU node and step, honest unless a fault says otherwise.

Power, temperature and the energy counter move with every scrape, also on an idle GPU, so that a frozen exporter can
be told from an idle one. Utilisation comes from what the pods really do; nothing here is read from loans.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rebalancer.core.facts import Node, Pod
from rebalancer.core.telemetry import DeviceReading, NodeSample
from rebalancer.core.units import OwnerClass
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.inference import Inference
from rebalancer.simulate.store import Store
from rebalancer.simulate.training import Training

_IDLE_WATTS, _FULL_WATTS = 62.0, 398.0
_COMPUTES = 0.93
"""Utilisation of a GPU in a gang that makes progress."""

_METRICS = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", "gpu_util"),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", "power"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", "energy"),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", "temperature"),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_used"),
    ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", "xid"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", "engine_active"),
)
"""Metric, help text and the reading's field (dcgm-exporter's default counters and one profiling metric)."""


class Telemetry:
    """One exporter per node."""

    def __init__(self, seed: int, store: Store, agenda: Agenda, inference: Inference, training: Training) -> None:
        self._store, self._agenda = store, agenda
        self._inference, self._training = inference, training
        self._rng = Random(f"{seed}/telemetry")
        self._energy: dict[str, list[int]] = {}
        self._uuids: dict[str, list[str]] = {}
        self._last: dict[str, NodeSample] = {}
        self.frozen: set[str] = set()
        self.silent: set[str] = set()

    def samples(self, t: float, dt: float) -> list[NodeSample]:
        """A sample of every node whose exporter answers; ``dt`` seconds since the last scrape."""
        found = []
        for node in self._store.nodes.values():
            if not node.gpus or not node.ready or node.starting or node.name in self.silent:
                continue
            found.append(self._sample(node, t, dt))
        return found

    def _sample(self, node: Node, t: float, dt: float) -> NodeSample:
        at = self._agenda.clock(t)
        last = self._last.get(node.uid)
        if node.name in self.frozen and last is not None:
            return NodeSample(node.uid, node.name, at, last.expected, last.devices)
        sample = NodeSample(node.uid, node.name, at, node.gpus, self._devices(node, dt))
        self._last[node.uid] = sample
        return sample

    def _devices(self, node: Node, dt: float) -> tuple[DeviceReading, ...]:
        if node.uid not in self._energy:
            self._energy[node.uid] = [1_000_000_000 + 10_000_000 * i for i in range(node.gpus)]
            self._uuids[node.uid] = [self._uuid(node, i) for i in range(node.gpus)]
        energy, uuids = self._energy[node.uid], self._uuids[node.uid]
        slots = self._slots(node)
        draw = self._rng.random
        readings = []
        for i in range(node.gpus):
            level, pod, memory = slots[i] if i < len(slots) else (0.0, "", 4.0)
            jitter = draw()
            load = min(1.0, level * (0.96 + 0.08 * jitter)) if level else 0.0
            watts = _IDLE_WATTS + jitter + (_FULL_WATTS - _IDLE_WATTS) * load
            energy[i] += int(watts * dt * 1000.0)
            readings.append(
                DeviceReading(
                    uuids[i], round(load, 4) if load else 0.0, int(100.0 * load + 0.5), round(watts, 1), energy[i],
                    int(31.0 + 38.0 * load + 2.0 * jitter), memory, 0, "", pod,
                )
            )  # fmt: skip
        return tuple(readings)

    @staticmethod
    def _uuid(node: Node, index: int) -> str:
        return f"GPU-{node.uid[:8]}-{index:04d}-4000-8000-{node.uid[-12:]}"

    def _slots(self, node: Node) -> list[tuple[float, str, float]]:
        """Level, pod and memory in MiB per GPU held, in the order in which pods came."""
        found: list[tuple[float, str, float]] = []
        for pod in self._store.pods_on(node.name):
            if pod.held:
                level = self._level(pod)
                memory = 60_000.0 if pod.started_at else 500.0
                found += [(level, f"{pod.namespace}/{pod.name}", memory)] * pod.held
        return found

    def _level(self, pod: Pod) -> float:
        if pod.owner is OwnerClass.INFERENCE:
            return self._inference.utilisation_of(pod.uid) if pod.ready else 0.0
        return _COMPUTES if self._training.busy(pod.uid) else 0.0


def page(sample: NodeSample, model: str) -> str:
    """The sample as a dcgm-exporter text page (names of its default counters, one line per GPU and metric)."""
    return "".join(
        _metric(sample, model, name, text, [getattr(device, field) for device in sample.devices])
        for name, text, field in _METRICS
    )


def _metric(sample: NodeSample, model: str, name: str, text: str, values: Sequence[float | None]) -> str:
    kind = "counter" if name.endswith("CONSUMPTION") else "gauge"
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for i, (device, value) in enumerate(zip(sample.devices, values, strict=True)):
        namespace, _, pod = device.pod.partition("/")
        labels = f'gpu="{i}",UUID="{device.uuid}",device="nvidia{i}",modelName="NVIDIA {model}"'
        labels += f',Hostname="{sample.node_name}"'
        if pod:
            labels += f',container="main",namespace="{namespace}",pod="{pod}"'
        if value is not None:
            lines.append(f"{name}{{{labels}}} {value:.15g}")
    return "\n".join(lines) + "\n"
