"""Figures of a run from its books: capture, shortage, waits, returns (DESIGN 11).

Shortage is counted beyond what the same scenario and seed have without any actor: step by step and pool by pool,
which is possible because loads do not depend on what the cluster does. Capture sets what loans brought against the
clairvoyant optimum of the lending pools. Nothing here changes a book.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from rebalancer.simulate.accounting import Accounting
from rebalancer.simulate.clairvoyant import Flags, Series, clairvoyant, floor_of
from rebalancer.simulate.loading import seconds_of
from rebalancer.simulate.scenario import JobSpec, PoolSpec, Scenario, WindowSpec

_HOUR = 3600.0


def summary(scenario: Scenario, books: Accounting, without: Accounting, t: float) -> dict[str, Any]:
    """The figures at second ``t``; ``without`` are the books of the run without an actor.

    Shares are fractions, times seconds. ``max_wait_in_spike_seconds`` is from the scheduler's first refusal to a
    place: the start of a replica comes on top with and without lending. ``returns_seconds``: closed to restored.
    """
    shortage, outside = _shortage(scenario, books, without)
    load, drain = books.open_stays(t)
    load, drain = load + books.load_gpu_seconds, drain + books.drain_gpu_seconds
    lent = books.lent_gpu_seconds(t)
    best = optimum(scenario, books)
    returns = [book.return_seconds for book in books.loans.values() if book.return_seconds is not None]
    return {
        "capture": (lent - load - drain - books.lost_gpu_seconds) / best if best > 0 else 0.0,
        "shortage": shortage,
        "shortage_outside_spike": outside,
        "max_wait_in_spike_seconds": _longest_wait(scenario, books, t, inside=True),
        "max_wait_seconds": _longest_wait(scenario, books, t, inside=False),
        "slowest_return_seconds": max(returns, default=0.0),
        "returns_seconds": sorted(returns),
        "gpu_hours_lent": lent / _HOUR,
        "gpu_hours_optimum": best / _HOUR,
        "gpu_hours_trained_on_loan": books.ran_lent_gpu_seconds / _HOUR,
        "gpu_hours_trained": books.ran_gpu_seconds / _HOUR,
        "gpu_hours_loading": load / _HOUR,
        "gpu_hours_draining": drain / _HOUR,
        "gpu_hours_lost": books.lost_gpu_seconds / _HOUR,
        "gangs_evicted": len(books.gangs_evicted),
        "pods_evicted": books.evictions,
        "gangs_split": len(books.gangs_split),
        "loans_opened": len(books.loans),
        "loans_overdue": sum(1 for book in books.loans.values() if book.overdue),
        "loans_open_at_end": books.lent_nodes(),
        "trainers_left_at_due": books.trainers_left_at_due,
        "steps": books.steps,
    }


def optimum(scenario: Scenario, books: Accounting) -> float:
    """G* of all lending pools over the steps booked, in GPU-seconds."""
    cost = loan_cost(scenario)
    total = 0.0
    for pool in scenario.pools:
        if pool.lends_to:
            demand = np.array(books.series.asked.get(pool.name, [0] * books.steps), dtype=np.float64)
            floor = floor_of(pool.nodes, pool.floor_nodes, pool.floor_share)
            permitted = permitted_steps(scenario, pool)[: len(demand)]
            dt = scenario.step_seconds
            total += clairvoyant(demand, pool.nodes, pool.gpus, floor, permitted, dt=dt, cost=cost)
    return total


def loan_cost(scenario: Scenario) -> float:
    """Seconds of load, drain and lost work that a loan cannot avoid: those of the cheapest borrower there is.

    A clairvoyant lender would choose that one, and evict it just after a periodic checkpoint if it saves nothing
    while it leaves; hence no lost work.
    """
    borrowers = (*scenario.jobs, *(stream.template for stream in scenario.streams))
    costs = [_cost(job) for job in borrowers if job.tolerates_loan and job.reclaimable and job.owner == "training"]
    return min(costs, default=0.0)


def _cost(job: JobSpec) -> float:
    return job.start_seconds + min(float(job.grace_seconds), job.checkpoint_seconds)


def permitted_steps(scenario: Scenario, pool: PoolSpec) -> Flags:
    """For each step, whether lending is permitted from its beginning to its end."""
    zone = ZoneInfo(scenario.zone)
    width = timedelta(seconds=scenario.step_seconds)
    start = scenario.start
    open_at = [any(is_open(window, (start + i * width).astimezone(zone)) for window in pool.windows)
               for i in range(scenario.steps)]  # fmt: skip
    return np.array(open_at, dtype=np.bool_)


def is_open(window: WindowSpec, local: datetime) -> bool:
    """Whether a window is open at a local time; [start, end), the weekday is that of the start."""
    if window.always:
        return True
    begin, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    clock = local.time().replace(tzinfo=None)
    if begin < end:
        return begin <= clock < end and local.weekday() in window.days
    yesterday = (local.weekday() - 1) % 7
    return (clock >= begin and local.weekday() in window.days) or (clock < end and yesterday in window.days)


def _shortage(scenario: Scenario, books: Accounting, without: Accounting) -> tuple[float, float]:
    missed = outside = asked = 0.0
    for pool in books.series.asked:
        extra = np.maximum(_short(books, pool) - _short(without, pool)[: books.steps], 0.0)
        missed += float(extra.sum())
        outside += float(extra[~_in_spike(scenario, pool, books.steps)].sum())
        asked += float(np.sum(books.series.asked[pool]))
    return (missed / asked, outside / asked) if asked else (0.0, 0.0)


def _short(books: Accounting, pool: str) -> Series:
    asked = np.array(books.series.asked[pool], dtype=np.float64)
    return np.maximum(asked - np.array(books.series.served[pool], dtype=np.float64), 0.0)


def _in_spike(scenario: Scenario, pool: str, steps: int) -> Flags:
    """Steps that end inside an unannounced spike of a pool."""
    flags = np.zeros(steps, dtype=np.bool_)
    ends = (np.arange(steps) + 1) * scenario.step_seconds
    for begin, end in _spikes(scenario, pool):
        flags |= (ends > begin) & (ends <= end + scenario.step_seconds)
    return flags


def _spikes(scenario: Scenario, pool: str) -> Iterable[tuple[float, float]]:
    pool_of = {service.name: service.pool for service in scenario.services}
    for spike in scenario.spikes:
        if pool_of[spike.service] == pool:
            begin = seconds_of(spike.at, scenario)
            yield begin, begin + spike.seconds


def _longest_wait(scenario: Scenario, books: Accounting, t: float, *, inside: bool) -> float:
    waits = [0.0]
    for book in books.waits.values():
        if book.created < 0 or (inside and not _made_in_spike(scenario, book.pool, book.created)):
            continue
        waits.append(book.waited(t))
    return max(waits)


def _made_in_spike(scenario: Scenario, pool: str, created: float) -> bool:
    return any(begin <= created <= end for begin, end in _spikes(scenario, pool))
