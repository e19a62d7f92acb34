"""The scheduler's rules, one row each, and what a pass does with whole queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rebalancer.core.facts import Node, Requirement, Taint, Toleration
from rebalancer.core.units import CLOSING, ON_LOAN
from rebalancer.simulate.fitting import admits, holds, tolerates
from rebalancer.simulate.fleet import make_node
from rebalancer.simulate.loading import load
from tests.simulate.worlds import CHAT, POOLS, job, lend, pods_of, scenario, steps, world

OWNER = Toleration("workload", "Equal", "training", "NoSchedule")
BORROWER = Toleration(ON_LOAN, "Equal", "training", "NoSchedule")
A100 = ((Requirement("gpu-model", "In", ("A100", "H100")),),)


def node(*taints: Taint, **changes: Any) -> Node:
    made = load(scenario())
    return replace(make_node(made.pools[0], "n", "uid", made.start), taints=taints, **changes)


OWN = Taint("workload", "training")
LENT = Taint(ON_LOAN, "training")


@pytest.mark.parametrize(
    ("where", "terms", "tolerations", "fits"),
    [
        pytest.param(node(OWN), A100, (OWNER,), True, id="own pool lets its own in"),
        pytest.param(node(Taint("workload", "inference")), A100, (OWNER,), False, id="another owner's taint keeps out"),
        pytest.param(node(LENT), A100, (OWNER,), False, id="a lent node keeps out who has not opted in"),
        pytest.param(node(LENT), A100, (OWNER, BORROWER), True, id="a lent node lets in who has opted in"),
        pytest.param(
            node(LENT, Taint(CLOSING)), A100, (OWNER, BORROWER), False, id="a closing node keeps everyone out"
        ),
        pytest.param(node(Taint("x", "", "PreferNoSchedule")), A100, (), True, id="a soft taint keeps nobody out"),
        pytest.param(node(Taint("x", "", "NoExecute")), A100, (OWNER,), False, id="a NoExecute taint keeps out"),
        pytest.param(node(cordoned=True), A100, (), False, id="a cordoned node takes nobody"),
        pytest.param(node(ready=False), A100, (), False, id="a node that is not ready takes nobody"),
        pytest.param(node(starting=True), A100, (), False, id="a node without its plugin takes nobody"),
        pytest.param(
            node(), ((Requirement("gpu-model", "In", ("L20",)),),), (), False, id="another model does not fit"
        ),
        pytest.param(
            node(), (*A100, (Requirement("gpu-model", "In", ("L20",)),)), (), True, id="one term of several suffices"
        ),
        pytest.param(node(), (), (), True, id="no terms fit anywhere"),
    ],
)
def test_a_node_admits(where: Node, terms: Any, tolerations: Any, fits: bool) -> None:
    assert admits(where, terms, tolerations) is fits


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        pytest.param(Toleration("k", "Equal", "v"), True, id="same key and value, any effect"),
        pytest.param(Toleration("k", "Equal", "other"), False, id="another value"),
        pytest.param(Toleration("k", "Exists"), True, id="the key with any value"),
        pytest.param(Toleration("", "Exists"), True, id="everything"),
        pytest.param(Toleration("", "Equal", "v"), False, id="an empty key without Exists is nothing"),
        pytest.param(Toleration("k", "Exists", "", "NoExecute"), False, id="another effect"),
    ],
)
def test_a_toleration_covers_a_taint(toleration: Toleration, covers: bool) -> None:
    assert tolerates(toleration, Taint("k", "v")) is covers


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (Requirement("n", "In", ("1", "2")), True),
        (Requirement("n", "NotIn", ("2",)), False),
        (Requirement("n", "Exists"), True),
        (Requirement("n", "DoesNotExist"), False),
        (Requirement("gone", "DoesNotExist"), True),
        (Requirement("gone", "NotIn", ("2",)), True),
        (Requirement("n", "Gt", ("1",)), True),
        (Requirement("n", "Lt", ("1",)), False),
        (Requirement("gone", "Gt", ("1",)), False),
        (Requirement("word", "Gt", ("1",)), False),
        (Requirement("n", "Unheard", ("2",)), False),
    ],
)
def test_a_requirement_is_met_by_labels(requirement: Requirement, met: bool) -> None:
    assert holds(requirement, {"n": "2", "word": "two"}) is met


def test_a_gang_that_does_not_fit_whole_is_not_placed_at_all() -> None:
    cluster = world(jobs=[job("pair", pods=2)])
    steps(cluster, 2)
    members = pods_of(cluster, "pair")
    assert [pod.node for pod in members] == ["", ""]
    assert all(pod.unschedulable_since is not None for pod in members)


def test_a_gang_waits_until_the_last_node_that_it_needs_is_lent() -> None:
    cluster = world(jobs=[job("trio", pods=3)])
    steps(cluster, 1)
    lend(cluster, "infer-a100-01")
    steps(cluster, 2)
    assert not any(pod.node for pod in pods_of(cluster, "trio"))
    lend(cluster, "infer-a100-02")
    steps(cluster, 1)
    assert [pod.node for pod in pods_of(cluster, "trio")] == ["train-a100-00", "infer-a100-01", "infer-a100-02"]


def test_an_elastic_gang_starts_with_what_fits_above_its_minimum() -> None:
    cluster = world(jobs=[job("stretch", pods=4, gpus=4, min_pods=2)])
    steps(cluster, 2)
    assert [bool(pod.node) for pod in pods_of(cluster, "stretch")] == [True, True, False, False]


def test_the_more_important_goes_first_then_the_older() -> None:
    jobs = [job("old", at=0), job("young", at=60), job("urgent", at=60, priority=5)]
    blocker = job("blocker", at=-200.0, seconds=400.0)
    cluster = world(jobs=[blocker, *jobs])
    steps(cluster, 8)
    assert [bool(pods_of(cluster, name)[0].node) for name in ("urgent", "old", "young")] == [True, False, False]


def test_own_capacity_is_used_before_lent_nodes() -> None:
    cluster = world(jobs=[job(at=120.0)])
    lend(cluster, "infer-a100-01")
    steps(cluster, 4)
    assert pods_of(cluster, "tune")[0].node == "train-a100-00"


def test_replicas_are_packed_so_that_nodes_stay_empty() -> None:
    small = [{**CHAT, "name": name, "gpus": 2, "peak_gpus": 2} for name in ("one", "two", "three")]
    cluster = world(services=small)
    assert len({pod.node for pod in cluster.store.pods.values()}) == 1


def test_replicas_of_one_service_never_share_a_host_unless_they_may() -> None:
    wide = {**CHAT, "gpus": 1, "minimum": 3, "peak_gpus": 3}
    spread, packed = world(services=[wide]), world(services=[{**wide, "spread": False}])
    assert len({pod.node for pod in spread.store.pods.values()}) == 3
    assert len({pod.node for pod in packed.store.pods.values()}) == 1


def test_a_full_pool_leaves_the_next_replica_waiting_since_the_first_refusal() -> None:
    cluster = world(services=[{**CHAT, "minimum": 4, "maximum": 4}], pools=POOLS)
    waiting = [pod for pod in cluster.store.pods.values() if not pod.node]
    assert [pod.unschedulable_since is not None for pod in waiting] == [True]
