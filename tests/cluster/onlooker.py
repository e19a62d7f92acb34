"""Eyes on the test control plane, followed as the collect role does, behind a wire that can be cut.

They run on a loop of their own in a thread, so that tests may block; what they saw is kept as a subscriber would.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.eyes import ClusterEyes
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.streams.collect import KINDS
from rebalancer.core.ports import SightLost
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind
from rebalancer.settings import KubernetesSettings
from tests.servers.controlplane import ControlPlane

AGAIN = 0.2  # seconds before a list that failed is tried again
STARTS_WITHIN = 30.0


class Wire:
    """Carries bytes to the API server until it is cut; TLS goes through untouched."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._host, self._port = at.hostname or "", at.port or 443
        self._writers: set[asyncio.StreamWriter] = set()
        self.whole = True
        self.port = 0

    async def begin(self) -> asyncio.Server:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def cut(self) -> None:
        """Break what is open and let nothing new through."""
        self.whole = False
        self.snap()

    def snap(self) -> None:
        """Break what is open once."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def end(self) -> None:
        """Everything is cut and let go."""
        await self.cut()
        async with asyncio.timeout(STARTS_WITHIN):
            while self._writers:  # noqa: ASYNC110 - connections end one by one
                await asyncio.sleep(0.01)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.whole:
            writer.transport.abort()
            return
        try:
            inner, outer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, outer}
        ways = [asyncio.create_task(_pour(reader, outer)), asyncio.create_task(_pour(inner, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, outer):
            one.transport.abort()
        await asyncio.gather(*ways, return_exceptions=True)
        self._writers -= {writer, outer}


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while blob := await source.read(1 << 16):
            sink.write(blob)
            await sink.drain()


class Onlooker:
    """What one pair of eyes knows. ``lost`` are the kinds that were lost from sight, in order."""

    def __init__(self, plane: ControlPlane, folder: Path, config: Path | None = None) -> None:
        self.lost: list[FactKind] = []
        self.failed = 0
        self.registry = CollectorRegistry()
        self._plane, self._folder = plane, folder
        self._config = config or plane.kubeconfig()
        self._known: dict[FactKind, dict[str, Fact]] = {of: {} for of in KINDS}
        self._wanted = asyncio.Event()
        self._due: dict[FactKind, None] = dict.fromkeys(KINDS)
        self._started, self._ending = threading.Event(), asyncio.Event()
        self._ended: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="onlooker", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self.wire: Wire

    def known(self, of: FactKind) -> dict[str, Fact]:
        """Objects by uid, as they are known now."""
        if self._ended is not None:
            raise AssertionError("the eyes ended") from self._ended
        return dict(self._known[of])

    def do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something on the eyes' own loop."""
        future: Future[None] = asyncio.run_coroutine_threadsafe(work(), self._loop)
        future.result(STARTS_WITHIN)

    def mend(self) -> None:
        """The wire is whole again."""
        self.wire.whole = True

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(STARTS_WITHIN)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(STARTS_WITHIN)

    def _run(self) -> None:
        try:
            asyncio.run(self._look())
        except BaseException as error:
            self._ended = error
            raise

    async def _look(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.wire = Wire(self._plane.url)
        server = await self.wire.begin()
        settings = KubernetesSettings(kubeconfig=self._through(self.wire.port))
        async with server, connected(settings) as api:
            eyes = ClusterEyes(api, "gpu-rebalancer", Reading(), Watching(self.registry))
            works = [eyes.run(), self._list(eyes), self._follow(eyes), self._ending.wait()]
            tasks = [asyncio.ensure_future(work) for work in works]
            self._started.set()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.wire.end()
            for task in done:
                task.result()

    def _through(self, port: int) -> Path:
        told = json.loads(self._config.read_text())
        told["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        place = self._folder / "onlooker.kubeconfig"
        place.write_text(json.dumps(told))
        return place

    async def _list(self, eyes: ClusterEyes) -> None:
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            due, self._due = self._due, {}
            for of in due:
                try:
                    facts = await eyes.snapshot(of)
                except (ConnectionError, TimeoutError):
                    self.failed += 1
                    self._want(of)
                    await asyncio.sleep(AGAIN)
                    continue
                self._known[of].update((fact.uid, fact) for fact in facts)

    async def _follow(self, eyes: ClusterEyes) -> None:
        """Deletions are only believed when they are told: what a list shows as gone must be told as well."""
        while True:
            try:
                changes = await eyes.changes()
            except SightLost as lost:
                self.lost += lost.kinds
                for of in lost.kinds:
                    self._want(of)
                continue
            for change in changes:
                if isinstance(change, FactDeleted):
                    self._known[change.of].pop(change.uid, None)
                else:
                    self._known[_of(change.fact)][change.fact.uid] = change.fact

    def _want(self, of: FactKind) -> None:
        self._due[of] = None
        self._wanted.set()


def _of(fact: Fact) -> FactKind:
    names: dict[str, FactKind] = {
        "Node": "node", "Pod": "pod", "Budget": "budget", "GangSpec": "group", "Namespace": "namespace",
        "Control": "control",
    }  # fmt: skip
    return names[type(fact).__name__]
