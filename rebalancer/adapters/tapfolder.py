"""A folder that a run has tapped: one JSON-lines file a topic, read back as records.

Each line is `{topic, partition, offset, key, headers, value}`; `value` is the record's text, its JSON, or
null. Lines that are cut off (the run was killed while writing) are passed over. Nothing is written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from pathlib import Path
from typing import Any

import orjson

from rebalancer.adapters.store import TOPICS, RawRecord

POLL = 0.5  # seconds between two looks at a folder that is followed


class NoTap(FileNotFoundError):  # noqa: N818 - says what is missing
    """The folder holds no tapped topics."""


def read_folder(folder: Path, topics: Collection[str] = TOPICS) -> Iterator[RawRecord]:
    """All records of the wanted topics, topic by topic, in the order written.

    Raises:
        NoTap: there is no such folder, or none of its files is a tapped topic.
    """
    files = tap_files(folder)
    for path in files:
        if path.name.removesuffix(path.suffix) in topics:
            with path.open("rb") as lines:
                yield from filter(None, map(parse_line, lines))


def tap_files(folder: Path) -> list[Path]:
    """The folder's topic files by name; raises NoTap if there is none."""
    found = sorted(folder.glob("gpu.*.jsonl")) if folder.is_dir() else []
    if not found:
        raise NoTap(f"{folder} holds no tapped topics (gpu.*.jsonl); `rebalancer demo --out DIR` writes them")
    return found


async def follow_folder(folder: Path, topics: Collection[str] = TOPICS) -> AsyncGenerator[RawRecord, None]:
    """What is appended from now on, until the caller stops asking."""
    places = {path: path.stat().st_size for path in tap_files(folder)}
    while True:
        for path in tap_files(folder):
            if path.name.removesuffix(path.suffix) not in topics:
                continue
            with path.open("rb") as lines:
                lines.seek(places.get(path, 0))
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    places[path] = places.get(path, 0) + len(line)
                    record = parse_line(line)
                    if record is not None:
                        yield record
        await asyncio.sleep(POLL)


def parse_line(line: bytes) -> RawRecord | None:
    """One line as a record; None if it is not one."""
    try:
        entry: Any = orjson.loads(line)
        value = entry["value"]
        raw = value.encode() if isinstance(value, str) else None if value is None else orjson.dumps(value)
        headers = entry.get("headers") or ()
        pairs = headers.items() if isinstance(headers, dict) else headers
        told = [(str(name), str(text).encode()) for name, text in pairs]
        return RawRecord(str(entry["topic"]), str(entry["key"] or "").encode(), raw, told)
    except (ValueError, KeyError, TypeError):
        return None
