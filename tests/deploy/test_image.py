"""The Dockerfile without Docker: its sources exist, its locks agree with the project's, its steps give a program."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy/Dockerfile").read_text()
LOCKS = ("deploy/runtime.lock", "deploy/build.lock")
STEP_WITHIN = 100.0  # seconds
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def test_every_copied_source_exists_and_reaches_the_builder() -> None:
    """The ignore file lets through what is copied, and little else."""
    passed = {
        line[1:] for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    assert passed == set(copied)


def test_the_image_runs_as_nobody_in_particular() -> None:
    """By number, so that `runAsNonRoot` can be checked; no host is named and no tag floats."""
    assert re.search(r"^USER 65532:65532$", TEXT, re.MULTILINE)
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+", TEXT, re.MULTILINE)
    assert "latest" not in TEXT
    assert "--index-url" not in TEXT
    assert TEXT.count("--require-hashes") == 2


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_of_the_image_agrees_with_the_projects(name: str) -> None:
    """Same versions and same hashes: `make lock` makes all of them."""
    whole, mine = (ROOT / "requirements.lock").read_text(), (ROOT / name).read_text()
    assert set(pins(mine).items()) <= set(pins(whole).items())
    assert hashes(mine) <= hashes(whole)


def test_the_runtime_lock_has_every_dependency_and_no_tool() -> None:
    """Of the project itself; what only tests need stays out of the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(wanted: list[str]) -> set[str]:
        return {re.split(r"[<>=\[; ]", one)[0].lower().replace("_", "-") for one in wanted}

    held = {name.lower().replace("_", "-") for name in pins((ROOT / "deploy/runtime.lock").read_text())}
    assert names(project["dependencies"]) <= held
    assert not {"pytest", "mypy", "ruff", "hypothesis", "uv", "confluent-kafka"} & held


def test_the_built_wheel_runs_and_brings_the_topics(tmp_path: Path) -> None:
    """As the Dockerfile does it: a wheel without build isolation, into an empty environment, with its data inside."""
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin/python"
    site = next((home / "lib").glob("python3*")) / "site-packages"
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "-q", "--target", str(site), str(wheel))
    others = next(path for path in sys.path if path.endswith("site-packages"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{site}:{others}"}
    told = run(str(python), "-m", "rebalancer", "version", cwd=tmp_path, environment=environment)
    assert "gpu-pool-rebalancer" in told
    inside = "from rebalancer.wire.topics import folder, topics; print(folder(), len(topics()))"
    where, count = run(str(python), "-c", inside, cwd=tmp_path, environment=environment).split()
    assert Path(where) == site / "rebalancer/topics"
    assert int(count) > 20


def run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """What a command prints; its failure is the test's."""
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=STEP_WITHIN, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def pins(text: str) -> dict[str, str]:
    return dict(PIN.findall(text))


def hashes(text: str) -> set[str]:
    return set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", text))
