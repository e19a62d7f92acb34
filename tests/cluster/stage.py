"""The stage of cluster stories: control plane, broker, exporters, the product, and what is seen and heard beside it.

One stage serves a whole file: its pools are idle from the first second on, so that the dwell is waited for once.
Each story keeps to its own pool, model and namespace.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rebalancer.adapters.streams import admin
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.core.loans import Loan
from tests.cluster.granting import granted, in_force
from tests.cluster.hearing import Hearing
from tests.cluster.product import LEASE, Place, Product, Replica
from tests.cluster.proxy import Proxy
from tests.cluster.terms import DWELL, Pool, policy
from tests.cluster.watching import NodeState, Watching
from tests.servers import fleet
from tests.servers.adminclient import ApiError
from tests.servers.controlplane import ControlPlane
from tests.servers.exporters import Exporters
from tests.servers.kafka import KafkaServer
from tests.servers.manifests import Work

CLUSTER = "berlin"
NAMESPACE = "gpu-rebalancer"
WITHIN = 40.0
"""Seconds that anything waited for may take, unless a story knows better: on two busy cores, five times the usual."""
IDLE_WITHIN = DWELL + WITHIN
POLL = 0.1
GRACE = 3
"""Seconds of grace of a trainer, within what the policy lets it take to leave."""
BUSY, IDLE = 60.0, 1.0  # per cent
T = TypeVar("T")


class Stage:
    """What a story works with."""

    def __init__(self, plane: ControlPlane, broker: KafkaServer, exporters: Exporters, proxy: Proxy) -> None:
        self.plane, self.broker, self.exporters, self.proxy = plane, broker, exporters, proxy
        self.watching = Watching(plane)
        self.hearing = Hearing(broker.bootstrap, CLUSTER)
        self.nodes: dict[str, list[str]] = {}
        self.serving = ""
        """Namespace of a service that was there before the product."""
        self.product: Product

    # -- the cast ----------------------------------------------------------------------------------------------------

    def work(self, model: str, gpus: int = 8, **more: Any) -> Work:
        """What a trainer of this stage asks for; one with ``more`` differs."""
        return Work(**{"model": model, "gpus": gpus, "grace": GRACE, **more})

    def serve(self, space: str, model: str, replicas: int, *, name: str = "chat") -> None:
        """An inference service of whole-node replicas, on nodes of the model that are at home."""
        work = Work(model=model, gpus=8, grace=1, lendable=False)
        fleet.inference(self.plane, space, name, replicas, work)

    def budget(self, space: str, name: str, labels: Mapping[str, str], **limits: int | str) -> None:
        """A budget over pods with these labels, once its controller has counted them."""
        path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
        spec = {"selector": {"matchLabels": dict(labels)}, **limits}
        self.plane.api.post(path, {"metadata": {"name": name}, "spec": spec})
        self.await_(
            f"budget {name} to be counted",
            lambda: self.plane.api.get(f"{path}/{name}").get("status", {}).get("observedGeneration"),
        )

    def allowed(self, space: str, name: str) -> int:
        """How many disruptions a budget allows now."""
        told = self.plane.api.get(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/{name}")
        return int(told.get("status", {}).get("disruptionsAllowed", -1))

    def state(self, node: str) -> NodeState:
        """A node as it is now."""
        raw = self.plane.api.get(f"/api/v1/nodes/{node}")
        meta = raw["metadata"]
        taints = raw["spec"].get("taints") or []
        return NodeState(time.monotonic(), meta["uid"], taints, meta["labels"], meta.get("annotations") or {})

    # -- waiting -----------------------------------------------------------------------------------------------------

    def await_(self, what: str, so: Callable[[], T], within: float = WITHIN, pool: str = "") -> T:
        """What ``so`` says once it is true; raises AssertionError with what was heard of the pool, and the logs."""
        deadline = time.monotonic() + within
        while True:
            try:
                if found := so():
                    return found
                last = repr(found)
            except (ApiError, OSError) as error:
                last = repr(error)
            if time.monotonic() > deadline:
                raise AssertionError(self.told(f"{what}: not within {within:g} s ({last})", pool))
            time.sleep(POLL)

    def told(self, what: str, pool: str = "") -> str:
        """A message: what was missed, what was heard of the pool, how its nodes are, the end of the logs."""
        nodes = [(name, self._taints(name)) for name in self.nodes.get(pool, ())]
        heard = self.hearing.summary(pool) if pool else ""
        return f"{what}\n{heard}\n{nodes}\n{self.product.tails()}"

    def _taints(self, node: str) -> list[str]:
        states = self.watching.states(node)
        return [one["key"] for one in states[-1].taints] if states else []

    def await_lent(self, pool: str, count: int, within: float = IDLE_WITHIN) -> list[str]:
        """Wait until so many nodes of the pool are on loan; their names."""

        def lent() -> list[str]:
            found = [name for name in self.nodes[pool] if (seen := self.watching.states(name)) and seen[-1].lent]
            return found if len(found) == count else []

        return self.await_(f"{count} nodes of {pool} to be lent", lent, within, pool)

    def await_home(self, pool: str, nodes: Sequence[str] = (), within: float = WITHIN) -> None:
        """Wait until nothing of ours is on these nodes (all of the pool), and the ledger says so too."""
        names = list(nodes) or self.nodes[pool]
        self.await_(f"{names} to be home", lambda: all(not self.state(name).ours for name in names), within, pool)
        self.await_(f"loans of {names} to be closed", lambda: not self.open_loans(pool, names), within, pool)

    def open_loans(self, pool: str, nodes: Sequence[str] = ()) -> list[Loan]:
        """Loans of the pool that are not closed (on these nodes)."""
        return [one for one in self.hearing.loans(pool) if one.open and (not nodes or one.node_name in nodes)]

    def await_running(self, space: str, app: str, count: int, within: float = WITHIN, pool: str = "") -> list[Any]:
        """Wait until exactly so many pods of a workload run and none of them is being deleted."""

        def running() -> list[Any]:
            found = [pod for pod in fleet.pods(self.plane, space, app) if _runs(pod)]
            return found if len(found) == count else []

        return self.await_(f"{count} pods of {app} to run", running, within, pool)

    def one(self) -> Replica:
        """The product's first process."""
        return next(iter(self.product.replicas.values()))


