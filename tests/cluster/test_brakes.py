"""The control object on a real API server: many hands at once, people's own keys, and rights that suffice."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from rebalancer.adapters.cluster.brakes import delete_control, read_control, write_control
from rebalancer.adapters.cluster.connection import connected
from rebalancer.cli.app import app
from rebalancer.core.facts import Control
from rebalancer.settings import KubernetesSettings
from tests.cluster.granting import granted
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane


@pytest.fixture
def space(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for our objects."""
    yield fleet.namespace(control_plane, "rebalancer")
    fleet.clean(control_plane)


def run(kubeconfig: Path, space: str, folder: Path, *arguments: str) -> Result:
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump({"kubernetes": {"kubeconfig": str(kubeconfig), "namespace": space}}))
    return CliRunner().invoke(app, [*arguments, "--config", str(settings)])


async def test_changes_made_at_the_same_time_are_all_there(control_plane: ControlPlane, space: str) -> None:
    at = KubernetesSettings(kubeconfig=control_plane.kubeconfig(), namespace=space)
    async with connected(at) as api:

        def pausing(pool: str) -> asyncio.Task[Control]:
            def change(held: Control) -> Control:
                return replace(held, paused_pools=(*held.paused_pools, pool), by="grace")

            return asyncio.create_task(write_control(api, space, change))

        pools = [f"pool-{number}" for number in range(4)]
        await asyncio.gather(*map(pausing, pools))
        held, version = await read_control(api, space)
        assert (sorted(held.paused_pools), bool(version)) == (pools, True)
        assert await delete_control(api, space)
        assert await read_control(api, space) == (Control(), "")


def test_what_a_person_edits_and_what_commands_write_stand_side_by_side(
    control_plane: ControlPlane, space: str, tmp_path: Path
) -> None:
    kubeconfig = granted(control_plane, space, "operator", "operator")
    assert run(kubeconfig, space, tmp_path, "recall", "--all", "--direct", "--by", "grace").exit_code == 0
    at = f"/api/v1/namespaces/{space}/configmaps/gpu-rebalancer-control"
    control_plane.api.patch(at, {"data": {"paused": "yes", "ticket": "OPS-7"}})
    told = run(kubeconfig, space, tmp_path, "pause", "--by", "ada", "--why", "firmware", "--json")
    assert told.exit_code == 0
    control = json.loads(told.stdout)["control"]
    assert (control["paused"], control["recall_all"], control["by"]) == (True, True, "ada")
    data = control_plane.api.get(at)["data"]
    assert data["ticket"] == "OPS-7"
    assert [line.split()[1] for line in data["history"].splitlines()] == ["grace:", "ada:"]
    assert run(kubeconfig, space, tmp_path, "resume", "--by", "ada").exit_code == 0
    assert control_plane.api.get(at)["data"].items() >= {"recall-all": "false", "paused": "false"}.items()


def test_who_has_no_right_is_told_so(control_plane: ControlPlane, space: str, tmp_path: Path) -> None:
    told = run(control_plane.kubeconfig("outsider"), space, tmp_path, "pause")
    assert told.exit_code == 1
    assert "cannot be read" in told.stderr
    assert "forbidden" in told.stderr
