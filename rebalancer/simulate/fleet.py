"""Nodes and namespaces as a scenario's pools describe them, labelled by the canonical dialect.

Only construction; what happens to nodes later is others'.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rebalancer.core.facts import Namespace, Node, Taint
from rebalancer.core.units import OwnerClass
from rebalancer.simulate.scenario import PoolSpec, Scenario
from rebalancer.simulate.store import Store

_AGE = timedelta(days=30)


def owner_taint(pool: PoolSpec) -> Taint | None:
    """The taint that keeps others out of a pool, or None for an open one."""
    return Taint("workload", pool.owner) if pool.tainted else None


def make_node(pool: PoolSpec, name: str, uid: str, created_at: datetime) -> Node:
    """A healthy node of a pool."""
    taint = owner_taint(pool)
    return Node(
        uid=uid,
        name=name,
        pool=pool.name,
        model=pool.model if pool.gpus else "",
        owner=OwnerClass(pool.owner),
        gpus=pool.gpus,
        capacity=pool.gpus,
        created_at=created_at,
        network=pool.network,
        labels=_labels(pool, name),
        taints=(taint,) if taint else (),
    )


def _labels(pool: PoolSpec, name: str) -> dict[str, str]:
    labels = {
        "kubernetes.io/hostname": name,
        "node-pool": pool.name,
        "network": pool.network,
        "workload-type": pool.owner,
    }
    if pool.gpus:
        labels |= {
            "accelerator": "nvidia",
            "gpu-model": pool.model,
            "gpu-count": str(pool.gpus),
            "gpu-memory": f"{pool.memory_gib}Gi",
        }
    return labels


def furnish(store: Store, scenario: Scenario, t: float) -> None:
    """Put all nodes, namespaces and the control object into an empty store."""
    store.put_control(store.control, t)
    jobs = (*scenario.jobs, *(stream.template for stream in scenario.streams))
    names = {item.namespace for item in scenario.services} | {job.namespace for job in jobs} | {"kube-system"}
    for name in sorted(names):
        store.put_namespace(Namespace(store.new_uid(f"namespace/{name}"), name), t)
    created = store.agenda.clock(t) - _AGE
    for pool in scenario.pools:
        for i in range(pool.nodes):
            name = f"{pool.name}-{i:02d}"
            store.put_node(make_node(pool, name, store.new_uid(f"node/{name}"), created), t)
