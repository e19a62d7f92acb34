"""The same night handled by nobody, by what people use today, and by us: load in `night`, sums in `score`.

``nothing``      pools stay as they are.
``preemption``   a cron takes the owner's taint off all inference nodes when the night begins and puts it back at its
                 end; the kube-scheduler preempts trainers by PriorityClass when a replica finds no room.
``native``       the same on a control plane with `GenericWorkload`: trainers are PodGroups with `disruptionMode: all`.
``descheduler``  as ``preemption``, with the descheduler (its chart's default profile, every 2 s) beside it; its cron
                 puts the taint back 8 s (32 minutes) before the end, so that what does not tolerate it is out in time.
``ours``         the product with its defaults, times pressed as the night is, beside the plain kube-scheduler.
``ours+native``  the same where the scheduler places PodGroups whole, as in ``native``.

Each night has a control plane of its own, of the same build and flags, so that nothing of the night before is left.
Ours begins its way home a fixed 60 s before a loan is due (`return_.MARGIN`), which cannot be pressed: its window ends
58 s after the night does, so that it has 2 s (8 minutes) of that margin, and its minimum run time has the 60 s added,
or it would lend to gangs that it would have to recall at once. What must be off by the night's end is measured then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.bench.cluster.night import PRESSED, Night
from tests.bench.cluster.recording import Recording
from tests.bench.cluster.score import Seen, measures
from tests.bench.cluster.town import LENDER, MODEL, Town
from tests.cluster.stage import Stage, staged
from tests.cluster.terms import Pool, minute_after, policy, window
from tests.servers.controlplane import ControlPlane
from tests.servers.goparts import binary

TURN = 0.2  # seconds between two turns of autoscaler, cron and foreman
EVENING = timedelta(seconds=12)
"""How long the evening lasts before the night begins: the training pool is full, utilisation has been seen."""
AFTER = 8.0  # seconds that are looked at after the night's end
MARGIN, OURS = 60.0, 2.0  # seconds: the product's fixed one, and what is left of it when pressed
DESCHEDULES = Path(__file__).parents[3] / "deploy" / "descheduler" / "policy.yaml"
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Variant:
    """Who handles the night. ``ahead``: seconds before its end at which the cron puts the taint back."""

    cron: bool = False
    native: bool = False
    descheduler: bool = False
    ours: bool = False
    ahead: float = 0.0


VARIANTS: Mapping[str, Variant] = {
    "nothing": Variant(),
    "preemption": Variant(cron=True),
    "native": Variant(cron=True, native=True),
    "descheduler": Variant(cron=True, descheduler=True, ahead=8.0),
    "ours": Variant(ours=True),
    "ours+native": Variant(native=True, ours=True),
}
SECTIONS: Mapping[str, Mapping[str, Any]] = {
    # 20 min and 3 min would be 5 s and 0.75 s: looks are a second apart, and two of them may be late
    "activities": {"dwell": "5s", "freshness": "4s"},
    "pace": {"evictions_per_second": 10, "nodes_per_pool": 20, "nodes_per_cluster": 60, "per": "2500ms",
             "circuit_share": "25%"},
    "borrowing": {"min_age": f"{10 / PRESSED:g}s", "min_runtime": f"{MARGIN + 600 / PRESSED:g}s",
                  "cooldown": "3750ms", "cooldown_max": "15s",
                  "lead_time": "5s", "max_grace": "3750ms", "max_loan": "30m", "gang_cost_gpu_seconds": 2.5},
    "signals": {"debounce": "250ms", "pending_debounce": "50ms", "headroom_prior_share": 0.1, "bucket": "1s",
                "history": "720s"},
    # settle, poll and the first retry are the machine's times, not the night's: a quarter of the defaults
    "acting": {"settle": "500ms", "poll": "250ms", "retry_first": "1s", "retry_max": "4s", "stuck_after": "4s"},
}  # fmt: skip


def one_night(variant: Variant, night: Night, folder: Path) -> dict[str, Any]:
    """Live it once and say what there was to see."""
    with ControlPlane(folder / "plane", gangs=variant.native) as plane, Recording(plane) as recording:
        town = Town(plane, recording, night, native=variant.native)
        with (_with_us if variant.ours else _without_us)(variant, town, folder) as (start, told):
            _live(variant, town, start)
            seen = _seen(town, start)
            return {"measures": measures(seen), **told()}


@contextmanager
def _without_us(variant: Variant, town: Town, _: Path) -> Iterator[tuple[float, Callable[[], dict[str, Any]]]]:
    town.build()
    if variant.descheduler:
        town.plane.add_part("descheduler", _descheduler(town.plane))
        town.plane.start("descheduler")
    yield time.monotonic() + EVENING.total_seconds(), dict


@contextmanager
def _with_us(_: Variant, town: Town, folder: Path) -> Iterator[tuple[float, Callable[[], dict[str, Any]]]]:
    pool = Pool(LENDER, MODEL, nodes=town.night.nodes, floor_nodes=1, floor_share="20%")
    length = timedelta(seconds=town.night.length + MARGIN - OURS)
    if length.total_seconds() % MINUTE:
        raise ValueError("windows are whole minutes: our night lasts 2 s more than whole minutes")
    with staged(
        town.plane, folder, [pool], lease={}, proxied=False, start=False, prepare=lambda _: town.furnish()
    ) as stage:
        stage.exporters.loads = town.loads
        town.tick(0.0)
        start = minute_after(datetime.now(UTC), EVENING + timedelta(seconds=10))  # 10 s for the product to start
        windows = window(start, start + length)
        stage.product.adopt(policy([pool._replace(windows=windows)], **SECTIONS))
        stage.product.start()
        yield time.monotonic() + (start - datetime.now(UTC)).total_seconds(), lambda: _ours(stage)


def _ours(stage: Stage) -> dict[str, Any]:
    """What we decided and complained of, for whoever wonders about the figures."""
    plans: dict[str, int] = {}
    for plan in stage.hearing.plans(LENDER):
        key = f"{plan.method} {plan.because.reason}{' (awaits approval)' if plan.awaits_approval else ''}"
        plans[key] = plans.get(key, 0) + 1
    alerts = sorted({alert.because.reason.value for alert in stage.hearing._raised()})
    return {"plans": plans, "alerts": alerts, "loans": len(stage.hearing.loans(LENDER))}


def _live(variant: Variant, town: Town, start: float) -> None:
    off = False
    while (at := time.monotonic() - start) < town.night.length + AFTER:
        began = time.monotonic()
        night = 0.0 <= at < town.night.length - variant.ahead
        if variant.cron and night is not off:
            town.owner_taint(on=not night)
            off = night
        town.tick(at)
        time.sleep(max(0.0, TURN - (time.monotonic() - began)))


def _seen(town: Town, start: float) -> Seen:
    lives = town.recording.by_app()
    gangs = {gang.name: gang for gang in town.night.gangs(len(town.active) + len(town.finished))}
    return Seen(
        serving=tuple(lives.get((town.serving, "chat"), ())),
        gangs={
            name: (gang, tuple(lives.get((town.teams[gang.team], name), ()))) for name, gang in gangs.items()
        },
        finished=town.finished,
        inference_nodes=frozenset(town.names),
        start=start,
        due=start + town.night.length,
        end=time.monotonic(),
    )  # fmt: skip


def _descheduler(plane: ControlPlane) -> list[str]:
    """Its chart's default profile: ours without the two stanzas that we add."""
    held = yaml.safe_load(DESCHEDULES.read_text())
    for profile in held["profiles"]:
        for plugin in profile["pluginConfig"]:
            for ours in ("excludedTaints", "labelSelector"):
                plugin.get("args", {}).pop(ours, None)
    place = plane.folder / "descheduler.yaml"
    place.write_text(yaml.safe_dump(held))
    return [
        str(binary("descheduler")), f"--policy-config-file={place}", f"--kubeconfig={plane.kubeconfig()}",
        "--descheduling-interval=2s", "--secure-port=0", "--disable-metrics", "--v=1",
    ]  # fmt: skip


def run(
    *, variants: Sequence[str] = tuple(VARIANTS), times: int = 2, nodes: int = 40, length: float = 122.0
) -> dict[str, Any]:
    """Every variant so many times, in turn, on the same load."""
    night = Night(nodes=nodes, training=max(2, nodes // 5), length=length)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in variants}
    for _ in range(times):
        for name in variants:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                runs[name].append(one_night(VARIANTS[name], night, folder))
    told = {name: {**asdict(VARIANTS[name]), "runs": found} for name, found in runs.items()}
    return {"rivals": {"night": asdict(night), "pressed": PRESSED, "policy": SECTIONS, "variants": told}}
