"""Reasons are a closed set, each with a sentence, and whoever gives one supplies the numbers it quotes."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rebalancer import core
from rebalancer.core.reasons import SENTENCES, Because, Reason, sentence

ROOT = Path(core.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def fields(reason: Reason) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(SENTENCES[reason]) if name}


@dataclass(frozen=True)
class Made:
    """A because written out in the source: where, which, and the keys of its numbers (None: not literal)."""

    where: str
    reason: Reason
    keys: frozenset[str] | None


def _constants() -> dict[str, str]:
    """Words that have a name in the source."""
    lines = [item for path in FILES for item in ast.parse(path.read_text()).body if isinstance(item, ast.Assign)]
    return {
        target.id: item.value.value
        for item in lines
        for target in item.targets
        if isinstance(target, ast.Name) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
    }


CONSTANTS = _constants()


def _assigned(tree: ast.AST) -> dict[str, set[str]]:
    """Names given a literal dict somewhere in the file, with the keys of all of them."""
    found: dict[str, set[str]] = {}
    for item in ast.walk(tree):
        target: ast.expr | None = item.target if isinstance(item, ast.AnnAssign) else None
        if isinstance(item, ast.Assign) and len(item.targets) == 1:
            target = item.targets[0]
        value = getattr(item, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
            keys = _keys(value, found)
            if keys is not None:
                found.setdefault(target.id, set()).update(keys)
    return found


def _keys(value: ast.expr | None, named: dict[str, set[str]]) -> set[str] | None:
    if value is None:
        return set()
    if isinstance(value, ast.Name):
        return named.get(value.id)
    if not isinstance(value, ast.Dict):
        return None
    keys: set[str] = set()
    for key, inner in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant):
            keys.add(str(key.value))
        elif isinstance(key, ast.Name) and key.id in CONSTANTS:
            keys.add(CONSTANTS[key.id])
        elif key is None and isinstance(inner, ast.Name):
            keys |= named.get(inner.id, set())
    return keys


def made() -> Iterator[Made]:
    for path in FILES:
        tree = ast.parse(path.read_text())
        named = _assigned(tree)
        for item in ast.walk(tree):
            if not (isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id == "Because"):
                continue
            arguments = [*item.args, *(word.value for word in item.keywords)]
            reason = arguments[0]
            if isinstance(reason, ast.Attribute) and isinstance(reason.value, ast.Name) and reason.value.id == "Reason":
                keys = _keys(arguments[1] if len(arguments) > 1 else None, named)
                where = f"{path.relative_to(ROOT)}:{item.lineno}"
                yield Made(where, Reason[reason.attr], None if keys is None else frozenset(keys))


MADE = sorted(made(), key=lambda item: item.where)


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)
    assert all(text and not text.endswith(".") for text in SENTENCES.values())


def test_values_are_stable_names() -> None:
    assert all(reason.value == reason.name.lower().replace("_", "-") for reason in Reason)


def test_the_search_finds_what_is_made() -> None:
    assert len(MADE) > 60


@pytest.mark.parametrize("item", [pytest.param(item, id=item.where) for item in MADE if item.keys is not None])
def test_a_because_supplies_what_its_sentence_quotes(item: Made) -> None:
    assert item.keys is not None
    assert fields(item.reason) <= item.keys, f"{item.reason}: {SENTENCES[item.reason]!r} lacks numbers"


@pytest.mark.parametrize("reason", list(Reason))
def test_a_sentence_with_all_its_numbers_has_no_gap(reason: Reason) -> None:
    told = sentence(Because(reason, {name: f"<{name}>" for name in fields(reason)}))
    assert "?" not in told
    assert all(f"<{name}>" in told for name in fields(reason))


@pytest.mark.parametrize(
    ("value", "told"),
    [(20.0, "20"), (20.456, "20.46"), (7, "7"), ("many", "many")],
    ids=["a whole float", "a fraction is rounded", "an int", "a name"],
)
def test_numbers_read_like_numbers(value: float | str, told: str) -> None:
    assert sentence(Because(Reason.HELD, {"held_gpus": value})) == f"{told} GPUs are held by pods"


def test_a_number_that_is_missing_never_fails() -> None:
    assert sentence(Because(Reason.HELD)) == "? GPUs are held by pods"
