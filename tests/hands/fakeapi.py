"""An API server's manners in memory: versions, uids, merge patches, lists by field, and faults on request.

Only for speed: what it claims about Kubernetes is tested again on the real control plane. Reached directly, or over
HTTP through the real connection.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import yaml
from aiohttp import web

from rebalancer.adapters.cluster.connection import MERGE, Api, Reply, connected
from rebalancer.settings import KubernetesSettings

TOKEN = "secret-of-the-test"


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    content_type: str = ""


Fault = Callable[[Asked], Reply | Exception | None]
"""An answer, or a transport's failure, in place of the server's own."""


@dataclass
class Kube:
    """Objects by path. ``faults`` are asked first; ``after`` are asked once the request was carried out."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    after: list[Fault] = field(default_factory=list)
    versions: Any = field(default_factory=lambda: itertools.count(100))

    def put(self, path: str, body: Mapping[str, Any], uid: str = "") -> dict[str, Any]:
        """An object as it came to be, whoever made it."""
        made = copy.deepcopy(dict(body))
        name = path.rpartition("/")[2]
        made["metadata"] = {"name": name, **made.get("metadata", {}), "resourceVersion": str(next(self.versions))}
        made["metadata"].setdefault("uid", uid or f"uid-{name}")
        self.objects[path] = made
        return made

    def asked_for(self, method: str) -> list[Asked]:
        return [one for one in self.asked if one.method == method]

    def handle(self, asked: Asked) -> Reply:
        """What the server says; raises what the transport would."""
        self.asked.append(asked)
        for fault in self.faults:
            if (found := fault(asked)) is not None:
                return _said(found)
        reply = self._handle(asked)
        for fault in self.after:
            if (found := fault(asked)) is not None:
                return _said(found)
        return reply

    def _handle(self, asked: Asked) -> Reply:
        match asked.method:
            case "GET" if asked.path in self.objects:
                return Reply(200, {}, copy.deepcopy(self.objects[asked.path]))
            case "GET" if _kind(asked.path):
                return self._page(asked)
            case "POST":
                return self._evict(asked) if asked.path.endswith("/eviction") else self._make(asked)
            case "DELETE" if asked.path in self.objects:
                del self.objects[asked.path]
                return Reply(200, {}, {"status": "Success"})
            case "PUT" | "PATCH" if asked.path in self.objects:
                return self._write(asked)
            case _:
                return refusal(404, "NotFound", f"{asked.path} not found")

    def _make(self, asked: Asked) -> Reply:
        name = asked.body["metadata"].get("name") or f"made-{next(self.versions)}"
        path = f"{asked.path}/{name}"
        if path in self.objects:
            return refusal(409, "AlreadyExists", f"{name} already exists")
        return Reply(201, {}, copy.deepcopy(self.put(path, asked.body)))

    def _page(self, asked: Asked) -> Reply:
        found = self._list(asked)
        begin, size = int(asked.query.get("continue") or 0), int(asked.query.get("limit") or len(found) or 1)
        more = str(begin + size) if begin + size < len(found) else ""
        said = {"kind": f"{_kind(asked.path)}List", "apiVersion": "v1", "metadata": {"continue": more}}
        return Reply(200, {}, {**said, "items": found[begin : begin + size]})

    def _list(self, asked: Asked) -> list[dict[str, Any]]:
        found = [one for path, one in sorted(self.objects.items()) if _lies_under(path, asked.path)]
        for part in filter(None, asked.query.get("fieldSelector", "").split(",")):
            place, _, value = part.partition("=")
            found = [one for one in found if _at(one, place) == value]
        return copy.deepcopy(found)

    def _write(self, asked: Asked) -> Reply:
        old = self.objects[asked.path]
        assert asked.method == "PUT" or asked.content_type == MERGE
        new = merged(old, asked.body) if asked.method == "PATCH" else copy.deepcopy(asked.body)
        wanted = asked.body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != old["metadata"]["resourceVersion"]:
            return refusal(409, "Conflict", "the object has been modified")
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            cause = {"reason": "FieldValueInvalid", "field": "metadata.uid"}
            return refusal(422, "Invalid", "field is immutable", {"causes": [cause]})
        return Reply(200, {}, copy.deepcopy(self.put(asked.path, new)))

    def _evict(self, asked: Asked) -> Reply:
        path = asked.path.removesuffix("/eviction")
        if path not in self.objects:
            return refusal(404, "NotFound", f'pods "{path.rpartition("/")[2]}" not found')
        uid = self.objects[path]["metadata"]["uid"]
        options = asked.body["deleteOptions"]
        if options["preconditions"]["uid"] != uid:
            return refusal(409, "Conflict", f"the UID in the precondition does not match {uid}")
        if not options.get("dryRun"):
            del self.objects[path]
        return Reply(201, {}, {"kind": "Status", "status": "Success", "code": 201})


