"""Metrics: names, helps and labels as Prometheus wants them, closed label sets, series from the start, pool by pool."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.metrics import ROLES, Metrics
from rebalancer.adapters.streams.decider import Decider
from rebalancer.adapters.streams.gate import ImmediateGate
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.core.facts import Control
from rebalancer.core.instructions import ClearAlert, ForgetLoan, RaiseAlert, RecordLoan, RecordPool
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.plan import EvictGang, Member, Method, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.stimuli import FactObserved
from rebalancer.core.units import Mode, OwnerClass
from tests.cli.night import pool_state
from tests.servers.goparts import binary
from tests.streams.fakes import FakePublisher
from tests.streams.things import POLICY

pytestmark = pytest.mark.go_binaries("promtool")

NOW = datetime(2026, 3, 2, 22, tzinfo=UTC)
POOL = "infer-a100"
POOLS = (POOL, "infer-l20")
UNITS = ("_total", "_seconds", "_gpus", "_info", "_limit", "_nodes", "_records", "_percent")
UNITLESS = {"ready", "term", "leader", "loans", "loans_overdue", "alerts_standing", "pool_acting"}
"""Gauges that count things named by their own name, or are 0 and 1."""
MOST_SERIES = 600
"""Series of one process with two pools: what a scrape may cost before anything has happened."""


@pytest.fixture
def metrics() -> Metrics:
    found = Metrics()
    found.adopt(POOLS)
    Watching(found.registry)
    return found


def families(metrics: Metrics) -> Iterator[Metric]:
    yield from metrics.registry.collect()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"gpu_rebalancer_{name}", labels)


def loan(name: str = "loan-1", due: datetime = NOW, phase: LoanPhase = LoanPhase.ON_LOAN, **changes: object) -> Loan:
    because = Because(Reason.IDLE_PROVEN, {})
    held = Loan(
        name, f"uid-{name}", f"node-{name}", POOL, OwnerClass.TRAINING, "ml/a", 8, Mode.ACT, phase, "p", because,
        NOW - timedelta(hours=1), due, due, lent_at=NOW - timedelta(minutes=20),
    )  # fmt: skip
    return replace(held, **changes)  # type: ignore[arg-type]  # a test's changes are those of the record


def alert(reason: Reason, pool: str = POOL, key: str = "a") -> RaiseAlert:
    return RaiseAlert(key, "warning", "n1", pool, Because(reason), NOW)


def test_names_have_our_prefix_a_help_and_a_unit(metrics: Metrics) -> None:
    for family in families(metrics):
        assert re.fullmatch(r"gpu_rebalancer(_[a-z0-9]+)+", family.name), family.name
        assert family.documentation, family.name
        assert family.documentation.endswith("."), family.name
        short = family.name.removeprefix("gpu_rebalancer_")
        if family.type == "gauge":
            plain = short in UNITLESS or re.fullmatch(r"pool_(nodes|lent_nodes|floor_nodes)", short)
            assert plain or short.endswith(UNITS), family.name
        assert not short.endswith(("_total", "_count", "_sum", "_bucket")), family.name


def test_every_label_is_named_in_the_help(metrics: Metrics) -> None:
    for family in families(metrics):
        named = {label for sample in family.samples for label in sample.labels if label != "le"}
        assert not named or "Labeled by" in family.documentation, family.name
        for label in named:
            assert label in family.documentation.partition("Labeled by")[2], (family.name, label)


def test_label_values_are_closed_sets_whatever_records_name(metrics: Metrics) -> None:
    before = series(metrics)
    assert metrics.pools is not None
    assert metrics.evictions is not None
    metrics.pools.restored([], [])
    for number in range(50):
        foreign = f"foreign-{number}"
        metrics.pools.published(RecordLoan(loan(foreign, lender=foreign)))
        metrics.pools.published(RecordPool(replace(pool_state(), pool=foreign)))
        metrics.pools.published(alert(Reason.OVERDUE, foreign, foreign))
        plan, step = evicting(f"plan-{number}", pool=foreign)
        metrics.evictions.heard(plan)
        metrics.evictions.told(outcome(plan, step, Result.DONE, {"members": 2}))
        metrics.called(foreign, foreign, "ok", 0.1)
    grown = {name for name in series(metrics) - before if "other" not in name[1] and "error" not in name[1]}
    assert grown == set()
    assert len(series(metrics)) - len(before) < 60


def test_the_cost_of_a_scrape_is_bounded(metrics: Metrics) -> None:
    assert len(series(metrics)) < MOST_SERIES * len(POOLS)


def test_only_the_metrics_of_the_roles_that_run_are_there() -> None:
    told = generate_latest(Metrics(["telemetry"]).registry).decode()
    assert "gpu_rebalancer_pool_" not in told
    assert "gpu_rebalancer_evictions_total" not in told


def series(metrics: Metrics) -> set[tuple[str, tuple[str, ...]]]:
    return {(sample.name, tuple(sample.labels.values())) for family in families(metrics) for sample in family.samples}


@pytest.mark.parametrize("name", ["pool_owned_gpus", "pool_lent_gpus", "loans_overdue", "next_due_timestamp_seconds"])
def test_what_this_process_does_not_decide_is_not_a_number(metrics: Metrics, name: str) -> None:
    for pool in POOLS:
        found = value(metrics, name, pool=pool)
        assert found is not None
        assert math.isnan(found)


def test_a_decider_that_begins_knows_and_no_loan_is_due_at_infinity(metrics: Metrics) -> None:
    assert metrics.pools is not None
    metrics.pools.restored([], [])
    assert value(metrics, "next_due_timestamp_seconds", pool=POOL) == math.inf
    assert value(metrics, "loans_overdue", pool=POOL) == 0
    metrics.pools.lost()
    assert math.isnan(value(metrics, "next_due_timestamp_seconds", pool=POOL) or 0)


def test_loans_are_counted_by_phase_and_the_first_due_is_told(metrics: Metrics) -> None:
    assert metrics.pools is not None
    later = NOW + timedelta(days=36500)
    metrics.pools.restored([loan("a"), loan("b", later)], [])
    metrics.pools.published(RecordLoan(loan("s", NOW - timedelta(days=1), mode=Mode.SHADOW)))
    assert value(metrics, "loans", pool=POOL, phase="on-loan", mode="act") == 2
    assert value(metrics, "loans", pool=POOL, phase="on-loan", mode="shadow") == 1
    assert value(metrics, "next_due_timestamp_seconds", pool=POOL) == NOW.timestamp()
    assert value(metrics, "loans_overdue", pool=POOL) == 1
    home = loan("a", phase=LoanPhase.RETURNED, closed_at=NOW)
    for _ in range(2):
        metrics.pools.published(RecordLoan(home))
    assert value(metrics, "loans_overdue", pool=POOL) == 0
    assert value(metrics, "loan_seconds_count", pool=POOL) == 1
    assert value(metrics, "loan_seconds_bucket", pool=POOL, le="1800.0") == 1
    metrics.pools.published(ForgetLoan("b"))
    assert value(metrics, "next_due_timestamp_seconds", pool=POOL) == math.inf


def test_a_picture_shows_gpus_by_state_and_idle_ones_by_blocker(metrics: Metrics) -> None:
    assert metrics.pools is not None
    metrics.pools.published(RecordPool(replace(pool_state(), idle_blockers={"floor": 32, "cooldown": 8, "busy": 1})))
    shown = ("owned", "busy", "idle", "unknown", "lent", "borrowed", "releasing", "demand")
    found = [value(metrics, f"pool_{name}_gpus", pool=POOL) for name in shown]
    assert found == [160, 40, 100, 20, 8, 0, 0, 48.5]
    blocked = [value(metrics, "pool_idle_blocked_gpus", pool=POOL, reason=why) for why in ("floor", "paused", "other")]
    assert blocked == [32, 0, 8]


def test_standing_alerts_are_counted_until_they_are_cleared(metrics: Metrics) -> None:
    assert metrics.pools is not None
    metrics.pools.restored([], [alert(Reason.GANG_SPLIT)])
    metrics.pools.published(alert(Reason.INVALID_POLICY, "", "b"))
    assert value(metrics, "alerts_standing", pool=POOL, reason="gang-split") == 1
    assert value(metrics, "alerts_standing", pool="", reason="invalid-policy") == 1
    metrics.pools.published(ClearAlert("a", NOW))
    assert value(metrics, "alerts_standing", pool=POOL, reason="gang-split") == 0


def test_series_of_a_pool_that_the_policy_no_longer_names_go_away(metrics: Metrics) -> None:
    assert any("infer-l20" in labels for _, labels in series(metrics))
    metrics.adopt([POOL])
    assert not any("infer-l20" in labels for _, labels in series(metrics))
    assert any(POOL in labels for _, labels in series(metrics))


def evicting(name: str, pool: str = POOL, pods: int = 8) -> tuple[Plan, EvictGang]:
    members = tuple(Member(f"u{one}", "ml", f"a-{one}", "n1", 1) for one in range(pods))
    because = Because(Reason.INFERENCE_PENDING)
    step = EvictGang("ml/a", "ml/a", "ml", "", members, True, NOW, NOW, 0, 30, 0.0, because)
    plan = Plan(name, pool, Method.RECLAIM, Mode.ACT, because, (step,), NOW, NOW + timedelta(minutes=10))
    return plan, step


def outcome(
    plan: Plan, step: EvictGang, result: Result, numbers: dict[str, int], because: Because | None = None
) -> Outcome:
    why = because or Because(Reason.CONFIRMED)
    return Outcome(plan.id, plan.pool, 0, "evict", step.gang, result, why, NOW, numbers=dict(numbers))


SPLIT = Because(Reason.GANG_SPLIT, {"gone": 3, "members": 8})
BLOCKED = Because(Reason.BUDGET_BLOCKED)


@pytest.mark.parametrize(
    ("told", "pods", "gangs"),
    [
        pytest.param(
            [(Result.STARTED, {}, None), (Result.DONE, {"members": 8}, None)],
            {("done", "inference-pending"): 8}, 1, id="a gang of eight counts eight, not sixty-four",
        ),
        pytest.param([(Result.DONE, {"members": 0}, None)], {}, 0, id="one that left by itself counts nothing"),
        pytest.param(
            [(Result.BLOCKED, {}, BLOCKED), (Result.REFUSED, {}, BLOCKED)],
            {("refused", "budget-blocked"): 8}, 0, id="one that is refused counts under why",
        ),
        pytest.param(
            [(Result.REFUSED, {}, SPLIT)],
            {("done", "inference-pending"): 3, ("refused", "gang-split"): 5}, 1, id="half gone counts both",
        ),
    ],
)  # fmt: skip
def test_evictions_are_counted_once_a_pod(
    metrics: Metrics,
    told: Iterable[tuple[Result, dict[str, int], Because | None]],
    pods: dict[tuple[str, str], int],
    gangs: int,
) -> None:
    plan, step = evicting("p")
    assert metrics.evictions is not None
    metrics.evictions.heard(plan)
    for result, numbers, because in told:
        metrics.evictions.told(outcome(plan, step, result, numbers, because))
    counted = [
        (sample.labels["result"], sample.labels["reason"], sample.value)
        for family in families(metrics)
        for sample in family.samples
        if sample.name == "gpu_rebalancer_evictions_total" and sample.value
    ]
    assert {(result, reason): count for result, reason, count in counted} == pods
    assert value(metrics, "gangs_evicted_total", pool=POOL, reason="inference-pending") == gangs


def test_a_limit_that_is_not_known_is_infinite() -> None:
    assert value(Metrics(), "loans_limit") == math.inf


@pytest.mark.parametrize(
    ("braked", "limit"),
    [
        pytest.param(None, 7, id="the policy's"),
        pytest.param(3, 3, id="the brakes', which is less"),
        pytest.param(9, 7, id="the policy's, though the brakes allow more"),
    ],
)
async def test_who_decides_tells_the_limit_in_force(braked: int | None, limit: int) -> None:
    metrics = Metrics()
    limited = replace(POLICY, pace=replace(POLICY.pace, max_loans=7))
    publisher = cast("Publisher", FakePublisher())
    decider = Decider("c", limited, "digest", ImmediateGate(), publisher, metrics, "d")
    await decider.begin([FactObserved(Control(max_loans=braked), datetime.now(UTC))])
    await decider.plan()
    assert value(metrics, "loans_limit") == limit


def test_promtool_has_nothing_to_say_about_a_page_of_metrics(metrics: Metrics) -> None:
    assert metrics.pools is not None
    metrics.alertmanager("am-0:9093")
    metrics.pools.restored([loan()], [alert(Reason.OVERDUE)])
    metrics.pools.published(RecordPool(pool_state()))
    page = generate_latest(metrics.registry)
    told = subprocess.run([binary("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (told.returncode, told.stdout.decode(), told.stderr.decode()) == (0, "", "")


def test_all_roles_have_their_series_at_once() -> None:
    for role in ROLES:
        assert value(Metrics([role]), "failures_total", role=role) == 0
