"""The cluster in which a night is lived: nodes, the service and its autoscaler, training teams and their foreman.

The load comes from `night` and is the same whoever handles it. Trainers are StatefulSets whose members are replaced at
once when they go, as elastic launchers do: survivors hold their GPUs and wait for the rest. The foreman takes the place
of the jobs themselves: it ends a gang whose work is done, work counting only while the gang is whole and being thrown
back to the last checkpoint when it breaks, and keeps a backlog waiting.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bench.cluster.night import CHECKPOINT, DRAIN, Gang, Night
from tests.bench.cluster.recording import Recording
from tests.bench.cluster.spans import PodLife, progress, spans
from tests.servers import fleet, manifests
from tests.servers.controlplane import ControlPlane
from tests.servers.manifests import Json, Work

LENDER, TRAINING, MODEL = "infer-a100", "train-a100", "A100"
GPUS = 8
WAITING = 6
"""Gangs that wait for room at any time: a backlog that never empties."""
SUPPLY = 600  # gangs that a night may use up
PRIORITY = {"serving": 1000, "training": 100}
OWNER: Json = {"key": "workload", "value": "inference", "effect": "NoSchedule"}
TRAINER_LOAD, IDLE_LOAD, TARGET_LOAD = 95.0, 1.0, 70.0  # percent of a GPU
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"
Lives = Mapping[tuple[str, str], list[PodLife]]


@dataclass
class Town:
    """One cluster for one night. ``native``: trainers are PodGroups that the scheduler places and preempts whole."""

    plane: ControlPlane
    recording: Recording
    night: Night
    native: bool = False
    serving: str = ""
    teams: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    loads: dict[str, float] = field(default_factory=dict)
    """Percent by node, as its exporter says."""
    finished: dict[str, float] = field(default_factory=dict)
    """When each gang's work was done, monotonic seconds."""
    active: dict[str, Gang] = field(default_factory=dict)
    _asked: int = -1
    _supply: Iterator[Gang] = field(init=False)

    def __post_init__(self) -> None:
        self._supply = iter(self.night.gangs(SUPPLY))

    # -- before ------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """The nodes of both pools."""
        fleet.gpu_nodes(self.plane, LENDER, MODEL, self.night.nodes)
        self.furnish()

    def furnish(self) -> None:
        """All but the lender's nodes: the training pool, teams, and the service as it is in the evening."""
        self.names = [f"{LENDER}-{number:02}" for number in range(1, self.night.nodes + 1)]
        fleet.gpu_nodes(self.plane, TRAINING, MODEL, self.night.training, owner="training")
        for name, value in PRIORITY.items():
            self.plane.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", manifests.priority_class(name, value))
        self.serving = fleet.namespace(self.plane, "serve")
        self.teams = [fleet.namespace(self.plane, "team") for _ in range(self.night.teams)]
        self._asked = self.night.replicas(0.0)
        work = Work(MODEL, GPUS, grace=1, lendable=False, priority_class="serving")
        fleet.inference(self.plane, self.serving, "chat", self._asked, work)
        fleet.await_pods(self.plane, self.serving, "chat", self._asked)

    # -- as it goes --------------------------------------------------------------------------------------------------

    def tick(self, at: float) -> None:
        """So many seconds of the night: the autoscaler, the exporters and the foreman each do their turn."""
        replicas = self.night.replicas(at)
        if replicas != self._asked:
            fleet.scale(self.plane, self.serving, "chat", replicas)
            self._asked = replicas
        lives = self.recording.by_app()
        self._load(at, lives)
        self._oversee(lives)

    def _load(self, at: float, lives: Lives) -> None:
        now = time.monotonic()
        there = {pod.node: pod for pods in lives.values() for pod in pods if pod.works(now)}
        serving = sum(pod.inference for pod in there.values())
        each = min(100.0, TARGET_LOAD * self.night.load(at) / max(1, serving))
        for node in self.names:
            pod = there.get(node)
            self.loads[node] = IDLE_LOAD if pod is None else each if pod.inference else TRAINER_LOAD

    def _oversee(self, lives: Lives) -> None:
        now, waiting = time.monotonic(), 0
        for gang in list(self.active.values()):
            pods = lives.get((self.teams[gang.team], gang.name), [])
            if progress(spans(pods, gang.size, now), now, CHECKPOINT) >= gang.run:
                self._finish(gang, now)
            waiting += not any(pod.holds(now) for pod in pods)
        while waiting < WAITING:
            self._submit(next(self._supply))
            waiting += 1

    def _submit(self, gang: Gang) -> None:
        space, api = self.teams[gang.team], self.plane.api
        self.active[gang.name] = gang
        if gang.guarded:
            body = manifests.budget(gang.name, gang.name, gang.size, None)
            api.post(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets", body)
        work = Work(
            MODEL, GPUS, checkpoint=DRAIN, grace=DRAIN, priority_class="training", lendable=not gang.guarded
        )  # fmt: skip
        template = manifests.training_template(gang.name, work)
        template["spec"].pop("restartPolicy")  # only Always is allowed
        if self.native:
            api.post(GROUPS.format(space), pod_group(gang))
            template["spec"]["schedulingGroup"] = {"podGroupName": gang.name}
        body = manifests.statefulset(gang.name, gang.size, template)
        api.post(f"/apis/apps/v1/namespaces/{space}/statefulsets", body)

    def _finish(self, gang: Gang, now: float) -> None:
        """Its work is done: everything of it goes at once."""
        space, api = self.teams[gang.team], self.plane.api
        self.finished[gang.name] = now
        del self.active[gang.name]
        sets = f"/apis/apps/v1/namespaces/{space}/statefulsets/{gang.name}"
        api.request("DELETE", sets, propagationPolicy="Background")
        api.request(
            "DELETE", f"/api/v1/namespaces/{space}/pods", labelSelector=f"app={gang.name}", gracePeriodSeconds=0
        )
        if gang.guarded:
            api.request("DELETE", f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets/{gang.name}")
        if self.native:
            api.request("DELETE", f"{GROUPS.format(space)}/{gang.name}")

    def owner_taint(self, *, on: bool) -> None:
        """What a cron does in the evening and in the morning: the owner's taint off, or on again, on all its nodes."""
        for node in self.plane.api.items("/api/v1/nodes", labelSelector=f"node-pool={LENDER}"):
            others = [one for one in node["spec"].get("taints", []) if one["key"] != OWNER["key"]]
            wanted = [OWNER, *others] if on else others
            self.plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": wanted}})


def pod_group(gang: Gang) -> Json:
    """The scheduler's own gang: placed whole, preempted whole, with its pods' priority (or nothing is placed)."""
    spec: dict[str, Any] = {
        "schedulingPolicy": {"gang": {"minCount": gang.size}},
        "disruptionMode": {"all": {}},
        "priorityClassName": "training",
    }
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": gang.name},
        "spec": spec,
    }
