"""The API server in memory as brakes, retirement and preflight ask it: a hook may answer first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rebalancer.adapters.cluster.connection import Reply
from tests.hands import fakeapi
from tests.hands.fakeapi import Asked, Kube

Hook = Callable[["FakeApi", str, str], Reply | None]
REASONS = {403: "Forbidden", 404: "NotFound", 409: "Conflict"}


class FakeApi(Kube):
    """``hook`` is asked with method and path before the server answers; ``unknown`` paths are not served."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown: set[str] = set()
        self.hook: Hook | None = None
        self.url = ""
        self.faults.append(self._first)

    def place(self, path: str, **content: Any) -> dict[str, Any]:
        """Put an object at a path such as ``/api/v1/nodes/n1``."""
        parts = path.split("/")
        meta: dict[str, Any] = dict(content.pop("metadata", {}))
        if "namespaces" in parts[:-2]:
            meta.setdefault("namespace", parts[parts.index("namespaces") + 1])
        return self.put(path, {**content, "metadata": meta})

    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request, in order."""
        return [(one.method, one.path) for one in self.asked]

    def writes(self) -> list[tuple[str, str]]:
        """Requests that change something."""
        return [one for one in self.requests() if one[0] != "GET"]

    def _first(self, asked: Asked) -> Reply | None:
        if asked.path in self.unknown:
            return refusal(404, f"{asked.path} not found")
        if self.hook is not None and (found := self.hook(self, asked.method, asked.path)) is not None:
            return found
        if asked.path.endswith("selfsubjectaccessreviews"):
            return Reply(201, {}, {**asked.body, "status": {"allowed": True}})
        return None


def refusal(code: int, message: str) -> Reply:
    """A Status, as the server answers errors."""
    return fakeapi.refusal(code, REASONS.get(code, "InternalError"), message)
