"""Loans under an `always` window: they go on while nobody misses their nodes, and end when somebody does."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.core.plan import Method, Result
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.direct import Direct
from rebalancer.simulate.loading import load
from rebalancer.simulate.policies import policy_of

HOUR = 3600
POOLS = [
    {"name": "train-a100", "owner": "training", "model": "A100", "nodes": 1},
    {
        "name": "infer-a100",
        "owner": "inference",
        "model": "A100",
        "nodes": 5,
        "lends_to": ["training"],
        "windows": [{"name": "always", "always": True}],
    },
]
CHAT = {"name": "chat", "pool": "infer-a100", "gpus": 8, "minimum": 1, "maximum": 4, "peak_gpus": 6, "curve": "flat",
        "start_seconds": 30}  # fmt: skip
POLICY = {
    "activities": {"dwell": 600},
    "signals": {"headroom_prior_share": 0.05},
    "borrowing": {"max_loan": HOUR, "lead_time": 600, "max_grace": 300},
}


def job(name: str, pods: int, seconds: float, **changes: Any) -> dict[str, Any]:
    return {"name": name, "pods": pods, "gpus": 8, "seconds": seconds, "models": ["A100"], "at": 0.0, **changes}


def run(*, hours: float = 4, jobs: list[dict[str, Any]] | None = None, **changes: Any) -> Direct:
    """Five nodes, one replica, the training pool full, and a gang of two that outlasts the run."""
    own = job("own", 1, 40_000, at=-300.0, pool="train-a100")
    scenario = load({
        "name": "renewal", "start": "2026-03-10T20:00:00+00:00", "hours": hours, "warm_up_seconds": 900, "seed": 5,
        "pools": POOLS, "curves": {"flat": {"00:00": 1.0}}, "services": [CHAT],
        "jobs": [own, *(jobs if jobs is not None else [job("long", 2, 30_000)])], "policy": POLICY, **changes,
    })  # fmt: skip
    driver = Direct(SimulatedCluster(scenario), policy_of(scenario), check=True)
    driver.run()
    return driver


def made(driver: Direct, method: Method) -> list[str]:
    return [plan.id for plan in driver.told.plans if plan.method is method]


def test_a_long_gang_keeps_its_nodes_hour_after_hour_and_nobody_is_evicted() -> None:
    driver = run()
    books = driver.world.books
    assert books.evictions == 0
    assert len(made(driver, Method.RENEW)) >= 3
    assert made(driver, Method.RETURN) == []
    assert not any(book.overdue for book in books.loans.values())
    assert len(books.loans) == 2
    assert all(book.ended is None for book in books.loans.values())
    renewed = [told for told in driver.told.outcomes if told.kind == "renew" and told.result is Result.DONE]
    assert len(renewed) == 2 * len(made(driver, Method.RENEW))


def test_the_ledger_says_what_the_marks_say() -> None:
    driver = run(hours=2)
    loans = driver.engine.state.open_loans()
    marks = [node.loan for node in driver.world.store.nodes.values() if node.loan is not None]
    assert sorted(loan.due for loan in loans) == sorted(mark.due for mark in marks)
    assert all(loan.renewed_at is not None for loan in loans)


def test_when_demand_rises_a_loan_is_not_renewed_and_comes_home_in_time() -> None:
    spike = {"service": "chat", "at": 30 * 60, "seconds": 2.5 * HOUR, "gpus": 18}
    driver = run(hours=2, spikes=[spike])
    books = driver.world.books
    assert made(driver, Method.RENEW) == []
    assert books.evictions > 0
    assert not any(book.overdue for book in books.loans.values())


def test_a_node_that_nobody_uses_any_more_is_not_lent_on() -> None:
    driver = run(hours=2, jobs=[job("short", 2, 1200)])
    books = driver.world.books
    assert books.evictions == 0
    assert made(driver, Method.RENEW) == []
    assert [book.ended is not None for book in books.loans.values()] == [True, True]


@pytest.mark.parametrize("seed", [5, 6])
def test_the_same_seed_renews_the_same_loans(seed: int) -> None:
    first, second = run(hours=2, seed=seed), run(hours=2, seed=seed)
    assert made(first, Method.RENEW) == made(second, Method.RENEW) != []
