"""A reverse proxy before the API server that can be told to answer wrongly, slowly or never.

Plain HTTP in, TLS out, tokens passed on; watches are streamed. What it is told holds for requests whose method and
path match, so often as was said. It keeps a list of what was asked, so that stories can count.
"""

import asyncio
import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.servers.controlplane import ControlPlane
from tests.servers.ports import free_ports

STARTS_WITHIN = 10.0  # seconds
ENDS_WITHIN = 10.0
HANG = 600.0  # seconds that a hanging answer hangs, unless it is let go
FOREVER = 1_000_000  # times


class Asked(NamedTuple):
    """One request as it came: monotonic seconds, method, path with query, body, and how it was answered."""

    at: float
    method: str
    path: str
    body: Any
    status: int


@dataclass
class Fault:
    """What to do with requests that match; ``times`` counts down. Status 0: no answer at all until ``let_go``."""

    method: str
    path: re.Pattern[str]
    status: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    skip: int = 0
    """So many that match pass first."""
    times: int = FOREVER
    after: bool = False
    """The API server does what is asked, and only its answer is withheld or replaced."""
    dry: bool | None = None
    """Only dry runs (True), only the real thing (False), or both."""
    lost: bool = False
    """What hung is never passed on once it is let go: it was on its way when the sender's machine died."""
    met: int = 0
    _let_go: asyncio.Event = field(default_factory=asyncio.Event)


class Proxy:
    """While its context is open."""

    def __init__(self, plane: ControlPlane) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[Asked] = []
        self._plane, self._faults, self._hanging = plane, list[Fault](), 0
        self._tls = ssl.create_default_context(cafile=str(plane.authority))
        self._loop = asyncio.new_event_loop()
        self._began = threading.Event()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def kubeconfig(self, like: Path, to: Path) -> Path:
        """Write a copy of a kubeconfig that leads here."""
        config = json.loads(like.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        to.write_text(json.dumps(config))
        return to

    # -- faults ------------------------------------------------------------------------------------------------------

    def fault(self, method: str, path: str, **how: Any) -> Fault:
        """Add one; ``path`` is a regular expression searched for in path and query."""
        fault = Fault(method, re.compile(path), **how)
        self._faults.append(fault)
        return fault

    def heal(self, fault: Fault | None = None) -> None:
        """Take one fault, or all of them, away; whatever hangs because of it is let go."""
        for one in [fault] if fault is not None else list(self._faults):
            if one in self._faults:
                self._faults.remove(one)
            self._loop.call_soon_threadsafe(one._let_go.set)

    def retire(self, fault: Fault) -> None:
        """It meets nothing more. What hangs because of it is let go if it is to be lost, and hangs on until healed."""
        fault.times = 0
        if fault.lost:
            self.heal(fault)

    @property
    def hanging(self) -> int:
        """How many requests hang now."""
        return self._hanging

    def count(self, method: str, path: str) -> int:
        """How many requests of this kind came."""
        return len(self.requests(method, path))

    def requests(self, method: str, path: str) -> list[Asked]:
        """The requests of this kind, in order."""
        return [one for one in list(self.asked) if one.method == method and re.search(path, one.path)]

    # -- serving -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._began.wait(STARTS_WITHIN), "the proxy does not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.heal()
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(ENDS_WITHIN)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            app = web.Application(client_max_size=16 << 20)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(session, request)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            self._began.set()
            await self._ending.wait()
            await runner.cleanup()

    async def _handle(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = self._met(request, body)
        if fault is not None and not fault.after:
            answer = await self._wrong(fault)
            if answer is not None:
                self._note(request, body, answer.status)
                return answer
        try:
            return await self._pass_on(session, request, body, fault)
        except aiohttp.ClientError as error:
            self._note(request, body, 502)
            return web.json_response({"message": str(error)}, status=502)

    def _met(self, request: web.Request, body: bytes) -> Fault | None:
        dry = "dryRun=All" in request.query_string or b'"dryRun":["All"]' in body.replace(b" ", b"")
        for fault in list(self._faults):
            fits = fault.method == request.method and fault.path.search(request.path_qs)
            if not fits or fault.times <= 0 or fault.dry not in (None, dry):
                continue
            if fault.skip > 0:
                fault.skip -= 1
            else:
                fault.times -= 1
                fault.met += 1
                return fault
        return None

    async def _wrong(self, fault: Fault) -> web.Response | None:
        """The wrong answer; None once a hanging one was let go, and is to be passed on after all."""
        if fault.status == 0:
            self._hanging += 1
            try:
                async with asyncio.timeout(HANG):
                    await fault._let_go.wait()
            finally:
                self._hanging -= 1
            return web.json_response({"message": "lost on the way"}, status=502) if fault.lost else None
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, **fault.body}
        return web.json_response(status, status=fault.status, headers=dict(fault.headers))

    async def _pass_on(
        self, session: aiohttp.ClientSession, request: web.Request, body: bytes, fault: Fault | None
    ) -> web.StreamResponse:
        dropped = {"host", "content-length", "transfer-encoding", "connection"}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in dropped}
        timeout = aiohttp.ClientTimeout(total=None)
        url = self._plane.url + request.path_qs
        async with session.request(request.method, url, data=body, headers=headers, timeout=timeout) as came:
            self._note(request, body, came.status)
            if fault is not None:
                await came.read()
                wrong = await self._wrong(fault)
                if wrong is not None:
                    return wrong
            kept = {name: value for name, value in came.headers.items() if name.lower() not in dropped}
            answer = web.StreamResponse(status=came.status, headers=kept)
            with contextlib.suppress(ConnectionResetError):  # whoever asked is there no more
                await answer.prepare(request)
                async for chunk in came.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
            return answer

    def _note(self, request: web.Request, body: bytes, status: int) -> None:
        try:
            said = json.loads(body) if body else None
        except ValueError:
            said = body
        self.asked.append(Asked(time.monotonic(), request.method, request.path_qs, said, status))
