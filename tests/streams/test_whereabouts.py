"""Where rows belong: learnt from facts and lists, kept without losing what only the sources know."""

from dataclasses import replace

from rebalancer.adapters.decode.dcgm_nodes import resolve_node
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.core.facts import Pod, PodPhase
from rebalancer.core.stimuli import FactDeleted, FactObserved, SnapshotBegan, SnapshotEnded
from rebalancer.core.units import OwnerClass
from tests.streams.things import NOW, node

EXPORTER = Pod("p1", "exporter-1", "ops", 0, PodPhase.RUNNING, OwnerClass.UNKNOWN, "p1", "p1", NOW, node="name-a")


def names(where: Whereabouts, tick: float = 0.0) -> set[str]:
    return set(where.known(tick).nodes)


def test_an_address_that_a_source_told_survives_the_fact_without_it() -> None:
    where = Whereabouts()
    where.saw(node("a"), ["10.0.0.1"])
    where.heard(FactObserved(node("a"), NOW))
    found = resolve_node({"instance": "10.0.0.1:9400"}, "G", where.known(0.0))
    assert found is not None
    assert found.uid == "a"


def test_a_row_that_names_only_its_exporter_is_of_the_node_that_it_runs_on() -> None:
    where = Whereabouts()
    where.saw(node("a"))
    where.saw(EXPORTER, ["10.1.0.9"])
    for labels in ({"Hostname": "exporter-1"}, {"instance": "10.1.0.9:9400"}):
        found = resolve_node(labels, "G", where.known(5.0))
        assert found is not None
        assert found.name == "name-a"


def test_what_is_gone_or_ended_is_forgotten() -> None:
    where = Whereabouts()
    for uid in ("a", "b"):
        where.saw(node(uid))
    where.saw(EXPORTER)
    where.heard(FactDeleted("node", "b", NOW))
    where.saw(replace(EXPORTER, phase=PodPhase.SUCCEEDED))
    assert names(where) == {"name-a"}
    assert where.known(0.0).pods == {}


def test_a_whole_list_leaves_only_what_it_holds_and_an_incomplete_one_leaves_all() -> None:
    where = Whereabouts()
    for uid in ("a", "b"):
        where.saw(node(uid))
    where.heard(SnapshotBegan("node", "1", NOW))
    where.heard(FactObserved(node("a"), NOW))
    where.heard(SnapshotEnded("node", "1", 2, NOW))
    assert names(where) == {"name-a", "name-b"}
    where.heard(SnapshotBegan("node", "2", NOW))
    where.heard(FactObserved(node("a"), NOW))
    where.heard(SnapshotEnded("node", "2", 1, NOW))
    assert names(where) == {"name-a"}


def test_pods_alone_are_indexed_once_a_second_and_nodes_at_once() -> None:
    where = Whereabouts()
    where.saw(node("a"))
    first = where.known(0.0)
    where.saw(EXPORTER)
    assert where.known(0.5) is first
    assert "ops/exporter-1" in where.known(1.0).pods
    where.saw(node("b"))
    assert names(where, 1.1) == {"name-a", "name-b"}
