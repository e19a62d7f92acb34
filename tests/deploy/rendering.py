"""`helm template` as a function: a chart and values in, objects or helm's refusal out."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.servers.goparts import KUBERNETES, binary

NAME = "gpu-rebalancer"
WITHIN = 60.0
"""Seconds; it takes less than one."""


class Refused(Exception):  # noqa: N818 - what helm did
    """Helm would not render; the message is its own."""


def helm(*arguments: str, given: str = "") -> str:
    """Run helm and return what it prints.

    Raises:
        Refused: it ended with another code than 0.
    """
    # a helm built without its release's flags takes the cluster for 1.20 while it only renders
    version = ("--kube-version", KUBERNETES) if arguments[0] == "template" else ()
    ended = subprocess.run(
        [str(binary("helm")), *arguments, *version],
        input=given,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    if ended.returncode:
        raise Refused(ended.stderr.strip())
    return ended.stdout


def render(
    chart: Path,
    values: dict[str, Any] | None = None,
    *,
    release: str = "gpu-rebalancer",
    namespace: str = "gpu-rebalancer",
) -> list[dict[str, Any]]:
    """The objects that a release would be made of, hooks included.

    Raises:
        Refused: the schema or a template refused the values.
    """
    text = helm(
        "template", release, str(chart), "--namespace", namespace, "--values", "-", given=json.dumps(values or {})
    )
    return [one for one in yaml.safe_load_all(text) if one]


def only(objects: list[dict[str, Any]], kind: str, ending: str = "") -> dict[str, Any]:
    """The one object of a kind whose name ends so."""
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(ending)]
    assert len(found) == 1, f"{len(found)} of kind {kind} end in {ending!r}"
    return found[0]
