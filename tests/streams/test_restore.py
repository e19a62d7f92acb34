"""What loaded records mean: ghosts go, what is valid comes back, half a list is finished by the stream."""

from rebalancer.adapters.streams.restore import rebuild
from rebalancer.adapters.translate import (
    Barrier,
    encode_barrier,
    encode_deleted,
    encode_fact,
    encode_outcome,
    encode_plan,
    encode_snapshot,
)
from rebalancer.core.stimuli import FactDeleted, FactObserved, Restored, SnapshotBegan, SnapshotEnded
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.streams.fakes import lying
from tests.streams.things import CLUSTER, MINUTE, NOW, node, outcome, plan

NODES, PODS = v1.FACT_TOPICS["node"], v1.FACT_TOPICS["pod"]


def fact(uid: str, gpus: int = 8) -> Record:
    return encode_fact(node(uid, gpus=gpus), CLUSTER, NOW)


def began(name: str) -> Record:
    return encode_snapshot(SnapshotBegan("node", name, NOW), CLUSTER)


def ended(name: str, count: int) -> Record:
    return encode_snapshot(SnapshotEnded("node", name, count, NOW), CLUSTER)


def pods_complete() -> list[Record]:
    marks = (SnapshotBegan("pod", "p", NOW), SnapshotEnded("pod", "p", 0, NOW))
    return [encode_snapshot(mark, CLUSTER) for mark in marks]


def told(*records: Record) -> tuple[list[str], bool]:
    """Uids of the nodes told, and whether the picture is said to be complete."""
    found = rebuild(lying(records), CLUSTER, NOW)
    restored = found.stimuli[0]
    assert isinstance(restored, Restored)
    return [one.fact.uid for one in found.stimuli if isinstance(one, FactObserved)], restored.synced


def test_the_last_word_about_an_object_counts() -> None:
    found = rebuild(lying([fact("a", 8), fact("b"), fact("a", 4)]), CLUSTER, NOW)
    seen = {one.fact.uid: one.fact for one in found.stimuli if isinstance(one, FactObserved)}
    assert [one.gpus for one in seen.values()] == [8, 4]  # type: ignore[union-attr]  # only nodes were told


def test_a_deleted_object_does_not_come_back() -> None:
    gone = encode_deleted(FactDeleted("node", "a", NOW), CLUSTER)
    assert told(fact("a"), fact("b"), gone)[0] == ["b"]


def test_what_a_complete_list_left_out_is_a_ghost() -> None:
    records = [fact("ghost"), began("1"), fact("a"), ended("1", 1), fact("later"), *pods_complete()]
    assert told(*records) == (["a", "later"], True)


def test_half_a_list_is_told_with_its_begin_and_is_not_complete() -> None:
    found = rebuild(lying([fact("old"), began("1"), fact("a")]), CLUSTER, NOW)
    kinds = [type(one).__name__ for one in found.stimuli[1:]]
    assert kinds == ["FactObserved", "SnapshotBegan", "FactObserved"]


def test_a_list_that_began_after_the_last_complete_one_makes_the_picture_incomplete() -> None:
    assert told(began("1"), fact("a"), ended("1", 1), began("2"), *pods_complete()) == (["a"], False)


def test_without_any_list_nothing_is_complete() -> None:
    assert told(fact("a")) == (["a"], False)


def test_another_clusters_records_are_passed_over() -> None:
    assert told(encode_fact(node("b"), "other", NOW))[0] == []


def test_only_plans_that_are_still_valid_come_back_with_their_outcomes() -> None:
    records = [
        encode_plan(plan("gone", valid=-MINUTE), CLUSTER),
        encode_plan(plan("open"), CLUSTER),
        encode_plan(plan("open"), CLUSTER),
        encode_outcome(outcome("gone"), CLUSTER),
        encode_outcome(outcome("open"), CLUSTER),
        encode_outcome(outcome("open"), CLUSTER),
    ]
    restored = rebuild(lying(records), CLUSTER, NOW).stimuli[0]
    assert isinstance(restored, Restored)
    assert [one.id for one in restored.plans] == ["open"]
    assert [one.plan for one in restored.outcomes] == ["open"]


def test_the_last_answered_step_is_known_again_and_gives_the_time() -> None:
    barriers = [Barrier(step, NOW + step * MINUTE) for step in (1, 2)]
    found = rebuild(lying([encode_barrier(v1.OUTCOME, one, CLUSTER) for one in barriers]), CLUSTER, NOW)
    assert found.barrier == barriers[-1]
    assert found.stimuli[0].at == NOW + 2 * MINUTE  # type: ignore[union-attr]  # the first one is Restored


def test_what_cannot_be_read_is_counted_and_passed_over() -> None:
    found = rebuild(lying([Record(NODES, b"x", b"{", []), fact("a")]), CLUSTER, NOW)
    assert (found.unreadable, len(found.stimuli)) == (1, 2)
