"""A small API server in this process: objects, paged lists, watches that can be cut, compacted and made to lie.

For speed only; what Kubernetes itself does is tested on the real one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

KINDS = {
    "/api/v1/nodes": ("v1", "Node"),
    "/api/v1/pods": ("v1", "Pod"),
    "/api/v1/namespaces": ("v1", "Namespace"),
    "/apis/policy/v1/poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "/apis/batch/v1/jobs": ("batch/v1", "Job"),
    "/api/v1/namespaces/gpu-rebalancer/configmaps": ("v1", "ConfigMap"),
}
JOBSETS, CLAIMS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets", "/apis/resource.k8s.io/v1/resourceclaims"
EXTRA = {JOBSETS: ("jobset.x-k8s.io/v1alpha2", "JobSet"), CLAIMS: ("resource.k8s.io/v1", "ResourceClaim")}


@dataclass
class FakeApi:
    """``version`` is the store's; ``refuse`` maps a path to the status that it is answered with."""

    version: int = 100
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    events: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    kinds: dict[str, tuple[str, str]] = field(default_factory=lambda: dict(KINDS))
    refuse: dict[str, int] = field(default_factory=dict)
    compacted: int = 0
    page: int = 2
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    lists: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    watches: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    open: dict[web.StreamResponse, tuple[web.Request, str]] = field(default_factory=dict)
    expire_continue: int = 0
    url: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    # -- the store ---------------------------------------------------------------------------------------------

    def put(self, path: str, raw: dict[str, Any], kind: str = "") -> dict[str, Any]:
        self.version += 1
        meta = raw["metadata"]
        meta["resourceVersion"] = str(self.version)
        held = self.objects.setdefault(path, {})
        kind = kind or ("MODIFIED" if meta["uid"] in held else "ADDED")
        held[meta["uid"]] = raw
        self._happened(path, kind, raw)
        return raw

    def delete(self, path: str, uid: str) -> None:
        self.version += 1
        raw = orjson.loads(orjson.dumps(self.objects[path].pop(uid)))
        raw["metadata"]["resourceVersion"] = str(self.version)
        self._happened(path, "DELETED", raw)

    def say(self, path: str, kind: str, raw: dict[str, Any]) -> None:
        """An event that nothing in the store stands behind."""
        self.version += 1
        self._happened(path, kind, raw)

    def compact(self) -> None:
        """Older versions than now can no longer be watched from."""
        self.compacted = self.version

    def cut(self) -> None:
        """Break every watch off in the middle."""
        for request, _ in list(self.open.values()):
            if request.transport is not None:
                request.transport.abort()

    def _happened(self, path: str, kind: str, raw: dict[str, Any]) -> None:
        api_version, name = self.kinds[path]
        whole = {**orjson.loads(orjson.dumps(raw)), "kind": name, "apiVersion": api_version}
        self.events.append((self.version, path, kind, whole))
        self.changed.set()
        self.changed = asyncio.Event()

    # -- HTTP --------------------------------------------------------------------------------------------------

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, dict(request.query)
        if "/leases" in path:
            return await self._lease(request)
        if path in self.refuse:
            return web.json_response({"kind": "Status", "message": "refused by the test"}, status=self.refuse[path])
        if path == "/apis" or path in {f"/apis/{version}" for version, _ in self.kinds.values()}:
            return self._discovery(path)
        if path not in self.kinds:
            return self._one(path)
        if query.get("watch") == "true":
            self.watches.append((path, query))
            return await self._watch(request, path, query)
        self.lists.append((path, query))
        return self._list(path, query)

    async def _lease(self, request: web.Request) -> web.Response:
        """Reads and guarded writes of Leases."""
        if request.method == "GET":
            held = self.leases.get(request.path)
            return web.json_response(held or {"kind": "Status", "code": 404}, status=200 if held else 404)
        lease = await request.json()
        path = request.path if request.method == "PUT" else f"{request.path}/{lease['metadata']['name']}"
        held = self.leases.get(path)
        if (held or {}).get("metadata", {}).get("resourceVersion") != lease["metadata"].get("resourceVersion"):
            return web.json_response({"kind": "Status", "code": 409}, status=409)
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.leases[path] = lease
        return web.json_response(lease)

    def _discovery(self, path: str) -> web.Response:
        if path == "/apis":
            groups: dict[str, list[dict[str, str]]] = {}
            for version in sorted({version for version, _ in self.kinds.values() if "/" in version}):
                groups.setdefault(version.partition("/")[0], []).append({"groupVersion": version})
            listed = [
                {"name": name, "preferredVersion": versions[0], "versions": versions}
                for name, versions in groups.items()
            ]
            return web.json_response({"groups": listed})
        names = [one.rpartition("/")[2] for one, (version, _) in self.kinds.items() if path == f"/apis/{version}"]
        return web.json_response({"resources": [{"name": name, "verbs": ["get", "list", "watch"]} for name in names]})

    def _one(self, path: str) -> web.Response:
        """One namespaced object by its name."""
        head, _, name = path.rpartition("/")
        base, _, plural = head.partition("/namespaces/")
        namespace, _, plural = plural.partition("/")
        for raw in self.objects.get(f"{base}/{plural}", {}).values():
            if (raw["metadata"].get("namespace"), raw["metadata"]["name"]) == (namespace, name):
                return web.json_response(raw)
        return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)

    def _list(self, path: str, query: dict[str, str]) -> web.Response:
        begin = int(query.get("continue", "0"))
        if begin and self.expire_continue:
            self.expire_continue -= 1
            return web.json_response({"kind": "Status", "message": "continue expired", "code": 410}, status=410)
        found = list(self.objects.get(path, {}).values())
        size = min(self.page, int(query.get("limit", "500")))
        meta = {"resourceVersion": str(self.version)}
        if begin + size < len(found):
            meta["continue"] = str(begin + size)
        return web.json_response({"metadata": meta, "items": found[begin : begin + size]})

    async def _watch(self, request: web.Request, path: str, query: dict[str, str]) -> web.StreamResponse:
        since = int(query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.compacted:
            await self._send(response, "ERROR", {"kind": "Status", "code": 410, "message": "too old"})
            return response
        self.open[response] = (request, path)
        try:
            while True:
                changed = self.changed
                for version, of, kind, raw in list(self.events):
                    if version > since and of == path:
                        await self._send(response, kind, raw)
                        since = version
                await changed.wait()
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            del self.open[response]

    async def tell(self, path: str, kind: str, raw: dict[str, Any]) -> None:
        """Send one line on every open watch of a path."""
        for response, (_, of) in list(self.open.items()):
            if of == path:
                await self._send(response, kind, raw)

    @staticmethod
    async def _send(response: web.StreamResponse, kind: str, raw: dict[str, Any]) -> None:
        await response.write(orjson.dumps({"type": kind, "object": raw}) + b"\n")


@contextlib.asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    """A server on a free port of this machine."""
    fake = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        fake.cut()
        await runner.cleanup()


def pod(uid: str, name: str = "", node: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": name or uid, "namespace": "ml", "creationTimestamp": "2026-07-01T00:00:00Z"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def node(uid: str, name: str = "", address: str = "10.0.0.1") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": name or uid, "creationTimestamp": "2026-07-01T00:00:00Z", "labels": {}},
        "spec": {},
        "status": {
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address}],
        },
    }