KINDS = {
    "nodes": "Node", "pods": "Pod", "configmaps": "ConfigMap", "namespaces": "Namespace", "leases": "Lease",
    "poddisruptionbudgets": "PodDisruptionBudget", "jobs": "Job", "daemonsets": "DaemonSet", "jobsets": "JobSet",
}  # fmt: skip


def _kind(path: str) -> str:
    """What a list's path lists; "" for any other path."""
    return KINDS.get(path.rpartition("/")[2], "")


def _lies_under(at: str, path: str) -> bool:
    """Whether an object is in a list: directly, or of any namespace where the list names none."""
    base, _, resource = path.rpartition("/")
    everywhere = at.startswith(f"{base}/namespaces/") and "namespaces" not in path.split("/")
    return at.rpartition("/")[0] == path or (everywhere and at.split("/")[-2] == resource)


class DirectApi:
    """The connection's face without a wire; ``delay`` seconds pass before each answer."""

    host = "memory"

    def __init__(self, kube: Kube, delay: float = 0.0) -> None:
        self.kube, self.delay = kube, delay
        self.hanging = False

    async def request(
        self, method: str, path: str, *, body: object = None, query: Mapping[str, Any] | None = None,
        content_type: str | None = None, timeout: float,  # noqa: ASYNC109 - as the connection has it
    ) -> Reply:  # fmt: skip
        async with asyncio.timeout(timeout):
            if self.hanging:
                await asyncio.Event().wait()
            await asyncio.sleep(self.delay)
        plain = orjson.loads(orjson.dumps(body)) if body is not None else None
        return self.kube.handle(Asked(method, path, dict(query or {}), plain, content_type or ""))


def direct(kube: Kube, delay: float = 0.0) -> tuple[Api, DirectApi]:
    """The same object twice: as what it stands for, and as what it is."""
    api = DirectApi(kube, delay)
    return cast("Api", api), api


@asynccontextmanager
async def serving(kube: Kube) -> AsyncIterator[str]:
    """The same over HTTP; its address."""

    async def answer(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw) if raw else None
        asked = Asked(request.method, request.path, dict(request.query), body, request.content_type)
        try:
            reply = kube.handle(asked)
        except TimeoutError:
            await asyncio.sleep(30)
            raise
        except ConnectionError:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(reply.body, (str, bytes)):
            said = reply.body.encode() if isinstance(reply.body, str) else reply.body
            return web.Response(body=said, status=reply.status, headers=dict(reply.headers), content_type="text/plain")
        return web.json_response(reply.body, status=reply.status, headers=dict(reply.headers))

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def served(kube: Kube, folder: Path) -> AsyncIterator[Api]:
    """The same through the real connection."""
    async with (
        serving(kube) as url,
        connected(KubernetesSettings(kubeconfig=kubeconfig(folder, url))) as api,
    ):
        yield api


def kubeconfig(folder: Path, url: str) -> Path:
    """A kubeconfig for a server without certificates."""
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(said))
    return path


def refusal(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Reply:
    """A Status as the server spells a refusal."""
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    return Reply(code, {}, {**body, **({"details": dict(details)} if details else {})})


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def _at(raw: Any, place: str) -> str:
    for key in place.split("."):
        raw = raw.get(key, {}) if isinstance(raw, dict) else {}
    return raw if isinstance(raw, str) else ""


def _said(found: Reply | Exception) -> Reply:
    if isinstance(found, Exception):
        raise found
    return found
