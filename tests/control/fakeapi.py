"""An API server in miniature: objects by path, versions that must match, deletions, and answers put in its way.

Only what the brakes, retirement and preflight ask of one; claims about Kubernetes itself are tested on the real one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Hook = Callable[["FakeApi", str, str], web.Response | None]


class FakeApi:
    """Objects by their path; ``hook`` may answer first, ``asked`` is every request in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.unknown: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self.hook: Hook | None = None
        self.url = ""
        self._version = 100

    def put(self, path: str, **content: Any) -> dict[str, Any]:
        """Place an object at a path such as ``/api/v1/nodes/n1``."""
        parts = path.split("/")
        meta: dict[str, Any] = {"name": parts[-1], "uid": f"uid-{parts[-1]}", **content.pop("metadata", {})}
        if "namespaces" in parts[:-2]:
            meta.setdefault("namespace", parts[parts.index("namespaces") + 1])
        return self._store(path, {**content, "metadata": meta})

    def writes(self) -> list[tuple[str, str]]:
        """Requests that change something."""
        return [one for one in self.asked if one[0] != "GET"]

    def _store(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        content["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = content
        return content

    async def answer(self, request: web.Request) -> web.Response:
        """Any request."""
        path, method = request.path, request.method
        self.asked.append((method, path))
        body = await request.json() if request.can_read_body else {}
        told = self.hook(self, method, path) if self.hook is not None else None
        if told is not None:
            return told
        match method:
            case "GET":
                return self._get(path, dict(request.query))
            case "POST":
                return self._post(path, body)
            case "PUT" | "PATCH":
                return self._change(path, body, whole=method == "PUT")
            case _:
                return self._delete(path)

    def _get(self, path: str, query: dict[str, str]) -> web.Response:
        if path in self.objects:
            return web.json_response(self.objects[path])
        resource = path.rstrip("/").rsplit("/", 1)[-1]
        if path in self.unknown or (not self._is_list(path)):
            return refusal(404, f"{resource} not found")
        found = [one for at, one in sorted(self.objects.items()) if self._lies_under(at, path)]
        selector = query.get("fieldSelector", "")
        if selector:
            *path_, last = selector.partition("=")[0].split(".")
            found = [one for one in found if one.get(path_[0], {}).get(last, "") == selector.partition("=")[2]]
        begin, size = int(query.get("continue") or 0), int(query.get("limit") or 500)
        more = str(begin + size) if begin + size < len(found) else ""
        page = {"kind": f"{KINDS.get(resource, 'Unknown')}List", "apiVersion": "v1", "metadata": {"continue": more}}
        return web.json_response({**page, "items": found[begin : begin + size]})

    @staticmethod
    def _is_list(path: str) -> bool:
        return path.rsplit("/", 1)[-1] in KINDS

    @staticmethod
    def _lies_under(at: str, path: str) -> bool:
        """Whether an object is in a list: directly, or of any namespace where the list names none."""
        base, _, resource = path.rpartition("/")
        everywhere = at.startswith(f"{base}/namespaces/") and "namespaces" not in path.split("/")
        return at.rpartition("/")[0] == path or (everywhere and at.split("/")[-2] == resource)

    def _post(self, path: str, body: dict[str, Any]) -> web.Response:
        if path.endswith("selfsubjectaccessreviews"):
            return web.json_response({**body, "status": {"allowed": True}}, status=201)
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), dry=bool(body["deleteOptions"].get("dryRun")))
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            return refusal(409, f"{at} already exists")
        self.put(at, **body)
        return web.json_response(self.objects[at], status=201)

    def _evict(self, path: str, *, dry: bool) -> web.Response:
        if path not in self.objects:
            return refusal(404, f"{path} not found")
        if not dry:
            del self.objects[path]
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _change(self, path: str, body: dict[str, Any], *, whole: bool) -> web.Response:
        held = self.objects.get(path)
        if held is None:
            return refusal(404, f"{path} not found")
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted not in {None, held["metadata"]["resourceVersion"]}:
            return refusal(409, "the object has been modified")
        changed = body if whole else merged(held, body)
        return web.json_response(
            self._store(path, {**changed, "metadata": {**held["metadata"], **changed["metadata"]}})
        )

    def _delete(self, path: str) -> web.Response:
        if self.objects.pop(path, None) is None:
            return refusal(404, f"{path} not found")
        return web.json_response({"status": "Success"})


KINDS = {
    "nodes": "Node", "pods": "Pod", "configmaps": "ConfigMap", "namespaces": "Namespace", "leases": "Lease",
    "poddisruptionbudgets": "PodDisruptionBudget", "jobs": "Job", "daemonsets": "DaemonSet", "jobsets": "JobSet",
}  # fmt: skip


def merged(held: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = copy.deepcopy(held) if isinstance(held, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def refusal(code: int, message: str) -> web.Response:
    """A Status, as the server answers errors."""
    reason = {403: "Forbidden", 404: "NotFound", 409: "Conflict"}.get(code, "InternalError")
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": message,
    }
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving() -> AsyncIterator[FakeApi]:
    """The server for as long as the block lasts."""
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield api
    finally:
        await runner.cleanup()


def kubeconfig(url: str, at: Path) -> Path:
    """A kubeconfig that leads there."""
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "users": [{"name": "fake", "user": {"token": "fake"}}],
    }  # fmt: skip
    at.write_text(json.dumps(content) if at.suffix == ".json" else yaml.safe_dump(content))
    return at
