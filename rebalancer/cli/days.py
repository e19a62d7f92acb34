"""Simulated days: demo, simulate, replay.

A day ends with a summary on stdout and is ok only if nothing was split, overdue or unexplained. The day itself
is `bootstrap`'s and `simulate`'s; here it is shown, and its figures are judged against zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rebalancer.adapters import scalars
from rebalancer.adapters.spelling import encoded
from rebalancer.cli import doors
from rebalancer.cli.exits import Code, Refused, say
from rebalancer.cli.options import Json
from rebalancer.cli.output import put_json, put_table
from rebalancer.cli.stage import stage
from rebalancer.core.units import Mode
from rebalancer.simulate.stepview import DemoOptions, DemoResult, StepView, TelemetryAs, TraceOptions

MUST_BE_ZERO = ("gangs_split", "loans_overdue", "unexplained")
ZERO_OUTSIDE_SPIKE = "shortage_outside_spike"
SHARES = ("capture", "shortage", ZERO_OUTSIDE_SPIKE)
DEFAULTS = TraceOptions()
ONE_WORKER = (
    "several --workers need a real broker (--kafka HOST:PORT): the embedded one does not hand partitions out to a "
    "group of several"
)
"""Measured: its SyncGroup refuses a member that asks after the leader (InvalidRequest), which then has no partition."""

Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Tap all records into this folder.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Same seed, same day.")]
Headless = Annotated[bool, typer.Option("--headless", help="Plain progress lines instead of the live view.")]
JsonOut = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Write {summary, decisions} as JSON; - is stdout.")
]
AsMode = Annotated[Mode, typer.Option("--mode", help="shadow publishes the same decisions and touches nothing.")]
Workers = Annotated[int, typer.Option("--workers", min=1, max=8, help="Workers of telemetry and decide.")]
Brokers = Annotated[
    str, typer.Option("--kafka", metavar="HOST:PORT,...", help="These brokers instead of the embedded one.")
]
Spoken = Annotated[
    TelemetryAs, typer.Option("--telemetry", help="text: samples go through exporter pages and their decoder.")
]
Days = Annotated[float | None, typer.Option("--days", min=0.01, max=28, help="Length; by default the scenario's.")]


def demo(
    *,
    out: Out = None,
    headless: Headless = False,
    seed: Seed = None,
    days: Days = None,
    json: JsonOut = None,
    mode: AsMode = Mode.ACT,
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME|FILE", help="Instead of the shipped night.")
    ] = "",
    workers: Workers = 1,
    kafka: Brokers = "",
    telemetry: Spoken = TelemetryAs.NATIVE,
    demand: Annotated[
        Path | None, typer.Option("--demand", metavar="FILE", help="Inference load: t_s, requests/s.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option("--jobs", metavar="FILE", help="Training jobs: submit time, length, GPUs.")
    ] = None,
    load_pools: Annotated[str, typer.Option(help="Pools that the load drives, comma separated.")] = ",".join(
        DEFAULTS.load_pools
    ),
    load_quantile: Annotated[
        float, typer.Option(min=0.5, max=1.0, help="This quantile of the load ...")
    ] = DEFAULTS.quantile,
    load_peak: Annotated[
        float, typer.Option(min=0.01, max=1.5, help="... is this share of those pools' GPUs.")
    ] = DEFAULTS.peak_share,
    load_noise: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Variation of gamma noise a step.")
    ] = DEFAULTS.noise,
    jobs_week: Annotated[str, typer.Option(help="ISO week of the jobs, as 2017-W41.")] = DEFAULTS.week,
    pod_gpus: Annotated[int, typer.Option(min=1, max=8, help="Most GPUs a pod.")] = DEFAULTS.pod_gpus,
    job_models: Annotated[str, typer.Option(help="GPU models that the jobs declare.")] = ",".join(DEFAULTS.models),
    job_grace: Annotated[str, typer.Option(help="Grace period of the jobs' pods.")] = scalars.spoken(DEFAULTS.grace),
    checkpoint_every: Annotated[str, typer.Option(help="Time between checkpoints.")] = scalars.spoken(
        DEFAULTS.checkpoint_every
    ),
) -> None:
    """Live through a simulated night, broker and roles included, and judge it."""
    traces = TraceOptions(
        load_pools=listed(load_pools, "--load-pools"),
        quantile=load_quantile,
        peak_share=load_peak,
        noise=load_noise,
        week=jobs_week,
        pod_gpus=pod_gpus,
        models=listed(job_models, "--job-models"),
        grace=length(job_grace, "--job-grace"),
        checkpoint_every=length(checkpoint_every, "--checkpoint-every"),
    )
    if (demand is None) != (jobs is None):
        raise typer.BadParameter("--demand and --jobs make a day together; say both or neither")
    for path in (demand, jobs):
        readable(path)
    asked = DemoOptions(scenario, out, seed, days, mode, workers, demand, jobs, traces, kafka, telemetry)
    live(asked, headless=headless or json == Path("-"), json=json)


def simulate(
    *,
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML), or a shipped name.")],
    out: Out = None,
    headless: Headless = False,
    seed: Seed = None,
    days: Days = None,
    json: JsonOut = None,
    mode: AsMode = Mode.ACT,
    workers: Workers = 1,
    kafka: Brokers = "",
) -> None:
    """Live through a scenario of your own, and judge it like the demo."""
    asked = DemoOptions(scenario, out, seed, days, mode, workers, kafka=kafka)
    live(asked, headless=headless or json == Path("-"), json=json)


def replay(
    *,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Journal (JSON lines) or snapshot.")] = None,
    from_: Annotated[Path | None, typer.Option("--from", metavar="DIR", help="A tapped folder.")] = None,
    json: Json = False,
) -> None:
    """Fold a journal again: the plans must equal those recorded, bit for bit (exit 3 if they do not)."""
    if (file is None) == (from_ is None):
        raise typer.BadParameter("say either FILE or --from DIR")
    path = file or from_ or Path()
    try:
        told = doors.replay(path)
    except ValueError as error:  # a line that is no record, or no stimulus of this version
        raise Refused(f"{path} cannot be folded: {error}") from None
    if json:
        put_json(told)
    else:
        say(f"{told.stimuli} stimuli folded, {told.plans} plans made, {told.recorded} recorded")
        put_table(("differs",), [(one,) for one in told.differences], empty="every plan is equal, bit for bit")
    raise typer.Exit(Code.UNSAFE if told.differences else Code.OK)


def live(asked: DemoOptions, *, headless: bool, json: Path | None) -> None:
    """Show a day while it lasts, then its summary; exit code 3 if it was not safe."""
    if asked.out is not None and any(asked.out.glob("gpu.*.jsonl")):
        raise typer.BadParameter(f"{asked.out} holds a tapped run already; name a new folder")
    if asked.workers > 1 and not asked.kafka:
        raise typer.BadParameter(ONE_WORKER)
    result = asyncio.run(_lived(asked, headless=headless))
    report(result, json)
    wrong = unsafe(result)
    for one in wrong:
        say(one)
    raise typer.Exit(Code.UNSAFE if wrong else Code.OK)


async def _lived(asked: DemoOptions, *, headless: bool) -> DemoResult:
    console = Console(stderr=True)
    result: DemoResult | None = None
    with stage(console, headless=headless) as shown:
        async for told in doors.demo(asked):
            if isinstance(told, StepView):
                shown.show(told)
            else:
                result = told
    if result is None:
        raise Refused("the day ended without a result")
    return result


def report(result: DemoResult, json: Path | None) -> None:
    """The summary as a table, and as JSON where that was asked for."""
    if json is not None:
        whole = {"summary": dict(result.summary), "decisions": list(result.decisions)}
        if json == Path("-"):
            put_json(whole)
            return
        json.parent.mkdir(parents=True, exist_ok=True)
        partial = json.with_name(json.name + ".part")
        partial.write_text(encoded(whole), encoding="utf-8")
        partial.replace(json)  # whoever waits for the file never sees half of it
    rows = [(name.replace("_", " "), figure(name, value)) for name, value in result.summary.items()]
    put_table(("figure", "#value"), rows)


def unsafe(result: DemoResult) -> list[str]:
    """What was not as it must be; a figure that is missing is not zero."""
    names = (*MUST_BE_ZERO, ZERO_OUTSIDE_SPIKE) if result.unannounced else MUST_BE_ZERO
    return [f"not safe: {name} is {held(result.summary, name)}" for name in names if held(result.summary, name) != 0]


def held(summary: Mapping[str, Any], name: str) -> Any:
    """A figure, or "not measured"."""
    return summary.get(name, "not measured")


def figure(name: str, value: Any) -> str:
    """A figure as people read it; shares as per cent."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {figure('', one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return f"{len(value)}, {figure('', min(value))} to {figure('', max(value))}" if value else "none"
    if name in SHARES and isinstance(value, int | float):
        return f"{value:.3%}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def listed(text: str, option: str) -> tuple[str, ...]:
    """Comma separated names, at least one."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise typer.BadParameter(f"{option} names nothing")
    return found


def length(text: str, option: str) -> timedelta:
    """A duration of an option."""
    try:
        return scalars.duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def readable(path: Path | None) -> None:
    """Refuse a file that cannot be read before a broker is started for it."""
    if path is not None and not path.is_file():
        raise typer.BadParameter(f"{path} is no file")
