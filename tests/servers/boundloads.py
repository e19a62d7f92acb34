"""Loads of the played GPUs from the pods that the test cluster runs on them: free cards idle, held ones work.

Looks at the API server at every period in a thread of its own. Between two looks the last picture holds; an
API server that is away leaves it as it was, as for exporters, which do not need one.
"""

import http.client
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.servers.adminclient import AdminClient, ApiError
from tests.servers.manifests import GPU, Json

TRAINING_LOAD, INFERENCE_LOAD = 95.0, 60.0  # percent, of a card that is held
PERIOD = 1.0  # seconds between two looks


class BoundLoads:
    """Give it to `Exporters` twice: as `loads` (it is callable) and its `holders`.

    `percent`: load by the label app, changed at any time; apps that are not named have their class's.
    """

    def __init__(self, api: AdminClient, percent: Mapping[str, float] | None = None, period: float = PERIOD) -> None:
        self.percent = dict(percent or {})
        self._api, self._period = api, period
        self._held: dict[str, list[Json]] = {}
        self._sizes: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bound-loads", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, node: str) -> list[float] | None:
        """Load of each card; None for a node that is not there."""
        if node not in self._sizes:
            return None
        return [self._load(pod) if pod else 0.0 for pod in self._cards(node)]

    def holders(self, node: str) -> list[tuple[str, str] | None]:
        """Who holds each card."""
        return [(pod["metadata"]["namespace"], pod["metadata"]["name"]) if pod else None for pod in self._cards(node)]

    def _cards(self, node: str) -> list[Json | None]:
        held = [pod for pod in self._held.get(node, []) for _ in range(gpus_of(pod))]
        size = self._sizes.get(node, 0)
        return [*held, *[None] * size][:size]

    def _load(self, pod: Json) -> float:
        labels = pod["metadata"].get("labels", {})
        own = TRAINING_LOAD if labels.get("workload-type") == "training" else INFERENCE_LOAD
        return self.percent.get(labels.get("app", ""), own)

    def _watch(self) -> None:
        while not self._ended.wait(self._period):
            try:
                self._look()
            except (ApiError, OSError, http.client.HTTPException):
                continue  # the picture stays

    def _look(self) -> None:
        held: dict[str, list[Json]] = {}
        for pod in self._api.items("/api/v1/pods"):
            if pod["status"].get("phase") == "Running":
                held.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        nodes = self._api.items("/api/v1/nodes")
        self._sizes = {node["metadata"]["name"]: int(node["status"]["capacity"].get(GPU, 0)) for node in nodes}
        self._held = held


def gpus_of(pod: Json) -> int:
    """GPUs that a pod holds, by its containers' requests."""
    asked = (one.get("resources", {}).get("requests", {}).get(GPU, "0") for one in pod["spec"]["containers"])
    return sum(int(number) for number in asked)
