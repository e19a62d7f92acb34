"""The engine remembers why, by every name that a person would use."""

from __future__ import annotations

import pytest

from rebalancer.core import engine
from rebalancer.core.plan import Method
from rebalancer.core.reasons import Reason
from rebalancer.core.stimuli import FactObserved
from tests.core.away import away
from tests.core.build import Rig, gang, replica

POOL = "infer-a100"


def told() -> tuple[Rig, str]:
    """A reclaim, carried out."""
    rig = away("n0", "n1", pods=[*gang("a", on=["n0"]), *gang("b", on=["n1"])])
    rig.see(replica("chat", created_at=rig.now))
    (plan,) = [plan for plan in rig.plans() if plan.method is Method.RECLAIM]
    rig.bring_home(plan)
    return rig, plan.id


@pytest.mark.parametrize(
    ("key", "whats"),
    [
        pytest.param("n0", {"plan reclaim", "loan returned", "close done", "restore done"}, id="a node by name"),
        pytest.param("uid-n0", {"plan reclaim", "loan returned", "close done", "restore done"}, id="a node by uid"),
        pytest.param("ml/a", {"plan reclaim", "evict done"}, id="a gang"),
        pytest.param("ml/a-0", {"plan reclaim"}, id="a pod by name, gone though it is"),
        pytest.param("uid-a-0", {"plan reclaim"}, id="a pod by uid"),
        pytest.param("loan-n0", {"plan reclaim", "loan recalling", "loan returned"}, id="a loan"),
        pytest.param("n1", {"loan on-loan"}, id="the node that stayed"),
    ],
)
def test_a_story_is_found_by_any_name(key: str, whats: set[str]) -> None:
    rig, _ = told()
    assert whats <= {entry.what for entry in rig.engine.story(key)}


def test_a_story_is_told_in_order_with_its_sentences() -> None:
    rig, plan = told()
    entries = rig.engine.story(plan)
    assert [entry.what for entry in entries if entry.what.startswith("plan")] == ["plan reclaim"]
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
    assert entries[0].because.reason is Reason.INFERENCE_PENDING
    assert entries[0].sentence == "1 inference pods of infer-a100 wait for 8 GPUs, 0 stand ready"


def test_a_pod_that_exists_is_known_by_its_gang() -> None:
    rig = away("n0", "n1", pods=[*gang("a", on=["n0"]), *gang("b", on=["n1"])])
    rig.see(replica("chat", created_at=rig.now))
    rig.plans()
    assert [entry.what for entry in rig.engine.story("uid-a-0")] == ["plan reclaim"]
    assert rig.engine.story("ml/b") == []


def test_nobody_has_no_story() -> None:
    assert told()[0].engine.story("nobody") == []


def test_a_cancel_is_told_with_the_plan_it_calls_off() -> None:
    rig = away("n0", pods=gang("a", on=["n0"]))
    rig.see(replica("chat", created_at=rig.now))
    (plan,) = [plan for plan in rig.plans() if plan.method is Method.RECLAIM]
    rig.lose("pod", "uid-chat")
    rig.pass_time(0.1)
    assert [entry.what for entry in rig.engine.story(plan.id)] == ["plan reclaim", "plan cancel"]


def test_alerts_are_part_of_the_story() -> None:
    rig = away("n0", pods=gang("squats", on=["n0"], reclaimable=False))
    rig.plans()
    assert [entry.what for entry in rig.engine.story("ml/squats-0")] == ["alert"]


def test_the_memory_of_stories_is_bounded() -> None:
    rig = away("n0")
    assert rig.engine._story.maxlen == engine.STORY_KEPT == 20_000


def test_a_fork_goes_its_own_way() -> None:
    rig = away("n0", pods=gang("a", on=["n0"]))
    fork = rig.engine.fork()
    fork.handle(FactObserved(replica("chat"), rig.now), rig.now)
    assert "uid-chat" in fork.state.inventory.pods
    assert "uid-chat" not in rig.engine.state.inventory.pods
