"""Whether a pod may run on a node, and whether a gang finds concrete room: the scheduler's hard rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.core.facts import Pod, Requirement, Taint, Toleration
from rebalancer.core.fit import Room, admits, conflicts, matches, place, selects, settle, takes, tolerates, untolerated
from tests.core.build import OWNER_TAINT, START, gang, node, replica

LABELS = {"gpu-model": "A100", "generation": "80"}


@pytest.mark.parametrize(
    ("operator", "key", "values", "holds"),
    [
        pytest.param("In", "gpu-model", ("L20", "A100"), True, id="In holds for a listed value"),
        pytest.param("In", "gpu-model", ("L20",), False, id="In fails for another value"),
        pytest.param("In", "zone", ("a",), False, id="In fails for a label that is absent"),
        pytest.param("NotIn", "gpu-model", ("L20",), True, id="NotIn holds for another value"),
        pytest.param("NotIn", "gpu-model", ("A100",), False, id="NotIn fails for a listed value"),
        pytest.param("NotIn", "zone", ("a",), True, id="NotIn holds for a label that is absent"),
        pytest.param("Exists", "gpu-model", (), True, id="Exists holds for any value"),
        pytest.param("Exists", "zone", (), False, id="Exists fails without the label"),
        pytest.param("DoesNotExist", "zone", (), True, id="DoesNotExist holds without the label"),
        pytest.param("DoesNotExist", "gpu-model", (), False, id="DoesNotExist fails with the label"),
        pytest.param("Gt", "generation", ("79",), True, id="Gt compares numbers"),
        pytest.param("Gt", "generation", ("80",), False, id="Gt is strict"),
        pytest.param("Gt", "generation", ("9",), True, id="Gt does not compare as text"),
        pytest.param("Lt", "generation", ("81",), True, id="Lt compares numbers"),
        pytest.param("Lt", "generation", ("80",), False, id="Lt is strict"),
        pytest.param("Gt", "gpu-model", ("1",), False, id="Gt of a word never holds"),
        pytest.param("Gt", "zone", ("1",), False, id="Gt of an absent label never holds"),
        pytest.param("Lt", "generation", (), False, id="Lt without a bound never holds"),
        pytest.param("Near", "gpu-model", ("A100",), False, id="an operator unknown to us never holds"),
    ],
)
def test_requirement(operator: str, key: str, values: tuple[str, ...], holds: bool) -> None:
    assert matches((Requirement(key, operator, values),), LABELS) is holds


def test_a_selector_needs_all_its_requirements_and_the_empty_one_matches_everything() -> None:
    model, zone = Requirement("gpu-model", "In", ("A100",)), Requirement("zone", "Exists")
    assert matches((model,), LABELS)
    assert not matches((model, zone), LABELS)
    assert matches((), {})


def test_terms_are_alternatives_and_no_terms_accept_every_node() -> None:
    right, wrong = (Requirement("gpu-model", "In", ("A100",)),), (Requirement("gpu-model", "In", ("L20",)),)
    assert selects((wrong, right), LABELS)
    assert not selects((wrong,), LABELS)
    assert selects((), {})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration("workload", "Equal", "inference"), True, id="same key and value"),
        pytest.param(Toleration("workload", "Equal", "training"), False, id="another value"),
        pytest.param(Toleration("other", "Equal", "inference"), False, id="another key"),
        pytest.param(Toleration("workload", "Exists"), True, id="Exists takes any value of the key"),
        pytest.param(Toleration("other", "Exists"), False, id="Exists of another key"),
        pytest.param(Toleration("", "Exists"), True, id="Exists without a key takes everything"),
        pytest.param(Toleration("", "Equal", "inference"), False, id="Equal without a key takes nothing"),
        pytest.param(Toleration("workload", "Equal", "inference", "NoSchedule"), True, id="the same effect"),
        pytest.param(Toleration("workload", "Equal", "inference", "NoExecute"), False, id="another effect"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="everything, but of another effect"),
    ],
)
def test_toleration(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates([toleration], OWNER_TAINT) is tolerated


def test_one_toleration_of_several_is_enough_and_none_is_not() -> None:
    other, right = Toleration("other", "Exists"), Toleration("workload", "Exists")
    assert tolerates([other, right], OWNER_TAINT)
    assert not tolerates([], OWNER_TAINT)


@pytest.mark.parametrize(
    ("effect", "kept_away"),
    [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)],
    ids=["NoSchedule is hard", "NoExecute is hard", "PreferNoSchedule is a wish"],
)
def test_only_hard_taints_keep_a_pod_away(effect: str, kept_away: bool) -> None:
    taint = Taint("maintenance", "", effect)
    (pod,) = gang("a")
    assert (untolerated(pod, [taint]) is taint) is kept_away


def test_a_node_admits_by_labels_and_by_taints() -> None:
    pod, home = replica("chat"), node("n0")
    assert admits(home, pod, (OWNER_TAINT,))
    assert not admits(home, pod, (OWNER_TAINT, Taint("maintenance")))
    assert not admits(replace(home, labels={"gpu-model": "L20"}), pod, (OWNER_TAINT,))


APART = (Requirement("app", "In", ("chat",)),)


@pytest.mark.parametrize(
    ("mine", "theirs", "namespace", "conflict"),
    [
        pytest.param((APART,), (), "serving", True, id="the newcomer wants to be apart"),
        pytest.param((), (APART,), "serving", True, id="the guest wants to be apart"),
        pytest.param((), (), "serving", False, id="nobody minds"),
        pytest.param((APART,), (APART,), "elsewhere", False, id="terms do not reach into another namespace"),
    ],
)
def test_host_anti_affinity_of_either_side_forbids(
    mine: tuple[object, ...], theirs: tuple[object, ...], namespace: str, conflict: bool
) -> None:
    newcomer = replica("chat-1", labels={"app": "chat"}, anti_affinity=mine)
    guest = replica("chat-0", labels={"app": "chat"}, anti_affinity=theirs, namespace=namespace)
    assert conflicts(newcomer, [guest]) is conflict


def test_a_term_that_the_other_does_not_match_forbids_nothing() -> None:
    newcomer = replica("chat-1", labels={"app": "chat"}, anti_affinity=(APART,))
    assert not conflicts(newcomer, [replica("db-0", labels={"app": "db"}, anti_affinity=(APART[:0],)[:0])])


def _room(name: str = "n0", free: int = 8, guests: tuple[Pod, ...] = ()) -> Room:
    return Room(node(name), free, (OWNER_TAINT,), list(guests))


@pytest.mark.parametrize(
    ("free", "wanted", "fits"),
    [(8, 8, True), (7, 8, False), (0, None, True), (0, 0, True)],
    ids=["exactly full", "one too few", "an unknown count asks for nothing here", "no GPUs fit a full node"],
)
def test_room_takes_what_is_free(free: int, wanted: int | None, fits: bool) -> None:
    assert takes(_room(free=free), replica("chat", gpus=wanted)) is fits


def test_placing_fills_rooms_in_order_and_tells_where() -> None:
    rooms = [_room("n0", 4), _room("n1", 8)]
    small, large = replica("small", gpus=4), replica("large", gpus=8)
    assert place([small, large], rooms) == {small.uid: "uid-n0", large.uid: "uid-n1"}
    assert [room.free for room in rooms] == [0, 0]
    assert [[pod.name for pod in room.guests] for room in rooms] == [["small"], ["large"]]


def test_a_gang_that_does_not_fit_as_a_whole_leaves_the_rooms_as_they_were() -> None:
    rooms = [_room("n0"), _room("n1", 7)]
    assert place([replica("a"), replica("b")], rooms) is None
    assert [(room.free, room.guests) for room in rooms] == [(8, []), (7, [])]


def test_halves_on_two_nodes_are_no_room_for_a_whole() -> None:
    """F33: what is freed has to fit a concrete node."""
    assert place([replica("wide", gpus=2)], [_room("n0", 1), _room("n1", 1)]) is None


def test_replicas_that_spread_take_a_node_each() -> None:
    pods = [replica(f"chat-{i}", gpus=1, labels={"app": "chat"}, anti_affinity=(APART,)) for i in range(3)]
    assert place(pods[:2], [_room("n0"), _room("n1")]) == {"uid-chat-0": "uid-n0", "uid-chat-1": "uid-n1"}
    assert place(pods, [_room("n0"), _room("n1")]) is None


def test_settling_places_each_for_itself_and_returns_the_rest_largest_and_oldest_first() -> None:
    young = replica("young", gpus=8, created_at=START)
    old = replica("old", gpus=8, created_at=START - timedelta(hours=3))
    small = replica("small", gpus=4)
    left = settle([small, young, old], [_room("n0", 8)])
    assert [pod.name for pod in left] == ["young", "small"]


@given(
    sizes=st.lists(st.integers(0, 8), max_size=8),
    rooms=st.lists(st.integers(0, 8), max_size=5),
)
def test_placing_is_all_or_none_and_never_overfills(sizes: list[int], rooms: list[int]) -> None:
    pods = [replica(f"p{index}", gpus=gpus) for index, gpus in enumerate(sizes)]
    there = [_room(f"n{index}", free) for index, free in enumerate(rooms)]
    placed = place(pods, there)
    used = sum(rooms) - sum(room.free for room in there)
    assert all(room.free >= 0 for room in there)
    assert (placed is None and used == 0) or (placed is not None and used == sum(sizes) and len(placed) == len(sizes))


@given(sizes=st.lists(st.integers(1, 8), max_size=8), rooms=st.lists(st.integers(0, 8), max_size=5))
def test_who_is_settled_does_not_depend_on_the_order_told(sizes: list[int], rooms: list[int]) -> None:
    pods = [replica(f"p{index}", gpus=gpus) for index, gpus in enumerate(sizes)]

    def left(told: list[Pod]) -> list[str]:
        return [pod.name for pod in settle(told, [_room(f"n{index}", free) for index, free in enumerate(rooms)])]

    assert left(pods) == left(pods[::-1])
