"""Each benchmark runs at tiny size and tells figures of the agreed shape. No time is asserted."""

import json
import math
from typing import Any

import pytest

from tests.bench import decision, event_cost, memory, planning, scrapes
from tests.bench.__main__ import BARS, BENCHES, table
from tests.bench.machine import machine
from tests.servers.kafka import KafkaServer


def _sound(told: dict[str, Any], headline: str) -> None:
    assert math.isfinite(told[headline])
    assert told[headline] > 0
    assert json.loads(json.dumps(told)) == told


def test_every_bar_has_a_benchmark_and_the_table_names_each() -> None:
    told = dict.fromkeys(BARS, 1.5)
    assert len(BENCHES) == len(BARS)
    assert [line.split()[0] for line in table(told).splitlines()[1:]] == list(BARS)


def test_the_table_says_which_bar_is_missed() -> None:
    missed = [line.split()[0] for line in table(dict.fromkeys(BARS, 1.5)).splitlines() if line.endswith("MISSED")]
    assert missed == ["plan_500_nodes_s", "node_scrapes_per_s"]


def test_the_machine_is_told() -> None:
    told = machine()
    assert told["cores"] >= 1
    assert json.loads(json.dumps(told)) == told


def test_event_cost_tells_a_ratio_for_each_way_a_fleet_grows() -> None:
    told = event_cost.run(large=2, rounds=2, events=12)
    _sound(told, "event_cost_ratio_100k_1k")
    for layout in ("many pools", "one pool"):
        assert set(told["event_cost"][layout]["ratio_by_kind"]) == set(event_cost.KINDS)


@pytest.mark.parametrize("one_pool", [False, True], ids=["its own pools", "one pool for all"])
def test_events_of_the_benchmark_make_no_plans_and_leave_the_fleet_as_it_was(one_pool: bool) -> None:
    found = event_cost.subject("x", 2, one_pool=one_pool)
    state = found.engine.state
    before = (len(state.inventory.pods), len(state.loan_of), len(state.plans))
    event_cost.one_batch(found, 24)
    found.engine.check()
    assert (len(state.inventory.pods), len(state.loan_of), len(state.plans)) == before
    assert before[1:] == (2 * 7, 1 if one_pool else 2)


def test_planning_tells_a_recall_and_a_reclaim_of_a_tenth() -> None:
    told = planning.run(nodes=20, rounds=1)
    _sound(told, "plan_500_nodes_s")
    assert [told["plan"][name]["nodes"] for name in ("recall", "reclaim")] == [2, 2]


def test_memory_is_told_by_a_process_of_its_own() -> None:
    told = memory.run(large=1)
    _sound(told, "memory_100k_gpus_mb")
    assert told["memory"]["gpus"] == 1000


def test_scrapes_are_counted_and_few_verdicts_are_told_of_an_even_load() -> None:
    told = scrapes.run(nodes=2, scrapes=45, rounds=1)
    _sound(told, "node_scrapes_per_s")
    assert 0 < told["scrapes"]["verdicts_told"] <= 90


@pytest.mark.kafka
def test_decisions_come_back_from_the_real_broker(own_kafka: KafkaServer) -> None:
    told = decision.run(nodes=10, trials=2, per_second=20.0, bootstrap=own_kafka.bootstrap)
    _sound(told, "decision_p99_ms")
    assert told["decision"]["trials"] == 2
