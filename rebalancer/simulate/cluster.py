"""A cluster that behaves: the world a lockstep driver moves, through the same ports as a real one.

Inside a step things happen at their own seconds. Nothing is random but by the scenario's seed, and nothing of what
is decided about lending lives here: this room only answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from rebalancer.core.protocol.calls import Answer, Call
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.core.telemetry import DemandSample, NodeSample
from rebalancer.simulate.accounting import Accounting
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.apiserver import ApiServer
from rebalancer.simulate.budgets import Budgets
from rebalancer.simulate.faults import Faults, Parts, changed_control
from rebalancer.simulate.feed import Feed
from rebalancer.simulate.fleet import furnish
from rebalancer.simulate.inference import Inference
from rebalancer.simulate.jobs import Jobs
from rebalancer.simulate.kubelet import Kubelet
from rebalancer.simulate.loads import Loads
from rebalancer.simulate.reckoning import summary
from rebalancer.simulate.scenario import FaultSpec, Scenario
from rebalancer.simulate.scheduler import Scheduler
from rebalancer.simulate.store import Store
from rebalancer.simulate.telemetry import Telemetry, page
from rebalancer.simulate.training import Training


class SimulatedCluster:
    """Implements ``core.ports.World``. It is made already warm: pods run, queues wait, at the scenario's start."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._agenda = Agenda(scenario.start, begin=-scenario.warm_up_seconds)
        self.store = Store(self._agenda, scenario.seed)
        self._step = 0
        begin = self._agenda.now
        furnish(self.store, scenario, begin)
        self.books = Accounting(scenario, self.store, self._agenda)
        kubelet = Kubelet(self.store, self._agenda)
        budgets = Budgets(self.store)
        self._training = Training(
            kubelet, budgets, self.books,
            store=self.store, agenda=self._agenda, resubmit=scenario.resubmit_seconds,
        )  # fmt: skip
        loads = Loads(scenario, self._agenda)
        self._inference = Inference(scenario, kubelet, budgets, loads, store=self.store, agenda=self._agenda)
        self._jobs = Jobs(scenario, self._agenda, self._training)
        Scheduler(self.store, self._agenda, kubelet)
        self._telemetry = Telemetry(scenario.seed, self.store, self._agenda, self._inference, self._training)
        self._api = ApiServer(self.store, kubelet, budgets, self._training)
        self.feed = Feed(scenario.seed, self.store)
        parts = Parts(self.store, self._agenda, kubelet, budgets, self._api, self.feed, self._telemetry)
        self._faults = Faults(scenario, parts)
        self._warm_up()

    def _warm_up(self) -> None:
        while self._agenda.now < 0:
            self._tick(min(self._agenda.now + self.scenario.step_seconds, 0.0))
        self.feed.begin()

    def _tick(self, end: float) -> None:
        self._inference.tick(self._agenda.now)
        self._jobs.tick(self._agenda.now)
        self._agenda.run_to(end)

    # --- World

    @property
    def moment(self) -> datetime:
        """Simulated now: the end of the last step."""
        return self._agenda.clock(self._agenda.now)

    @property
    def step_number(self) -> int:
        """Steps lived through so far."""
        return self._step

    def step(self) -> None:
        """Move one step: load, jobs, scheduler, kubelets, faults, each at its second."""
        self._step += 1
        self._tick(self._step * self.scenario.step_seconds)
        self.books.step(self._inference.demand(), self._training.split())

    def done(self) -> bool:
        """Whether all steps have been lived through."""
        return self._step >= self.scenario.steps

    def drain(self) -> Sequence[FactObserved | FactDeleted]:
        """Object changes since the last call; the first tells all there is, unless :meth:`listing` was told."""
        return self.feed.drain(self._agenda.now)

    def listing(self, of: FactKind) -> tuple[Fact, ...]:
        """A full live list of one kind (synchronous twin of ``snapshot``)."""
        return self.store.listing(of)

    def take_snapshot_due(self) -> bool:
        """Whether full lists should be told now: once at the start, once after each watch gap."""
        return self.feed.take_snapshot_due()

    def samples(self) -> Sequence[NodeSample]:
        """Telemetry of this step; call it once a step."""
        return self._telemetry.samples(self._agenda.now, self.scenario.step_seconds)

    def pages(self) -> dict[str, str]:
        """The same as dcgm-exporter text pages by node name; use instead of :meth:`samples`."""
        models = {node.name: node.model for node in self.store.nodes.values()}
        return {sample.node_name: page(sample, models[sample.node_name]) for sample in self.samples()}

    def demands(self) -> Sequence[DemandSample]:
        """What the demand topic says in this step."""
        now = self.moment
        pools = self.scenario.demand_topic
        return [DemandSample(pool, round(self._inference.wanted_gpus(pool), 2), now, "simulator") for pool in pools]

    def answer(self, call: Call) -> Answer:
        """Carry out one call now."""
        return self._api.answer(call, self._agenda.now)

    def kafka_away(self) -> bool:
        """Whether the scenario declares Kafka unreachable in this step."""
        return self._faults.kafka_away

    async def perform(self, call: Call) -> Answer:
        """Asynchronous twin of :meth:`answer`."""
        return self.answer(call)

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        """Asynchronous twin of :meth:`listing`."""
        return self.listing(of)

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        """Asynchronous twin of :meth:`drain`; simulated time does not pass by waiting, so it does not wait."""
        return self.drain()

    # --- beyond the port

    def control(self, **changes: Any) -> None:
        """What a person does to the control object: pause, resume, recall, approve, retire."""
        self.store.put_control(changed_control(self.store.control, changes), self._agenda.now)

    def inject(self, fault: FaultSpec) -> None:
        """Let a fault begin now (``at`` is ignored)."""
        self._faults.begin(fault, self._agenda.now)

    @cached_property
    def without_lending(self) -> Accounting:
        """The books of the same scenario and seed without any actor, as far as inference is concerned."""
        return live_without(self.scenario)

    def summary(self) -> dict[str, Any]:
        """The figures of the run so far; see :func:`reckoning.summary`."""
        self._training.close(self._agenda.now)
        return summary(self.scenario, self.books, self.without_lending, self._agenda.now)


def live_without(scenario: Scenario) -> Accounting:
    """Live through a scenario without an actor and without training, which then never meets inference."""
    still = {name: getattr(scenario, name) for name in scenario.__slots__}
    world = SimulatedCluster(Scenario(**(still | {"jobs": (), "streams": ()})))
    while not world.done():
        world.step()
        world.store.feed.clear()
    return world.books
