"""Safe reading of foreign JSON: what has the wrong shape is absent, never an exception.

Helpers return empty mappings, empty lists or "" so that a decoder reads like the object's own structure.
Nothing here knows a kind of object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.errors import DecodeError

TRUE_WORDS = frozenset({"true", "yes", "on", "1", "t", "y"})
FALSE_WORDS = frozenset({"false", "no", "off", "0", "f", "n"})
INT_LIMIT = 2**63


def mapping(value: object) -> Mapping[str, Any]:
    """The mapping itself, else an empty one."""
    # dict first: asking the abstract class is slow, and nearly everything is a dict
    return value if isinstance(value, (dict, Mapping)) else {}


def items(value: object) -> list[Mapping[str, Any]]:
    """The mappings in a list, else nothing."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text as it is, an int or bool as Kubernetes would spell it, else ""."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) and abs(value) < INT_LIMIT else ""


def texts(value: object) -> Mapping[str, str]:
    """A mapping of texts (labels, annotations); values that are YAML booleans or numbers are spelled out."""
    return {key: text(item) for key, item in mapping(value).items()}


def strings(value: object) -> tuple[str, ...]:
    """The texts in a list, else nothing."""
    return tuple(text(item) for item in value if text(item)) if isinstance(value, list) else ()


def whole(value: object) -> int | None:
    """An int, or a text that is one (some bridges quote numbers); None otherwise."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < INT_LIMIT:
        return int(value)
    plain = text(value).strip()
    digits = plain[1:] if plain[:1] in ("-", "+") else plain
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    number = int(plain)
    return number if abs(number) < INT_LIMIT else None


def truthy(value: object) -> bool:
    """Whether an annotation or label says yes, as text or as a YAML boolean."""
    return text(value).strip().lower() in TRUE_WORDS


def falsy(value: object) -> bool:
    """Whether an annotation or label says no; absence is not no."""
    return text(value).strip().lower() in FALSE_WORDS


def metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(raw.get("metadata"))


def labels_of(raw: Mapping[str, Any]) -> Mapping[str, str]:
    return texts(metadata(raw).get("labels"))


def annotations_of(raw: Mapping[str, Any]) -> Mapping[str, str]:
    return texts(metadata(raw).get("annotations"))


def required(value: object, stage: str, name: str) -> str:
    """A text that an object must have.

    Raises:
        DecodeError: it has none.
    """
    found = text(value)
    if not found:
        raise DecodeError(stage, f"{name} is missing")
    return found


def condition(raw: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """A condition of the object's status by type; empty when there is none."""
    listed = items(mapping(raw.get("status")).get("conditions"))
    return next((item for item in listed if item.get("type") == kind), {})


def first(source: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """The first of these keys that holds something."""
    return next((source[key] for key in keys if source.get(key)), "")
