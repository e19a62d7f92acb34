"""deploy/README.md as written: its commands exist with these options, its values render, what it names is there."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from rebalancer.cli.app import app
from rebalancer.settings import load_settings
from tests.deploy.manifests import CHART, DEPLOY
from tests.deploy.rendering import helm, only, render

pytestmark = pytest.mark.go_binaries("helm")

TEXT = (DEPLOY / "README.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LINES = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
OURS = [line for line in LINES if re.match(r"(r|me|rebalancer) [a-z]", line)]
HELMS = [line for line in LINES if line.startswith(("helm install", "helm upgrade"))]


def heredoc(name: str) -> str:
    """The text that the README writes into a file."""
    found = re.search(rf"cat > {re.escape(name)} <<'?END'?\n(.*?)^END$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("line", OURS)
def test_a_command_of_ours_exists_with_its_options(line: str) -> None:
    """Down to the last word; what is in capitals stands for a name."""
    command: Any = get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {name for option in command.params for name in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("line", HELMS)
def test_a_helm_line_renders(line: str, tmp_path: Path) -> None:
    """With the values that step 1 writes."""
    (tmp_path / "values.yaml").write_text(heredoc("values.yaml"))
    words = shlex.split(line)[2:]
    words = [str(tmp_path / word) if word == "values.yaml" else word for word in words]
    words = [str(CHART) if word == "deploy/chart" else word for word in words if word != "--create-namespace"]
    assert "kind: Deployment" in helm("template", *words)


def test_the_values_of_step_one_take_a_default_pool_away() -> None:
    """`null` does, and the named pool is what was written."""
    objects = render(CHART, yaml.safe_load(heredoc("values.yaml")))
    held = yaml.safe_load(only(objects, "ConfigMap", "-policy")["data"]["policy.yaml"])
    assert "infer-l20" not in held["pools"]
    assert held["pools"]["infer-a100"]["windows"][0]["zone"] == "Europe/Berlin"


def test_the_settings_of_people_are_accepted(tmp_path: Path) -> None:
    """`mine.yaml`, with the shell's own replacements made."""
    (tmp_path / "mine.yaml").write_text(heredoc("mine.yaml").replace("$HOME", str(tmp_path)))
    assert load_settings(tmp_path / "mine.yaml").kubernetes is not None


def test_what_the_readme_names_is_there() -> None:
    """Folders and files of its table, and the objects that it tells people to bind."""
    named = re.findall(r"^\| (.+?) \|", TEXT, re.MULTILINE)[2:]
    paths = [path for cell in named for path in re.findall(r"`([^`]+)`", cell)]
    assert paths
    assert all((DEPLOY / path).exists() for path in paths)
    roles = {one["metadata"]["name"] for one in render(CHART) if one["kind"] in {"Role", "ClusterRole"}}
    assert {"gpu-rebalancer-operator", "gpu-rebalancer-gpu-rebalancer-operator"} <= roles
