"""Small worlds for the simulator's tests: one pool of each kind, no noise, nothing drawn that is not asked for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rebalancer.core.facts import LoanMark, Node, Pod, Taint
from rebalancer.core.plan import Member
from rebalancer.core.protocol.calls import Answer, EvictPod, PatchNode
from rebalancer.core.units import ON_LOAN, OwnerClass
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.loading import load

START = "2026-03-10T20:00:00+00:00"
POOLS = [
    {"name": "train-a100", "owner": "training", "model": "A100", "nodes": 1},
    {
        "name": "infer-a100",
        "owner": "inference",
        "model": "A100",
        "nodes": 3,
        "lends_to": ["training"],
        "windows": [{"name": "night", "start": "20:00", "end": "22:00"}],
    },
]
CHAT = {"name": "chat", "pool": "infer-a100", "gpus": 8, "minimum": 1, "maximum": 3, "peak_gpus": 8, "curve": "flat"}
CURVES: dict[str, dict[str, float]] = {"flat": {"00:00": 1.0}}


def scenario(**overrides: Any) -> dict[str, Any]:
    """A plain mapping: four nodes, one service of one replica, two hours."""
    base: dict[str, Any] = {
        "name": "small",
        "start": START,
        "hours": 2,
        "warm_up_seconds": 300,
        "pools": POOLS,
        "curves": CURVES,
        "services": [CHAT],
    }
    return base | overrides


def world(**overrides: Any) -> SimulatedCluster:
    """A cluster that lives through :func:`scenario`."""
    return SimulatedCluster(load(scenario(**overrides)))


def job(name: str = "tune", **overrides: Any) -> dict[str, Any]:
    """A training job of one eight-GPU pod that takes an hour."""
    base = {"name": name, "pods": 1, "gpus": 8, "seconds": 3600.0, "models": ["A100"], "start_seconds": 30.0}
    return base | overrides


def pods_of(cluster: SimulatedCluster, prefix: str) -> list[Pod]:
    """Pods whose names begin so, by name."""
    pods = (pod for pod in cluster.store.pods.values() if pod.name.startswith(prefix))
    return sorted(pods, key=lambda pod: pod.name)


def member(pod: Pod) -> Member:
    return Member(pod.uid, pod.namespace, pod.name, pod.node, pod.gpus or 0)


def evict(cluster: SimulatedCluster, pod: Pod, *, dry_run: bool = False) -> Answer:
    return cluster.answer(EvictPod(member(pod), "plan", dry_run))


def patch(cluster: SimulatedCluster, node: Node, taints: tuple[Taint, ...], loan: LoanMark | None) -> Answer:
    return cluster.answer(PatchNode(node.uid, node.name, node.resource_version, taints, loan))


def mark(cluster: SimulatedCluster, node: Node, minutes: float = 60) -> LoanMark:
    """A loan mark that falls due so many minutes from now."""
    due = cluster.moment + timedelta(minutes=minutes)
    return LoanMark(
        loan=f"loan-{node.name}",
        node_uid=node.uid,
        lender=node.pool,
        borrower=OwnerClass.TRAINING,
        gang="",
        due=due,
        recall_at=due,
        phase="on-loan",
        plan="plan",
        epoch=1,
        opened_at=cluster.moment,
    )


def lend(cluster: SimulatedCluster, name: str, minutes: float = 60) -> Answer:
    """Owner taint off, on-loan on, in one patch."""
    node = cluster.store.nodes[name]
    return patch(cluster, node, (Taint(ON_LOAN, "training"),), mark(cluster, node, minutes))


def take_back(cluster: SimulatedCluster, name: str) -> Answer:
    """The owner's taint again, mark off."""
    return patch(cluster, cluster.store.nodes[name], (Taint("workload", "inference"),), None)


def steps(cluster: SimulatedCluster, number: int) -> None:
    for _ in range(number):
        cluster.step()
