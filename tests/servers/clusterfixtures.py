"""The control plane and the programs built from Go modules, as pytest fixtures.

Building takes minutes on a machine that has not done it, far beyond a test's time limit. So it happens between
collection and the first test, for what the collected tests ask for: by one of the fixtures below, or by
`pytest.mark.go_binaries("helm", ...)` where a test calls `goparts.binary` itself.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.controlplane import ControlPlane
from tests.servers.goparts import BuildError, binary

CONTROL_PLANE = ("kubemini", "kwok", "jobset-controller")
NEEDS = {
    "control_plane": CONTROL_PLANE,
    "own_control_plane": CONTROL_PLANE,
    "kubectl_command": ("kubemini",),
    "helm_binary": ("helm",),
    "kustomize_binary": ("kustomize",),
    "promtool_binary": ("promtool",),
    "alertmanager_binary": ("alertmanager",),
    "descheduler_binary": ("descheduler",),
}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the collected tests need, unless they are only listed."""
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in _needs(item)}
    try:
        for name in sorted(wanted, key=lambda one: (one not in CONTROL_PLANE, one)):
            binary(name)
    except BuildError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)


def _needs(item: pytest.Item) -> set[str]:
    marked = {name for mark in item.iter_markers("go_binaries") for name in mark.args}
    asked = {name for fixture in getattr(item, "fixturenames", ()) for name in NEEDS.get(fixture, ())}
    return marked | asked


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """This test process's control plane. Leave it running and clean: `fleet.clean(control_plane)`."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
def own_control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own; for one with other settings use `ControlPlane` as a context manager."""
    with ControlPlane(tmp_path / "control-plane") as running:
        yield running


@pytest.fixture(scope="session")
def kubectl_command() -> list[str]:
    """The words that start kubectl."""
    return [str(binary("kubemini")), "kubectl"]


@pytest.fixture(scope="session")
def helm_binary() -> Path:
    return binary("helm")


@pytest.fixture(scope="session")
def kustomize_binary() -> Path:
    return binary("kustomize")


@pytest.fixture(scope="session")
def promtool_binary() -> Path:
    return binary("promtool")


@pytest.fixture(scope="session")
def alertmanager_binary() -> Path:
    return binary("alertmanager")


@pytest.fixture(scope="session")
def descheduler_binary() -> Path:
    return binary("descheduler")