def _runs(pod: Any) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def staged(
    plane: ControlPlane,
    folder: Path,
    pools: Sequence[Pool],
    *,
    lease: Mapping[str, Any] = LEASE,
    kubeconfig: Path | None = None,
    proxied: bool = True,
    start: bool = True,
    every: float = 1.0,
    prepare: Callable[[Stage], None] = lambda _: None,
    **sections: Mapping[str, Any],
) -> Iterator[Stage]:
    """A running stage with these pools, whose nodes are idle from now on.

    Args:
        plane: must hold no fleet of anybody else's.
        folder: for the broker's data, the product's files and logs.
        pools: each story's own.
        lease: settings of the Leases.
        kubeconfig: who the product is; a service account with the rights of the act profile if not said.
        proxied: the product reaches the API server through the stage's proxy.
        every: seconds between the product's looks at the GPUs.
        start: begin the product, one process with all roles.
        prepare: what is done to the cluster before anything is watched or started.
        sections: overrides of the policy.
    """
    with ExitStack() as stack:
        stack.callback(fleet.clean, plane)
        broker = stack.enter_context(KafkaServer(folder / "kafka"))
        _apply_topics(broker)
        exporters = stack.enter_context(Exporters())
        stage = Stage(plane, broker, exporters, stack.enter_context(Proxy(plane)))
        _namespace(plane)
        for pool in pools:
            stage.nodes[pool.name] = fleet.gpu_nodes(plane, pool.name, pool.model, pool.nodes, wait=False)
        fleet.await_nodes(plane, [name for names in stage.nodes.values() for name in names])
        prepare(stage)
        stack.enter_context(stage.watching)
        stack.enter_context(stage.hearing)
        _play(stage, pools)
        who = kubeconfig or _rights(plane)
        who = stage.proxy.kubeconfig(who, folder / "proxied.kubeconfig") if proxied else who
        place = Place(folder / "product", CLUSTER, broker.bootstrap, who, NAMESPACE, exporters.url, lease, every=every)
        stage.product = stack.enter_context(Product(place, policy(pools, **sections)))
        if start:
            stage.product.start()
        yield stage


def _play(stage: Stage, pools: Sequence[Pool]) -> None:
    """Exporters that say what pods make of nodes: busy where one is, idle elsewhere."""
    for pool in pools:
        for name in stage.nodes[pool.name]:
            stage.exporters.add(name, model=pool.model)

    def load(node: str) -> float:
        there = [one for one in list(stage.watching.pods.values()) if one.node == node and one.gone is None]
        return BUSY if any(one.phase not in {"Succeeded", "Failed"} for one in there) else IDLE

    stage.exporters.loads = load


def _rights(plane: ControlPlane) -> Path:
    who = granted(plane, NAMESPACE, "gpu-rebalancer", "act")
    in_force(plane, who)
    return who


def _namespace(plane: ControlPlane) -> None:
    if not plane.api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
        plane.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for kind in ("/apis/coordination.k8s.io/v1/namespaces/{}/leases", "/api/v1/namespaces/{}/configmaps"):
        for item in plane.api.items(kind.format(NAMESPACE)):
            if item["metadata"]["name"].startswith("gpu-rebalancer"):
                plane.api.delete(f"{kind.format(NAMESPACE)}/{item['metadata']['name']}")


def _apply_topics(broker: KafkaServer) -> None:
    kafka = KafkaSettings(bootstrap=broker.bootstrap, timeout=30.0)
    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, admin.apply(kafka)).result(60.0)
