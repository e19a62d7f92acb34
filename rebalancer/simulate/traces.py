"""A scenario from real traces: a demand curve (t_s, requests_per_s) and a list of training jobs.

Conversions (all documented defaults, options in :class:`stepview.TraceOptions`): demand in GPUs is
ceil(requests/s / mu), mu such that the curve's ``quantile`` is ``peak_share`` of the pools that it drives; t_s = 0 is
local midnight and the run's start. Jobs are those of one ISO week, whose Monday is the start; those that were
running by then have their rest to do. Virtual clusters are taken, largest first, while their GPU-time within the
run fits ``TRAINING_SHARE`` of the training pool. Nothing is guessed where a row is wrong.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from rebalancer.simulate.loading import ScenarioError, load
from rebalancer.simulate.scenario import JobSpec, Scenario, ServiceSpec
from rebalancer.simulate.stepview import TraceOptions

START = datetime(2026, 3, 9, tzinfo=UTC)
"""A Monday: day of the week of the jobs is kept; the calendar of the traces is not."""
NODES = 64
TRAINING_NODES = 32
TRAINING_SHARE = 2.2
"""GPU-time of the chosen jobs within the run over the training pool's: more than it has, so that loans are wanted."""
WINDOW = {"name": "off-peak", "start": "22:30", "end": "18:30"}
"""The public demand curve peaks in the evening, hence everything is home before it."""
_SHARES = ((8, 0.50), (4, 0.125), (4, 0.125), (2, 0.08), (2, 0.08), (1, 0.045), (1, 0.045))
"""GPUs a replica and share of the load, one service each: host spread leaves every size enough hosts at the peak."""


@dataclass(frozen=True, slots=True)
class TracedJob:
    """One row of a jobs trace; ``at`` is seconds since the chosen week's Monday."""

    at: float
    seconds: float
    gpus: int
    cluster: str


def trace_scenario(demand: Path, jobs: Path, options: TraceOptions, *, days: float = 2.0, seed: int = 1) -> Scenario:
    """The scenario; raises :class:`ScenarioError` naming file, line and column for a row that cannot be read."""
    hours = days * 24.0
    pools = [*map(_lender, options.load_pools), _borrower()]
    scenario = load({"name": "traces", "start": START.isoformat(), "seed": seed, "hours": hours, "pools": pools})
    services = _services(read_demand(demand), options)
    chosen = fit(read_jobs(jobs, options.week), hours * 3600.0)
    gangs = tuple(_gang(job, number, options) for number, job in enumerate(chosen))
    return replace(scenario, services=services, jobs=gangs, about=f"{demand.name} and {jobs.name}, {options.week}")


def _lender(name: str) -> dict[str, object]:
    model = name.rsplit("-", 1)[-1].upper()
    return {
        "name": name, "owner": "inference", "model": model, "nodes": NODES, "lends_to": ["training"],
        "windows": [WINDOW], "cold_start_seconds": 60,
    }  # fmt: skip


def _borrower() -> dict[str, object]:
    return {"name": "train-a100", "owner": "training", "model": "A100", "nodes": TRAINING_NODES}


# --- demand


def read_demand(path: Path) -> tuple[float, tuple[float, ...]]:
    """Seconds between samples and requests/s; the samples must be evenly spaced from t_s = 0."""
    rows = [(_number(path, line, row, "t_s"), _number(path, line, row, "requests_per_s")) for line, row in _rows(path)]
    if len(rows) < 2:
        raise ScenarioError(path.name, "at least two samples are needed")
    width = rows[1][0] - rows[0][0]
    for i, (moment, _) in enumerate(rows):
        if width <= 0 or abs(moment - i * width) > 1e-6:
            raise ScenarioError(f"{path.name}:{i + 2}", f"t_s is {moment:g}, {i * width:g} was expected")
    return width, tuple(rate for _, rate in rows)


