"""Inference services: replicas autoscaled by load, scaled in so that nodes become empty.

Scale-out follows the load at once; scale-in follows the largest wish of the last ``stabilise_seconds``. Victims go
by deletion cost: unplaced first, then not ready, then those on the emptiest node. A lost or evicted replica is made
anew at the next tick. It knows nothing of loans.
"""

from __future__ import annotations

import math
from collections import deque

from rebalancer.core.facts import Pod, PodPhase, Requirement, Toleration
from rebalancer.core.units import OwnerClass, PodUid
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.budgets import Budgets
from rebalancer.simulate.kubelet import Kubelet, Life
from rebalancer.simulate.loads import Loads
from rebalancer.simulate.scenario import PoolSpec, Scenario, ServiceSpec
from rebalancer.simulate.store import Store

TARGET = 0.70
"""Utilisation at which a service holds exactly what it is asked for (DESIGN 7, target utilisation)."""


class Service:
    """One service's deployment and autoscaler."""

    def __init__(self, spec: ServiceSpec, pool: PoolSpec) -> None:
        self.spec = spec
        self.pool = pool
        self.replicas: dict[PodUid, None] = {}
        """Uids of replicas that are not being deleted."""
        self.utilisation = 0.0
        self._wishes: deque[tuple[float, int]] = deque()
        self._made = 0
        app = Requirement("app", "In", (spec.name,))
        self._terms = ((Requirement("gpu-model", "In", (pool.model,)),),) if pool.model else ()
        self._spread = ((app,),) if spec.spread else ()
        self.selector = (app,)

    def desired(self, load: float, t: float) -> int:
        """How many replicas there should be."""
        spec = self.spec
        wish = min(spec.maximum, max(spec.minimum, math.ceil(load / spec.gpus - 1e-9)))
        if not spec.scale_in:
            wish = max(wish, len(self.replicas))
        self._wishes.append((t, wish))
        while self._wishes[0][0] < t - spec.stabilise_seconds:
            self._wishes.popleft()
        return max(number for _, number in self._wishes)

    def pod(self, uid: PodUid, agenda: Agenda, t: float) -> Pod:
        """A new replica, not placed yet."""
        spec = self.spec
        self._made += 1
        return Pod(
            uid=uid,
            name=f"{spec.name}-{self._made:04d}",
            namespace=spec.namespace,
            gpus=spec.gpus,
            phase=PodPhase.PENDING,
            owner=OwnerClass.INFERENCE,
            gang=f"{spec.namespace}/{spec.name}",
            workload=f"{spec.namespace}/{spec.name}",
            created_at=agenda.clock(t),
            queue="inference",
            priority=spec.priority,
            labels={"app": spec.name, "workload-type": "inference"},
            node_terms=self._terms,
            tolerations=(Toleration("workload", "Equal", "inference", "NoSchedule"),),
            anti_affinity=self._spread,
            protected=("inference class",),
            controller_kind="Deployment",
            top_owner=f"Deployment/{spec.name}",
            grace_seconds=spec.grace_seconds,
        )


class Inference:
    """All services."""

    def __init__(
        self, scenario: Scenario, kubelet: Kubelet, budgets: Budgets, loads: Loads, *, store: Store, agenda: Agenda
    ) -> None:
        self._store, self._agenda, self._kubelet, self._loads = store, agenda, kubelet, loads
        pools = {pool.name: pool for pool in scenario.pools}
        self.services = {spec.name: Service(spec, pools[spec.pool]) for spec in scenario.services}
        self._service_of: dict[PodUid, Service] = {}
        for service in self.services.values():
            spec = service.spec
            if spec.budget is not None:
                budgets.add(spec.namespace, spec.name, service.selector, spec.budget, scalable=True, t=agenda.now)
        kubelet.on_deleting.append(self._leaving)
        kubelet.on_gone.append(self._gone)

    def pool_of(self, uid: PodUid) -> str:
        """The pool whose demand a replica is."""
        return self._service_of[uid].pool.name

    def utilisation_of(self, uid: PodUid) -> float:
        """Share of its GPUs that a ready replica keeps busy."""
        return self._service_of[uid].utilisation

    def tick(self, t: float) -> None:
        """Draw the loads and scale every service."""
        self._loads.tick(t)
        for service in self.services.values():
            load = self._loads.at(service.spec.name)
            self._scale(service, service.desired(load, t), t)
            self._measure(service, load)

    def _scale(self, service: Service, desired: int, t: float) -> None:
        spec = service.spec
        for _ in range(desired - len(service.replicas)):
            pod = service.pod(self._store.new_uid(f"pod/{spec.name}"), self._agenda, t)
            service.replicas[pod.uid] = None
            self._service_of[pod.uid] = service
            self._kubelet.create(pod, Life(spec.start_seconds, spec.leave_seconds), t)
        surplus = len(service.replicas) - desired
        if surplus > 0:
            for uid in sorted(service.replicas, key=self._deletion_cost)[:surplus]:
                self._kubelet.delete(uid, t)

    def _deletion_cost(self, uid: PodUid) -> tuple[bool, bool, int, str]:
        pod = self._store.pods[uid]
        return bool(pod.node), pod.ready, self._store.used.get(pod.node, 0), pod.name

    def _measure(self, service: Service, load: float) -> None:
        ready = sum(1 for uid in service.replicas if self._store.pods[uid].ready) * service.spec.gpus
        service.utilisation = min(1.0, TARGET * load / ready) if ready else 0.0

    def _leaving(self, pod: Pod, _t: float) -> None:
        service = self._service_of.get(pod.uid)
        if service is not None:
            service.replicas.pop(pod.uid, None)

    def _gone(self, pod: Pod, t: float) -> None:
        self._leaving(pod, t)
        self._service_of.pop(pod.uid, None)

    def wanted_gpus(self, pool: str) -> float:
        """What a pool's services are asked for now, in GPUs."""
        return sum(self._loads.at(name) for name, item in self.services.items() if item.pool.name == pool)

    def demand(self) -> dict[str, tuple[int, int]]:
        """Per pool: GPUs that its replicas request, and GPUs of those that are ready."""
        found: dict[str, tuple[int, int]] = {}
        for service in self.services.values():
            ready = sum(1 for uid in service.replicas if self._store.pods[uid].ready)
            asked, served = found.get(service.pool.name, (0, 0))
            gpus = service.spec.gpus
            found[service.pool.name] = (asked + gpus * len(service.replicas), served + gpus * ready)
        return found
