"""A simulated day through Kafka: broker, roles, world and tap, step by step, and the figures at the end.

The generator yields a view a step and last the result. Whatever happens, everything it started has ended when it
is closed.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

from rebalancer.adapters import logs
from rebalancer.adapters.store import Store
from rebalancer.adapters.streams import admin
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.embedded import EmbeddedBroker
from rebalancer.adapters.streams.lockstep import Lockstep, Step
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.tap import Tap
from rebalancer.adapters.tapfolder import read_folder
from rebalancer.bootstrap.explained import decisions, unexplained
from rebalancer.bootstrap.textworld import TextWorld
from rebalancer.bootstrap.workers import Ground, Workers
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.demo import demo as shipped_day
from rebalancer.simulate.policies import policy_of
from rebalancer.simulate.scenario import Scenario
from rebalancer.simulate.stepview import DemoOptions, DemoResult, StepView, TelemetryAs
from rebalancer.simulate.traces import trace_scenario
from rebalancer.simulate.viewing import view_of
from rebalancer.wire.topics import topics

CLUSTER = "demo"
EMBEDDED_FETCH_MS = 5
"""The embedded broker does not wake a waiting fetch, so fetches there may wait only this long."""
TAP_FETCH_MS = 250
"""The tap is in no hurry, and every fetch costs."""
TOLD = 20
"""Unexplained things named in the summary; the count is of all."""


def scenario_of(options: DemoOptions) -> Scenario:
    """The scenario that the options ask for; raises ScenarioError or FileNotFoundError."""
    if options.demand is not None and options.jobs is not None:
        seed = 1 if options.seed is None else options.seed
        days = 2.0 if options.days is None else options.days
        return trace_scenario(options.demand, options.jobs, options.traces, days=days, seed=seed)
    return shipped_day(options.seed, options.days, options.scenario or "demo")


async def demo(options: DemoOptions) -> AsyncIterator[StepView | DemoResult]:
    """Live through the day that the options describe."""
    logs.for_people()
    scenario = scenario_of(options)
    world = SimulatedCluster(scenario)
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-rebalancer-")))
        folder = options.out or scratch / "tap"
        broker = None if options.kafka else stack.enter_context(EmbeddedBroker())
        kafka = KafkaSettings(bootstrap=broker.bootstrap if broker else options.kafka)
        wait = EMBEDDED_FETCH_MS if broker else None
        policy = policy_of(scenario, options.mode)
        ground = Ground(kafka, CLUSTER, policy, world, scratch, wait)
        driver = await stack.enter_async_context(Publisher(kafka))
        tap = Tap(kafka, folder, [driver.partition(CLUSTER)], fetch_wait_ms=wait and TAP_FETCH_MS)
        await _topics(kafka, broker)
        await tap.start()
        workers = await stack.enter_async_context(Workers(ground, options.workers))
        spoken = TextWorld(world) if options.telemetry is TelemetryAs.TEXT else world
        lockstep = Lockstep(spoken, driver, CLUSTER, workers.watch, workers.alone, back=workers.back)
        started, seen = world.moment, set[str]()
        async for step in lockstep.steps():
            workers.check()
            view = _view(workers, scenario, step, started, seen)
            if view is not None:
                yield view
        await tap.finish()
        store = Store(cluster=CLUSTER).feed_all(read_folder(folder))
        yield result_of(world, scenario, store)


async def _topics(kafka: KafkaSettings, broker: EmbeddedBroker | None) -> None:
    """Make the topics as the one list has them; the embedded broker only knows their names."""
    if broker is None:
        await admin.apply(kafka)
        return
    broker.create([topic.name for topic in topics()])


def _view(workers: Workers, scenario: Scenario, step: Step, started: datetime, seen: set[str]) -> StepView | None:
    """The picture after a step, None while no engine is loaded (a rebalance is under way)."""
    engine = workers.engine()
    if engine is None:
        return None
    fresh = [plan for plan in workers.seen.plans.values() if plan.id not in seen]
    seen.update(plan.id for plan in fresh)
    return view_of(
        engine.state.inventory,
        engine.state.verdicts,
        workers.seen.pools,
        fresh,
        step=step.number,
        steps=scenario.steps,
        started=started,
        moment=step.now,
    )


def result_of(world: SimulatedCluster, scenario: Scenario, store: Store) -> DemoResult:
    """The day's figures: the world's books, and what the topics explain."""
    missing = unexplained(store)
    shadow = {name: dict(pool.shadow) for name, pool in sorted(store.pools.items()) if any(pool.shadow.values())}
    summary = {
        **world.summary(),
        "scenario": scenario.name,
        "seed": scenario.seed,
        "decisions": len(store.plans),
        "unexplained": len(missing),
        "unexplained_first": missing[:TOLD],
        "shadow": shadow,
    }
    return DemoResult(summary, decisions(store), unannounced=bool(scenario.spikes))
