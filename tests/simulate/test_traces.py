"""Scenarios from traces: the conversions, and rows that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.loading import ScenarioError
from rebalancer.simulate.scenario import Scenario
from rebalancer.simulate.stepview import TraceOptions
from rebalancer.simulate.traces import TracedJob, fit, read_jobs, trace_scenario

OPTIONS = TraceOptions(week="2017-W41")
HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def traces(tmp_path: Path, demand: str = "", jobs: str = "", options: TraceOptions = OPTIONS) -> Scenario:
    (tmp_path / "demand.csv").write_text(demand or "t_s,requests_per_s\n0,100\n600,200\n1200,1000\n1800,100\n")
    (tmp_path / "jobs.csv").write_text(HEAD + (jobs or "2017-10-09 00:10:00,3600.0,12,43200.0,a\n"))
    return trace_scenario(tmp_path / "demand.csv", tmp_path / "jobs.csv", options, days=0.02, seed=3)


def test_the_quantile_of_the_curve_is_the_chosen_share_of_the_pool(tmp_path: Path) -> None:
    scenario = traces(tmp_path, options=replace(OPTIONS, quantile=1.0, peak_share=0.5))
    total = [sum(s.trace_share * s.trace[i] for s in scenario.services) for i in range(4)]
    assert total == pytest.approx([25.6, 51.2, 256.0, 25.6])


def test_the_load_is_linear_between_samples_and_whole_gpus(tmp_path: Path) -> None:
    cluster = SimulatedCluster(traces(tmp_path, options=replace(OPTIONS, quantile=1.0, peak_share=0.5)))
    for _ in range(16):
        cluster.step()
    assert cluster._inference.wanted_gpus("infer-a100") == pytest.approx(154.0)


def test_noise_is_the_same_for_a_seed(tmp_path: Path) -> None:
    noisy = traces(tmp_path, options=replace(OPTIONS, noise=0.05))
    series = []
    for _ in range(2):
        cluster = SimulatedCluster(noisy)
        for _ in range(20):
            cluster.step()
        series.append(cluster.books.series.asked)
    calm = SimulatedCluster(traces(tmp_path))
    for _ in range(20):
        calm.step()
    assert series[0] == series[1] != calm.books.series.asked


def test_a_large_job_becomes_a_gang_of_equal_pods(tmp_path: Path) -> None:
    gang = traces(tmp_path).jobs[0]
    assert (gang.pods, gang.gpus, gang.at, gang.seconds) == (2, 6, 600.0, 3600.0)
    assert (gang.models, gang.grace_seconds, gang.checkpoint_period) == (("A100", "L20"), 30, 1800.0)
    assert gang.checkpoint_seconds > gang.grace_seconds


def test_jobs_running_at_the_start_of_the_week_have_their_rest_to_do(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    rows = (
        "2017-10-08 23:00:00,7200.0,1,1,a\n"
        "2017-10-08 20:00:00,60.0,1,1,a\n"
        "2017-10-16 00:00:00,60.0,1,1,a\n"
        "2017-10-10 00:00:00,60.0,0,0,a\n"
        "2017-10-15 23:59:00,60.0,1,1,b\n"
    )
    file.write_text(HEAD + rows)
    found = read_jobs(file, "2017-W41")
    assert found == [TracedJob(0.0, 3600.0, 1, "a"), TracedJob(7 * 86400.0 - 60, 60.0, 1, "b")]


def test_virtual_clusters_are_taken_largest_first_while_they_fit() -> None:
    too_large = [TracedJob(0.0, 3600.0, 600, "huge")]
    fits = [TracedJob(0.0, 3600.0, 300, "big"), TracedJob(10.0, 60.0, 1, "small")]
    beyond = [TracedJob(7200.0, 60.0, 1, "small")]
    assert fit([*too_large, *fits, *beyond], 3600.0) == fits


@pytest.mark.parametrize(
    ("demand", "jobs", "where"),
    [
        pytest.param("t_s,requests_per_s\n0,1\n600,x\n", "", "demand.csv:3", id="a rate that is no number"),
        pytest.param("t_s,requests_per_s\n0,1\n600,nan\n", "", "demand.csv:3", id="a rate that is not finite"),
        pytest.param("t_s,rate\n0,1\n600,2\n", "", "demand.csv:2", id="a missing column"),
        pytest.param("t_s,requests_per_s\n0,1\n600,2\n1500,2\n", "", "demand.csv:4", id="a gap in the curve"),
        pytest.param("t_s,requests_per_s\n0,1\n", "", "demand.csv", id="a single sample"),
        pytest.param("", "noon,1,1,1,a\n", "jobs.csv:2", id="a submission that is no time"),
        pytest.param("", "2017-10-09 00:00:00,-5,1,1,a\n", "jobs.csv:2", id="a negative duration"),
        pytest.param("", "2016-10-09 00:00:00,5,1,1,a\n", "jobs.csv", id="no job in the week"),
    ],
)
def test_a_trace_is_refused_by_file_and_line(tmp_path: Path, demand: str, jobs: str, where: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        traces(tmp_path, demand, jobs)
    assert caught.value.path == where


def test_a_week_must_be_an_iso_week(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="week"):
        traces(tmp_path, options=replace(OPTIONS, week="41"))


def test_several_pools_share_the_load(tmp_path: Path) -> None:
    scenario = traces(tmp_path, options=replace(OPTIONS, load_pools=("infer-a100", "infer-l20"), quantile=1.0))
    by_pool = {pool: sum(s.trace_share * s.trace[2] for s in scenario.services if s.pool == pool)
               for pool in ("infer-a100", "infer-l20")}  # fmt: skip
    assert by_pool == pytest.approx({"infer-a100": 486.4, "infer-l20": 486.4})


def test_a_trace_that_is_no_text_is_refused(tmp_path: Path) -> None:
    traces(tmp_path)
    (tmp_path / "demand.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"demand\.csv: is no CSV in UTF-8"):
        trace_scenario(tmp_path / "demand.csv", tmp_path / "jobs.csv", OPTIONS)
