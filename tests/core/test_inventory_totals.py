"""Totals kept by every change equal a recount, whatever came in whatever order."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.core.facts import Node, Pod, PodPhase
from rebalancer.core.inventory import Inventory
from rebalancer.core.stimuli import FactKind
from rebalancer.core.supply import Totals, usable
from tests.core.build import START, lent, node, replica

POOL = "infer-a100"


def later(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def _recounted(inventory: Inventory) -> dict[str, Totals]:
    """All sums from scratch."""
    found: dict[str, Totals] = {}
    for item in inventory.nodes.values():
        held = [pod for pod in inventory.pods.values() if pod.node == item.name and not pod.terminal]
        sums = found.setdefault(item.pool, Totals())
        gpus = sum(pod.gpus or 0 for pod in held)
        sums.add(Totals(nodes=1, owned=item.gpus, held=gpus), 1)
        sums.held_by_owner += sum(pod.gpus or 0 for pod in held if pod.owner is item.owner)
        sums.releasing += sum(pod.gpus or 0 for pod in held if pod.deleting_at is not None)
        if item.loan is not None:
            sums.add(Totals(away=item.gpus, borrowed=gpus), 1)
        else:
            sums.add(Totals(usable=item.gpus) if usable(item) else Totals(unusable=item.gpus), 1)
    return found


def _node(item: Node, away: bool) -> Node:
    return lent(item) if away else item


NAMES = st.sampled_from(["n0", "n1", "n2"])
NODES = st.builds(
    lambda name, pool, ready, gpus, away, serial: _node(
        node(name, pool=pool, ready=ready, gpus=gpus, uid=f"uid-{name}-{serial}"), away
    ),
    NAMES, st.sampled_from([POOL, "infer-l20"]), st.booleans(), st.sampled_from([0, 4, 8]), st.booleans(),
    st.integers(0, 1),
)  # fmt: skip
PODS = st.builds(
    lambda name, on, phase, leaving, gpus, nominated: replica(
        name, on=on, phase=phase, deleting_at=START if leaving else None, gpus=gpus, nominated_node=nominated
    ),
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "n0", "n1", "n2"]), st.sampled_from(list(PodPhase)),
    st.booleans(), st.sampled_from([None, 0, 1, 8]), st.sampled_from(["", "n0"]),
)  # fmt: skip
GONE = st.tuples(st.sampled_from(["node", "pod"]), st.sampled_from(["uid-n0-0", "uid-n1-1", "uid-a", "uid-b"]))


@settings(max_examples=300, deadline=None)
@given(news=st.lists(st.tuples(st.one_of(NODES, PODS, GONE), st.integers(-3, 3)), max_size=25))
def test_totals_kept_by_every_change_equal_a_recount(news: list[tuple[Node | Pod | tuple[FactKind, str], int]]) -> None:
    inventory = Inventory()
    for item, minutes in news:
        if isinstance(item, tuple):
            inventory.delete(*item)
        else:
            inventory.observe(item, later(minutes))
    fresh = _recounted(inventory)
    assert {pool: sums for pool, sums in inventory.shares.pools.items() if sums != Totals()} == fresh
    empty = {
        (item.pool, item.uid)
        for item in inventory.nodes.values()
        if item.loan is None and usable(item) and inventory.held(item) == 0 and item.name not in inventory.nominated
    }
    assert {(pool, uid) for pool, uids in inventory.shares.empty.items() for uid in uids} == empty
    assert {pod.uid for pods in inventory.pending.values() for pod in map(inventory.pods.get, pods) if pod} == {
        pod.uid for pod in inventory.pods.values() if pod.pending and pod.gpus != 0
    }
