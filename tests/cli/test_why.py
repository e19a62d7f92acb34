"""`why` answers in one sentence: why me, for whom, what was rejected, when I may borrow again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.adapters import words
from rebalancer.adapters.store import RawRecord, Store
from rebalancer.adapters.translate import encode_fact
from rebalancer.adapters.why import UnknownTarget, why
from rebalancer.core.loans import LoanPhase
from rebalancer.core.units import Mode
from tests.cli import night
from tests.cli.conftest import Run

EVICTED = (
    "research/llm-7 was evicted (1 pod) at 2026-03-04 03:00Z for infer-a100 (reclaim): "
    "6 inference pods of infer-a100 wait for 24 GPUs, 8 stand ready; "
    "it was chosen because evicting research/llm-7 would lose 960 GPU-seconds; "
    "rejected: research/moe (research/moe is writing a checkpoint); outcome: 1 done; "
    "it may borrow again at 2026-03-04 03:30Z"
)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        pytest.param(night.RECLAIM, "decision", id="a decision by its id"),
        pytest.param(night.RECLAIM[:6], "decision", id="a decision by the beginning of its id"),
        pytest.param(night.GANG, "gang", id="a gang by name"),
        pytest.param("llm-7", "gang", id="a gang by its own name alone"),
        pytest.param("research/llm-7-0", "pod", id="a pod that is gone, by namespace and name"),
        pytest.param("llm-7-0", "pod", id="a pod that is gone, by name"),
        pytest.param("uid-llm-7-0", "pod", id="a pod that is gone, by uid"),
        pytest.param("a-1", "node", id="a node by name"),
        pytest.param("n1", "node", id="a node by uid"),
        pytest.param("loan-1", "loan", id="a loan by id"),
    ],
)
def test_a_target_is_found(store: Store, target: str, kind: str) -> None:
    story = why(store, target)
    assert story.kind == kind
    assert "6 inference pods of infer-a100 wait for 24 GPUs" in story.sentence


def test_a_gang_hears_why_for_whom_what_was_rejected_and_when_it_may_borrow_again(store: Store) -> None:
    later = encode_fact(night.node("n1", "a-1"), night.CLUSTER, night.at(310))
    assert store.latest is not None
    story = why(Store().feed_all(RawRecord(*one) for one in [*list(night.records())[:13], later]), night.GANG)
    assert story.sentence == EVICTED
    assert story.may_borrow_again == night.at(330)


def test_once_the_cooldown_is_over_it_may_borrow_now(store: Store) -> None:
    store.feed(RawRecord(*encode_fact(night.node("n1", "a-1"), night.CLUSTER, night.at(400))))
    assert why(store, night.GANG).sentence.endswith("it may borrow again since 2026-03-04 03:30Z")


def test_a_workload_kept_longer_than_its_cooldown_hears_why(store: Store) -> None:
    (name, record), *_ = store.workloads.items()
    store.workloads[name] = replace(record, protected_until=night.at(2000))
    told = why(store, night.GANG).sentence
    assert told.endswith(f"at 2026-03-05 07:20Z: {name} was preempted too often in a day")


def test_a_name_that_several_gangs_have_is_answered_with_all_of_them(store: Store) -> None:
    store.feed(RawRecord(*encode_fact(night.pod("other-0", gang="vision/llm-7"), night.CLUSTER, night.T0)))
    with pytest.raises(UnknownTarget, match="did you mean research/llm-7, vision/llm-7"):
        why(store, "llm-7")


def test_a_gang_that_was_only_passed_over_hears_why(store: Store) -> None:
    told = why(store, "research/vision").sentence
    assert told.startswith("research/vision was neither lent to nor evicted; passed over at 2026-03-03 22:30Z")
    assert "research/vision does not declare A100" in told


def test_a_gang_without_any_decision_hears_that_it_waits(store: Store) -> None:
    told = why(store, "research/waiting-0")
    assert told.kind == "pod"
    assert told.sentence == "research/waiting was neither lent to nor evicted; it waits for 8 GPUs"


def test_a_node_says_where_it_stands_now(store: Store) -> None:
    told = why(store, "a-1").sentence
    assert "it came home at 2026-03-04 03:03Z" in told
    assert told.startswith("a-1 was closed and brought home at 2026-03-04 03:00Z (reclaim for infer-a100)")


def test_a_node_that_was_never_touched_names_what_keeps_its_pool_at_home() -> None:
    facts = [record for record in night.records() if record.topic in ("gpu.fact.node.v1", "gpu.state.pool.v1")]
    told = why(Store().feed_all(RawRecord(*one) for one in facts), "a-2").sentence
    assert "no decision has touched it; it is at home" in told
    assert "floor (32), not-idle-long-enough (8)" in told


def test_an_unknown_target_ends_with_the_nearest_names(store: Store) -> None:
    with pytest.raises(UnknownTarget, match="did you mean research/llm-7") as refused:
        why(store, "research/llm-8")
    assert night.GANG in refused.value.nearest


def test_the_command_answers_in_one_line(run: Run, folder: Path) -> None:
    told = run("why", night.RECLAIM, "--from", folder)
    assert told.exit_code == 0
    assert told.stdout.count("\n") == 1
    assert "outcome: 3 done of 3 steps" in told.stdout


def test_json_has_all_that_the_sentence_was_made_from(run: Run, folder: Path) -> None:
    told = json.loads(run("why", night.GANG, "--from", folder, "--json").stdout)
    assert list(told) == [
        "target",
        "kind",
        "sentence",
        "plan",
        "outcomes",
        "loans",
        "workload",
        "rejected",
        "may_borrow_again",
    ]
    assert told["plan"]["because"]["reason"] == "inference-pending"
    assert told["plan"]["because"]["sentence"].startswith("6 inference pods")
    assert told["plan"]["steps"][1]["members"][0]["name"] == "llm-7-0"
    assert told["workload"]["cooldown_until"] == "2026-03-04T03:30:00Z"
    assert told["rejected"][0]["target"] == "research/moe"


def test_an_unknown_target_ends_the_command_with_1(run: Run, folder: Path) -> None:
    told = run("why", "a-11", "--from", folder)
    assert told.exit_code == 1
    assert told.stdout == ""
    assert "no decision, pod, gang, node, loan or alert is called 'a-11'; did you mean a-1" in told.stderr


def test_what_is_not_done_yet_was_only_to_be_done(store: Store) -> None:
    store.outcomes.clear()
    told = why(store, night.GANG).sentence
    assert told.startswith("research/llm-7 was to be evicted (1 pod)")
    assert "no outcome yet" in told


def test_what_a_shadow_plan_says_would_have_been(store: Store) -> None:
    store.plans[night.RECLAIM] = replace(store.plans[night.RECLAIM], mode=Mode.SHADOW)
    assert why(store, night.GANG).sentence.startswith("research/llm-7 would have been evicted")
    assert "(shadow, nothing is touched)" in why(store, night.RECLAIM).sentence


@pytest.mark.parametrize("phase", list(LoanPhase), ids=lambda phase: phase.value)
def test_a_loan_of_every_phase_says_where_the_node_stands(store: Store, phase: LoanPhase) -> None:
    store.loans["loan-1"] = night.loan(phase)
    assert words.standing(store.loans["loan-1"]) in why(store, "loan-1").sentence
