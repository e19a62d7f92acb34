"""What every bridge shares: the message, strict JSON, and partial results.

A message may hold many samples or objects; one that cannot be read is rejected by its position and the others
stand. Encodings that are not text are named as such, not parsed by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import Rejected
from rebalancer.adapters.decode.errors import DecodeError, UnsupportedEncodingError
from rebalancer.adapters.decode.watch import Seen

Item: TypeAlias = Row | Seen | Rejected
"""One thing a message told; ``Rejected.line`` counts the message's parts from 1."""
SIZE_LIMIT = 16 * 1024 * 1024
"""Bytes; the fetch size of a consumer is smaller, so this only bounds what a test or a file may bring."""
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x00": "a schema registry's framing",
    b"Obj\x01": "an Avro file",
}


@dataclass(frozen=True, slots=True)
class Message:
    """A foreign record. Header names are lower case."""

    key: bytes | None
    value: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def parse_json(value: bytes, stage: str) -> Any:
    """Parse one JSON document.

    Raises:
        UnsupportedEncodingError: the bytes are protobuf, compressed or framed.
        DecodeError: they are no JSON.
    """
    if len(value) > SIZE_LIMIT:
        raise DecodeError(stage, f"{len(value)} bytes are more than {SIZE_LIMIT}")
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as broken:
        encoding = _encoding(value)
        if encoding:
            raise UnsupportedEncodingError(stage, f"unsupported encoding: {encoding}; send JSON") from broken
        raise DecodeError(stage, f"not JSON: {str(broken)[:120]}") from broken


def _encoding(value: bytes) -> str:
    """A protobuf message of OTLP begins with field 1, length-delimited: 0x0a (which JSON cannot, being blank)."""
    named = next((name for magic, name in _MAGIC.items() if value.startswith(magic)), "")
    text = value.lstrip(b" \t\r\n")
    if named or value[:1] != b"\n" or text[:1] in (b"{", b"["):
        return named
    return "protobuf (otlp_proto)"


def documents(value: bytes, stage: str) -> list[Any]:
    """One JSON document, a JSON array of them, or one a line.

    Raises:
        DecodeError: as :func:`parse_json`; a line that is no JSON spoils the message.
    """
    lines = [line for line in value.split(b"\n") if line.strip()]
    if len(lines) > 1 and all(line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}" for line in lines):
        return [parse_json(line, stage) for line in lines]
    parsed = parse_json(value, stage)
    return parsed if isinstance(parsed, list) else [parsed]


def each(parts: Iterable[Any], read: Callable[[Mapping[str, Any]], Iterable[Item]]) -> list[Item]:
    """Read every part; one that fails is rejected by its position."""
    found: list[Item] = []
    for number, part in enumerate(parts, start=1):
        if not isinstance(part, Mapping):
            found.append(Rejected(number, f"{type(part).__name__} is no object"))
            continue
        try:
            found.extend(read(part))
        except DecodeError as bad:
            found.append(Rejected(number, bad.reason))
    return found