def _services(curve: tuple[float, tuple[float, ...]], options: TraceOptions) -> tuple[ServiceSpec, ...]:
    width, rates = curve
    capacity = NODES * 8 * len(options.load_pools)
    mu = float(np.quantile(np.array(rates), options.quantile)) / (options.peak_share * capacity)
    load = tuple(rate / mu / len(options.load_pools) for rate in rates)
    return tuple(_service(pool, i, load, width, options) for pool in options.load_pools for i in range(len(_SHARES)))


def _service(pool: str, i: int, load: tuple[float, ...], width: float, options: TraceOptions) -> ServiceSpec:
    gpus, share = _SHARES[i]
    return ServiceSpec(
        name=f"{pool}-{gpus}x{i}", pool=pool, gpus=gpus, minimum=1, maximum=NODES, start_seconds=60.0,
        trace=load, trace_seconds=width, trace_share=share, trace_noise=options.noise,
    )  # fmt: skip


# --- jobs


def read_jobs(path: Path, week: str) -> list[TracedJob]:
    """Jobs submitted in an ISO week ("2017-W41"), or running when it began, in order of submission."""
    try:
        monday = datetime.strptime(f"{week}-1", "%G-W%V-%u").replace(tzinfo=UTC)
    except ValueError:
        raise ScenarioError("week", f"is no ISO week like 2017-W41: {week!r}") from None
    found = [job for line, row in _rows(path) if (job := _traced(path, line, row, monday)) is not None]
    if not found:
        raise ScenarioError(path.name, f"no job in {week}")
    return sorted(found, key=lambda job: (job.at, job.cluster, job.gpus, job.seconds))


def _traced(path: Path, line: int, row: Mapping[str, str], monday: datetime) -> TracedJob | None:
    try:
        submitted = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC)
    except (KeyError, ValueError):
        raise ScenarioError(f"{path.name}:{line}", f"timestamp: {row.get('timestamp')!r} is no time") from None
    at, seconds = (submitted - monday).total_seconds(), _number(path, line, row, "duration")
    gpus = int(_number(path, line, row, "num_gpus"))
    if gpus < 1 or seconds <= 0 or at >= timedelta(days=7).total_seconds() or at + seconds <= 0:
        return None
    return TracedJob(max(at, 0.0), seconds + min(at, 0.0), gpus, row.get("cluster", ""))


def fit(jobs: Sequence[TracedJob], horizon: float) -> list[TracedJob]:
    """Jobs of the first ``horizon`` seconds, of the virtual clusters that fit the training pool, largest first."""
    wanted = TRAINING_SHARE * TRAINING_NODES * 8 * horizon
    within = [job for job in jobs if job.at < horizon]
    sizes: dict[str, float] = {}
    for job in within:
        sizes[job.cluster] = sizes.get(job.cluster, 0.0) + job.gpus * min(job.seconds, horizon - job.at)
    taken: dict[str, None] = {}
    for cluster, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if size <= wanted:
            taken[cluster] = None
            wanted -= size
    return [job for job in within if job.cluster in taken]


def _gang(job: TracedJob, number: int, options: TraceOptions) -> JobSpec:
    """A job as a gang of equal pods of at most ``pod_gpus``; nothing is saved while it leaves."""
    pods = math.ceil(job.gpus / options.pod_gpus)
    grace = round(options.grace.total_seconds())
    return JobSpec(
        name=f"job-{number:05d}", pods=pods, gpus=math.ceil(job.gpus / pods), seconds=job.seconds, at=job.at,
        models=options.models, namespace=f"vc-{job.cluster}", queue=job.cluster, grace_seconds=grace,
        checkpoint_seconds=grace + 1.0, checkpoint_period=options.checkpoint_every.total_seconds(),
    )  # fmt: skip


# --- files


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            yield from enumerate(csv.DictReader(file), start=2)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ScenarioError(path.name, f"is no CSV in UTF-8: {error}") from None


def _number(path: Path, line: int, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except (KeyError, TypeError, ValueError):
        raise ScenarioError(f"{path.name}:{line}", f"{column}: {row.get(column)!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise ScenarioError(f"{path.name}:{line}", f"{column}: {value} is out of range")
    return value
