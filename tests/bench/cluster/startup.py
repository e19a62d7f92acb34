"""Start-up at 500 nodes and 4,000 pods: ``startup_picture_s``, ``startup_memory_mb``.

A control plane of the run's own with half inference nodes, half training nodes of 8 GPUs, all held by pods of one GPU:
services, and gangs of eight. The product starts as one process with all roles on empty topics, then once more on what
it left there. Measured from the start of the process, by the broker's clock: the facts of all kinds are on their topics
(the end of each first list), and the picture is there (decide has handled the lists of nodes and pods and is not
behind, by its journal), so that plans may follow. Resident memory is read from the kernel twice a second.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rebalancer.adapters.translate import JournalEntry
from rebalancer.core.stimuli import SnapshotEnded, StreamLagged
from rebalancer.wire import v1
from tests.bench.cluster.stamped import Stamped
from tests.cluster.product import Place, Product, Replica
from tests.cluster.stage import CLUSTER, NAMESPACE, _apply_topics, _namespace, _rights
from tests.cluster.terms import Pool, policy
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.exporters import Exporters
from tests.servers.kafka import KafkaServer
from tests.servers.manifests import Work

LENDER, TRAINING, MODEL, GPUS = "infer-a100", "train-a100", "A100", 8
BUILT_WITHIN = 600.0  # seconds; 93 on idle cores
STARTS_WITHIN = 300.0
LOOK = 0.5  # seconds between two looks at memory
AFTERWARDS = 30.0  # seconds for which memory is looked at once the picture is there
EVERY = 15  # seconds between two looks at utilisation: the default
SERVICES = 4
ACTIVITIES = {"dwell": "20m", "freshness": "180s"}  # the defaults


def populate(plane: ControlPlane, nodes: int) -> int:
    """Make nodes and pods, all running; how many pods."""
    half = nodes // 2
    fleet.gpu_nodes(plane, LENDER, MODEL, half, wait=False)
    fleet.gpu_nodes(plane, TRAINING, MODEL, half, owner="training", wait=False)
    plane.api.wait(lambda: len(_leases(plane)) == 2 * half, BUILT_WITHIN, "all nodes to be leased")
    serving, training = (fleet.namespace(plane, stem) for stem in ("serve", "train"))
    one = Work(MODEL, 1, lendable=False)
    for number in range(SERVICES):
        count = half * GPUS * (number + 1) // SERVICES - half * GPUS * number // SERVICES
        fleet.inference(plane, serving, f"service-{number}", count, one, spread=False)
    for number in range(half):
        body = manifests.job(
            f"gang-{number:03}", GPUS, manifests.training_template(f"gang-{number:03}", Work(MODEL, 1))
        )
        plane.api.post(f"/apis/batch/v1/namespaces/{training}/jobs", body)
    wanted = 2 * half * GPUS
    plane.api.wait(lambda: _running(plane) == wanted, BUILT_WITHIN, f"{wanted} pods to run")
    return wanted


def _leases(plane: ControlPlane) -> list[Any]:
    return plane.api.items(fleet.LEASES)


def _running(plane: ControlPlane) -> int:
    time.sleep(2.0)  # a list of thousands is no small question
    return len(plane.api.items("/api/v1/pods", fieldSelector="status.phase=Running"))


def one_start(name: str, product: Product, heard: Stamped) -> dict[str, Any]:
    """Start the process and follow it until it knows the fleet."""
    before, began = len(heard.heard), time.time()
    replica = product.start(wait=False)
    peak = Peak(replica)
    facts = {
        of: peak.awaited(heard, before, SnapshotEnded, lambda one, of=of: one.of == of) for of in v1.FACT_TOPICS
    }  # fmt: skip
    lists = [
        peak.awaited(heard, before, JournalEntry, lambda one, of=of: _ended(one, of)) for of in ("node", "pod")
    ]  # fmt: skip
    caught_up = peak.awaited(heard, before, JournalEntry, _current)
    picture = max(*lists, caught_up)
    replica.await_ready(STARTS_WITHIN)
    at_picture = peak.megabytes
    peak.follow(AFTERWARDS)
    product.replicas["one"].end()
    return {
        "start": name,
        "facts of all kinds on Kafka, s": round(max(facts.values()) - began, 1),
        "picture complete, s": round(picture - began, 1),
        "resident at the picture, MB": round(at_picture),
        "peak until 30 s later, MB": round(peak.highest),
    }


def _ended(entry: JournalEntry, of: str) -> bool:
    return isinstance(entry.stimulus, SnapshotEnded) and entry.stimulus.of == of


def _current(entry: JournalEntry) -> bool:
    return isinstance(entry.stimulus, StreamLagged) and not entry.stimulus.behind


class Peak:
    """Resident memory of a process, looked at while something is awaited."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.megabytes = self.highest = 0.0

    def follow(self, seconds: float) -> None:
        """Look for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look()
            time.sleep(LOOK)

    def awaited(self, heard: Stamped, since: int, of: Any, so: Any) -> float:
        """When the first such record came."""
        deadline = time.monotonic() + STARTS_WITHIN
        while True:
            self._look()
            try:
                at, _ = heard.first(since, of, so, LOOK)
            except TimeoutError:
                assert time.monotonic() < deadline, self._replica.tail()
            else:
                return at

    def _look(self) -> None:
        assert self._replica.part.runs, self._replica.tail()
        status = Path(f"/proc/{self._replica.part.pid}/status").read_text(encoding="ascii")
        told = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        self.megabytes, self.highest = int(told["VmRSS"]) * 1024 / 1e6, int(told["VmHWM"]) * 1024 / 1e6


def run(*, nodes: int = 500) -> dict[str, Any]:
    """The figures: on empty topics, and again on what was left there."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(folder / "plane"))
        pods = populate(plane, nodes)
        broker = stack.enter_context(KafkaServer(folder / "kafka"))
        _apply_topics(broker)
        _namespace(plane)
        names = [f"{pool}-{number:02}" for pool in (LENDER, TRAINING) for number in range(1, nodes // 2 + 1)]
        exporters = stack.enter_context(Exporters(dict.fromkeys(names, (GPUS, MODEL)), dict.fromkeys(names, 60.0)))
        extra = {"dcgm": {"source": "prometheus", "url": exporters.url, "every": EVERY}}
        place = Place(
            folder / "product", CLUSTER, broker.bootstrap, _rights(plane), NAMESPACE, exporters.url, {}, extra=extra
        )
        product = stack.enter_context(Product(place, policy([Pool(LENDER, MODEL, nodes // 2)], activities=ACTIVITIES)))
        topics = (*v1.FACT_TOPICS.values(), v1.JOURNAL)
        heard = stack.enter_context(Stamped(broker.bootstrap, topics))
        starts = [one_start(name, product, heard) for name in ("first", "again")]
    return {
        "startup_picture_s": starts[0]["picture complete, s"],
        "startup_memory_mb": max(one["peak until 30 s later, MB"] for one in starts),
        "startup": {"nodes": 2 * (nodes // 2), "pods": pods, "starts": starts},
    }
