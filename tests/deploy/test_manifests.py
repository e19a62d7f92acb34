"""Plain manifests and generated files are what the chart and the program say, and kustomize builds them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.adapters.cluster.permissions import Profile
from tests.deploy.manifests import DEPLOY, chart_files, hook, plain_files, rendered
from tests.servers.goparts import binary

pytestmark = pytest.mark.go_binaries("helm", "kustomize")

BUILD_WITHIN = 60.0  # seconds; it takes one
OPTIONAL = ("-add-toleration",)
"""In the rendered act profile, and left to the site in the plain one."""


@pytest.mark.parametrize("make", [chart_files, plain_files])
def test_generated_files_are_fresh(make: Any) -> None:
    """`make manifests` writes them."""
    stale = [str(path) for path, text in make().items() if not path.is_file() or path.read_text() != text]
    assert stale == []


@pytest.mark.parametrize("profile", ["shadow", "act"])
def test_an_overlay_is_what_the_chart_renders(profile: Profile) -> None:
    """Object for object, the namespace added and the hooks left out."""
    built = [one for one in build(DEPLOY / "kustomize/overlays" / profile) if one["kind"] != "Namespace"]
    wanted = [one for one in rendered(profile) if not hook(one) and not one["metadata"]["name"].endswith(OPTIONAL)]
    assert sorted(map(spelled, built)) == sorted(map(spelled, wanted))


def test_the_retire_folder_is_the_charts_hook() -> None:
    """The same Job with the same rights, as ordinary objects."""
    built = build(DEPLOY / "kustomize/retire")
    assert sorted((one["kind"], one["metadata"]["name"]) for one in built) == sorted(
        (one["kind"], one["metadata"]["name"]) for one in rendered("act") if hook(one)
    )
    assert not any(hook(one) for one in built)


def test_every_file_named_by_a_kustomization_is_there() -> None:
    """And every manifest is named by one, but the optional mutation."""
    named, there = set(), set()
    for path in DEPLOY.rglob("kustomization.yaml"):
        named |= {(path.parent / name).resolve() for name in yaml.safe_load(path.read_text())["resources"]}
        there |= {one.resolve() for one in path.parent.glob("*.yaml") if one.name != "kustomization.yaml"}
    assert all(path.exists() for path in named)
    assert {path.name for path in there - named} == {"add-toleration.yaml"}


def build(folder: Path) -> list[dict[str, Any]]:
    """What kustomize makes of a folder."""
    ended = subprocess.run(
        [str(binary("kustomize")), "build", str(folder)],
        capture_output=True,
        text=True,
        timeout=BUILD_WITHIN,
        check=True,
    )
    return [one for one in yaml.safe_load_all(ended.stdout) if one]


def spelled(one: dict[str, Any]) -> str:
    """An object as a text to compare and sort by."""
    return json.dumps(one, sort_keys=True)
