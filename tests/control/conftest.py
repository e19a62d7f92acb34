"""A miniature API server, and a connection to it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from rebalancer.adapters.cluster.connection import Api, connected
from rebalancer.settings import KubernetesSettings
from tests.control.fakeapi import FakeApi
from tests.hands.fakeapi import kubeconfig, serving


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    """The server, empty."""
    fake = FakeApi()
    async with serving(fake) as fake.url:
        yield fake


@pytest.fixture
async def api(server: FakeApi, tmp_path: Path) -> AsyncIterator[Api]:
    """A connection to the server."""
    async with connected(KubernetesSettings(kubeconfig=kubeconfig(tmp_path, server.url))) as held:
        yield held


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[tuple[FakeApi, Path]]:
    """A server in a thread of its own, for commands that run a loop themselves; and settings that lead there."""
    loop, ready = asyncio.new_event_loop(), queue.Queue[FakeApi]()
    stopping = asyncio.Event()

    async def live() -> None:
        fake = FakeApi()
        async with serving(fake) as fake.url:
            ready.put(fake)
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    server = ready.get(timeout=10)
    at = kubeconfig(tmp_path, server.url)
    held = {
        "cluster": "berlin", "kafka": {"bootstrap": "127.0.0.1:1"}, "kubernetes": {"kubeconfig": str(at)},
        "policy": str(tmp_path / "policy.yaml"), "lease": {"duration": 2.0, "renew": 1.2, "retry": 0.1},
    }  # fmt: skip
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(held))
    try:
        yield server, settings
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(timeout=10)
        loop.close()
