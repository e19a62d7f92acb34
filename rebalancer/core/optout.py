"""Who keeps a pod out of it by the opt-out annotation: the pod itself, its gang object, or its namespace.

A node's own opt-out concerns the node alone and is asked where nodes are judged. What an opt-out may stop is the
guards' to say (DESIGN 5); here it is only read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rebalancer.core.facts import GangSpec, Namespace, Pod
from rebalancer.core.inventory import Inventory


def opted_out(inventory: Inventory, pod: Pod) -> bool:
    """Whether anybody keeps the pod out of it."""
    space, spec = inventory.namespaces.get(pod.namespace), inventory.specs.get(pod.gang)
    return pod.opted_out or (space is not None and space.opted_out) or (spec is not None and spec.opted_out)


def marked(pods: Iterable[Pod], others: Iterable[object]) -> list[Pod]:
    """The pods, opted out where a namespace or gang object among ``others`` says so: for who has lists only."""
    said = [one for one in others if isinstance(one, Namespace | GangSpec) and one.opted_out]
    spaces = {one.name for one in said if isinstance(one, Namespace)}
    gangs = {one.gang for one in said if isinstance(one, GangSpec)}
    return [replace(pod, opted_out=True) if pod.namespace in spaces or pod.gang in gangs else pod for pod in pods]
