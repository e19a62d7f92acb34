"""A miniature API server, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rebalancer.adapters.cluster.connection import Api, connected
from rebalancer.settings import KubernetesSettings
from tests.control.fakeapi import FakeApi, kubeconfig, serving


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    """The server, empty."""
    async with serving() as api:
        yield api


@pytest.fixture
async def api(server: FakeApi, tmp_path: Path) -> AsyncIterator[Api]:
    """A connection to the server."""
    async with connected(KubernetesSettings(kubeconfig=kubeconfig(server.url, tmp_path / "kubeconfig"))) as held:
        yield held
