"""What happened in the cluster, watched beside a story: the lives of pods, and every state that nodes were in.

It sees with all rights and knows nothing of the product but its prefix, so that what stories assert does not rest
on what the product says of itself. Times are this process's monotonic seconds.
"""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tests.servers.controlplane import ControlPlane

OURS = "gpu-rebalancer.io/"
SILENCE = 5.0  # seconds after which a watch that says nothing is opened anew
AGAIN = 0.3  # seconds before what broke is tried again
ENDS_WITHIN = SILENCE + 5.0
GANG_MARKS = ("jobset.sigs.k8s.io/jobset-name", "scheduling.k8s.io/group-name", "batch.kubernetes.io/job-name")
Json = dict[str, Any]


@dataclass
class Life:
    """One pod, by uid: when it was bound, told to go (first seen with a deletion timestamp), and gone."""

    uid: str
    namespace: str
    name: str
    gang: str
    node: str = ""
    bound: float | None = None
    told: float | None = None
    gone: float | None = None
    phase: str = ""
    grace: int | None = None
    conditions: list[Json] = field(default_factory=list)

    @property
    def left(self) -> float | None:
        """When it began to leave."""
        return self.gone if self.told is None else self.told


class NodeState(NamedTuple):
    """A node at one moment, as the API server had it."""

    at: float
    uid: str
    taints: Sequence[Json]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def ours(self) -> list[str]:
        """Keys of everything of ours that it bears."""
        keys = [one["key"] for one in self.taints] + list(self.labels) + list(self.annotations)
        return [key for key in keys if key.startswith(OURS)]

    @property
    def lent(self) -> bool:
        """Whether it bears the on-loan taint."""
        return any(one["key"] == f"{OURS}on-loan" for one in self.taints)

    def foreign(self, owner: str = "workload") -> list[Json]:
        """Taints that are neither ours nor the owner's, in their order."""
        return [one for one in self.taints if not one["key"].startswith(OURS) and one["key"] != owner]


class Split(NamedTuple):
    """A gang of which some had to go before others: seconds between the first and the last of them."""

    gang: str
    seconds: float


class Watching:
    """While its context is open."""

    def __init__(self, plane: ControlPlane) -> None:
        self.pods: dict[str, Life] = {}
        self.nodes: dict[str, list[NodeState]] = {}
        self._plane = plane
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=("/api/v1/nodes", self._node), name="nodes", daemon=True),
            threading.Thread(target=self._follow, args=("/api/v1/pods", self._pod), name="pods", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(ENDS_WITHIN)

    # -- what was seen -----------------------------------------------------------------------------------------------

    def lives(self, namespace: str, gang: str = "") -> list[Life]:
        """Pods of a namespace (and gang), as long as they were ever seen."""
        return [one for one in list(self.pods.values()) if one.namespace == namespace and gang in ("", one.gang)]

    def evicted(self, namespace: str, gang: str = "") -> list[Life]:
        """Those that were told to go by the Eviction API: it leaves its mark on the pod."""
        return [one for one in self.lives(namespace, gang) if any(_by_eviction(item) for item in one.conditions)]

    def splits(self, namespace: str) -> list[Split]:
        """All gangs that were broken, and for how long each was neither whole nor wholly told to go."""
        gangs = sorted({one.gang for one in self.lives(namespace)})
        return [split for gang in gangs for split in _splits(gang, self.lives(namespace, gang))]

    def states(self, node: str) -> list[NodeState]:
        """Every state that a node was seen in."""
        return list(self.nodes.get(node, ()))

    def shaken(self, nodes: Iterable[str], owner: str = "workload") -> list[str]:
        """Nodes whose foreign taints were ever others than at first, or in another order."""
        found = []
        for name in nodes:
            states = self.states(name)
            if any(one.foreign(owner) != states[0].foreign(owner) for one in states):
                found.append(name)
        return found

    # -- watching ----------------------------------------------------------------------------------------------------

    def _follow(self, path: str, take: Any) -> None:
        try:
            self._see(path, take)
        finally:
            self._plane.api.disconnect()  # this thread's own connection

    def _see(self, path: str, take: Any) -> None:
        while not self._ending.is_set():
            try:
                listed = self._plane.api.get(path)
                present = {item["metadata"]["uid"] for item in listed["items"]}
                for item in listed["items"]:
                    take(item, gone=False)
                self._missing(path, present)
                for event in self._events(path, listed["metadata"]["resourceVersion"]):
                    take(event["object"], gone=event["type"] == "DELETED")
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                time.sleep(AGAIN)

    def _events(self, path: str, version: str) -> Iterator[Json]:
        at = urlsplit(self._plane.url)
        context = ssl.create_default_context(cafile=str(self._plane.authority))
        assert at.hostname
        connection = http.client.HTTPSConnection(at.hostname, at.port, context=context, timeout=SILENCE)
        try:
            asked = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=60"
            connection.request("GET", asked, headers={"Authorization": f"Bearer {self._plane.token()}"})
            answer = connection.getresponse()
            while not self._ending.is_set() and (line := answer.readline()):
                event: Json = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event
        finally:
            connection.close()

    def _missing(self, path: str, present: set[str]) -> None:
        if path.endswith("/pods"):
            for uid, life in self.pods.items():
                if uid not in present and life.gone is None:
                    life.gone = time.monotonic()

    def _node(self, raw: Json, *, gone: bool) -> None:
        meta, now = raw["metadata"], time.monotonic()
        taints = raw["spec"].get("taints") or []
        state = NodeState(now, meta["uid"], taints, meta.get("labels") or {}, meta.get("annotations") or {})
        kept = self.nodes.setdefault(meta["name"], [])
        if not gone and (not kept or kept[-1][1:] != state[1:]):
            kept.append(state)

    def _pod(self, raw: Json, *, gone: bool) -> None:
        meta, now = raw["metadata"], time.monotonic()
        life = self.pods.get(meta["uid"])
        if life is None:
            life = self.pods[meta["uid"]] = Life(meta["uid"], meta["namespace"], meta["name"], _gang(meta))
        if raw["spec"].get("nodeName") and life.bound is None:
            life.node, life.bound = raw["spec"]["nodeName"], now
        if meta.get("deletionTimestamp") and life.told is None:
            life.told, life.grace = now, meta.get("deletionGracePeriodSeconds")
        life.phase = raw.get("status", {}).get("phase", "")
        life.conditions = raw.get("status", {}).get("conditions") or life.conditions
        if gone:
            life.gone = now


def _by_eviction(condition: Json) -> bool:
    return bool(condition["type"] == "DisruptionTarget" and condition.get("reason") == "EvictionByEvictionAPI")


def _gang(meta: Json) -> str:
    marks = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    return str(next((marks[key] for key in GANG_MARKS if key in marks), meta["name"]))


def _splits(gang: str, lives: Sequence[Life]) -> Iterator[Split]:
    """Generation by generation: those that were bound before the first of them had to leave belong together."""
    left = [one for one in lives if one.bound is not None and one.phase != "Succeeded"]
    while firsts := [one.left for one in left if one.left is not None]:
        first = min(firsts)
        together = [one for one in left if one.bound is not None and one.bound <= first]
        yield Split(gang, max((one.left or time.monotonic()) - first for one in together))
        left = [one for one in left if one not in together]
