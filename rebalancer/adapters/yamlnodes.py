"""YAML read with its places: every value knows its line and column, and all that is wrong is collected.

Values are taken as written, never as YAML guesses them (`22:00` stays a time, not 1320 seconds). Nothing here
knows what a policy or a setting is, and nothing is repaired: what cannot be read is a flaw with a place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

import yaml

T = TypeVar("T")
LARGEST = 1 << 20  # bytes: a file of this kind is written by people


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with a file: ``path`` dotted as in the file, ``line`` and ``column`` from 1."""

    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.path + ': ' if self.path else ''}{self.message}"


class Sheet:
    """A composed document: reads nodes, remembers places by path, collects flaws instead of raising."""

    def __init__(self, text: str) -> None:
        self.flaws: list[Flaw] = []
        self._places: dict[str, tuple[int, int]] = {"": (1, 1)}
        self.root = self._compose(text)

    def _compose(self, text: str) -> yaml.Node | None:
        if len(text) > LARGEST:
            self.flaws.append(Flaw("", 1, 1, f"the file is larger than {LARGEST} characters"))
            return None
        try:
            node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            self.flaws.append(_unreadable(error))
            return None
        except RecursionError:
            self.flaws.append(Flaw("", 1, 1, "nested too deeply"))
            return None
        return node

    def blame(self, path: str, message: str) -> None:
        """Add a flaw at the path, or at the nearest part of it that stands in the file."""
        line, column = self._places[self._nearest(path)]
        self.flaws.append(Flaw(path, line, column, message))

    def stands(self, path: str) -> bool:
        """Whether the file says something at this very path."""
        return path in self._places

    def _nearest(self, path: str) -> str:
        while path not in self._places:
            path = path.rpartition(".")[0]
        return path

    def mapping(self, node: yaml.Node, path: str) -> dict[str, yaml.Node]:
        """The entries of a mapping by key; keys that come twice are flaws, as is anything but a mapping."""
        if not isinstance(node, yaml.MappingNode):
            self.blame(path, f"must be a mapping, is {_named(node)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else "?"
            below = f"{path}.{name}" if path else name
            twice = name in found
            self._places[below] = (key.start_mark.line + 1, key.start_mark.column + 1)
            if twice:
                self.blame(below, "stands here a second time")
            found.setdefault(name, value)
        return found

    def fields(self, node: yaml.Node, path: str, known: Collection[str]) -> dict[str, yaml.Node]:
        """As :meth:`mapping`, but any other key is a flaw, with the nearest known one as a hint."""
        found = self.mapping(node, path)
        for name in [name for name in found if name not in known]:
            self.blame(f"{path}.{name}" if path else name, f"unknown key{_hint(name, known)}")
            del found[name]
        return found

    def items(self, node: yaml.Node, path: str) -> Iterator[tuple[str, yaml.Node]]:
        """The items of a list with their paths (``days.0``); a single scalar is a list of one."""
        entries = node.value if isinstance(node, yaml.SequenceNode) else [] if is_null(node) else [node]
        for index, item in enumerate(entries):
            below = f"{path}.{index}"
            self._places[below] = (item.start_mark.line + 1, item.start_mark.column + 1)
            yield below, item

    def value(self, node: yaml.Node, path: str, parse: Callable[[str], T]) -> T | None:
        """A scalar through a parser that raises ValueError with what is wrong; None stands for a flaw."""
        if not isinstance(node, yaml.ScalarNode):
            self.blame(path, f"must be a single value, is {_named(node)}")
            return None
        self._places.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        try:
            return parse(str(node.value))
        except ValueError as error:
            self.blame(path, str(error))
            return None


def is_null(node: yaml.Node) -> bool:
    """Whether the file says nothing here (empty, ``null`` or ``~``)."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name.replace("-", "_").lower(), sorted(known), n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"


def _named(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "empty" if is_null(node) else f"{node.value!r}"


def _unreadable(error: yaml.YAMLError) -> Flaw:
    mark = getattr(error, "problem_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Flaw("", line, column, f"not YAML: {what}")
