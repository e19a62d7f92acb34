"""Finds the tables, plays one, and says what was not as expected. No table is named here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.scenarios import expecting, worlds
from tests.scenarios.stage import Stage
from tests.scenarios.terms import Plain, TableError, merged

HERE = Path(__file__).parent
LEVELS = ("engine", "worlds")
NEEDED = {"name", "source", "expect"}


@dataclass(frozen=True, slots=True)
class Story:
    """One table: its level (the folder), its sentence, and the data."""

    level: str
    file: str
    table: Plain

    @property
    def name(self) -> str:
        """The sentence that names the test."""
        return str(self.table["name"])


@cache
def stories() -> tuple[Story, ...]:
    """All tables, in the order of folders and files. Raises TableError for one that is incomplete."""
    found = [
        Story(level, path.name, table)
        for level in LEVELS
        for path in sorted((HERE / level).glob("*.yaml"))
        if path.name != "bases.yaml"
        for table in _listed(path)
    ]
    doubles = sorted({story.name for story in found if [item.name for item in found].count(story.name) > 1})
    if doubles:
        raise TableError(f"two tables are called {doubles[0]!r}")
    return tuple(found)


def _listed(path: Path) -> list[Any]:
    tables = yaml.safe_load(path.read_text(encoding="utf-8"))
    for table in tables:
        missing = sorted(NEEDED - set(table))
        if missing:
            raise TableError(f"{path.name}: {table.get('name', 'a table')} lacks {', '.join(missing)}")
    return list(tables)


@cache
def _bases() -> Plain:
    found: Plain = yaml.safe_load((HERE / "worlds" / "bases.yaml").read_text(encoding="utf-8"))
    return found


def play(story: Story) -> list[str]:
    """Everything that is not as the table expects, with the run's story below it; empty if all is well."""
    return _on_engine(story.table) if story.level == "engine" else _in_world(story.table)


def _on_engine(table: Plain) -> list[str]:
    stage = Stage(table)
    played = stage.play()
    found = list(expecting.complaints(table["expect"], played, stage.rig.engine, stage.rig.now))
    return [*found, expecting.story(played)] if found else []


def _in_world(table: Plain) -> list[str]:
    data = merged({"name": "story"}, merged(_bases()[table["base"]], table.get("world", {})))
    lived = worlds.live(data, table.get("mode", "act"))
    now = lived.world.moment
    found = [
        *expecting.complaints(table["expect"], lived.played, lived.driver.engine, now),
        *worlds.complaints(table["expect"], lived, data),
    ]
    return [*found, expecting.story(lived.played)] if found else []
