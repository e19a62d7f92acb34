"""A tapped night, a store of it, and a runner of commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rebalancer.adapters.store import RawRecord, Store
from rebalancer.cli.app import app
from tests.cli import night

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command as if typed; wide and without colour."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The night, tapped."""
    return night.tap(tmp_path / "tap")


@pytest.fixture
def store() -> Store:
    """The night, in memory."""
    return Store().feed_all(RawRecord(*record) for record in night.records())
