"""Scenario files: shipped ones by name, others by path. The only place of this room that reads YAML.

The format is described in ``loading``. What is wrong with a file is told with the path inside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rebalancer.simulate.loading import ScenarioError, load
from rebalancer.simulate.scenario import Scenario

_FOLDER = resources.files("rebalancer.simulate") / "scenarios"


def shipped() -> tuple[str, ...]:
    """Names of the scenarios that come with the program."""
    return tuple(sorted(item.name.removesuffix(".yaml") for item in _FOLDER.iterdir() if item.name.endswith(".yaml")))


def parse(text: str, **overrides: Any) -> Scenario:
    """A scenario from YAML text; ``overrides`` replace top-level keys. Raises :class:`ScenarioError`."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError("", f"no YAML: {error}") from None
    if not isinstance(data, Mapping):
        raise ScenarioError("", "must be a mapping")
    return load({**data, **overrides})


def open_scenario(name_or_path: str, **overrides: Any) -> Scenario:
    """A shipped scenario by name, or a file by path. Raises :class:`ScenarioError` or OSError."""
    if name_or_path in shipped():
        return parse((_FOLDER / f"{name_or_path}.yaml").read_text(encoding="utf-8"), **overrides)
    try:
        text = Path(name_or_path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ScenarioError("", f"{name_or_path} is no UTF-8 text: {error}") from None
    return parse(text, **overrides)
