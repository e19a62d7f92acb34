"""The list of topics, read from ``topics/topics.yaml``: names, keys, policies, dead-letter topics.

In a checkout the file lies beside the package, in an installed wheel inside of it. What a broker has is not
known here; nothing is created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, model_validator

_UNITS = {"h": 3_600_000, "d": 86_400_000}


class Topic(BaseModel):
    """One topic. ``keep`` None: compacted, kept for ever; ``settle``: how long compaction leaves a record.

    ``dead_letters_of``: the topic it serves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    key: str
    partition_by: Literal["cluster", "key", "as came"]
    cleanup: Literal["compact", "delete"]
    what: str
    keep: str | None = None
    settle: str | None = None
    partitions: int
    max_bytes: int | None = None
    dead_letters_of: str | None = None

    @model_validator(mode="after")
    def _keeps_what_it_deletes(self) -> Topic:
        if (self.cleanup == "delete") != (self.keep is not None):
            raise ValueError(f"{self.name}: `keep` belongs to cleanup: delete, and only there")
        if self.settle is not None and self.cleanup != "compact":
            raise ValueError(f"{self.name}: `settle` belongs to cleanup: compact")
        return self

    @property
    def keep_ms(self) -> int | None:
        """Retention in milliseconds."""
        return None if self.keep is None else _milliseconds(self.keep)

    @property
    def config(self) -> Mapping[str, str]:
        """Kafka's own topic settings. Time of append: event time is in the body and Kafka's never decides."""
        found = {"cleanup.policy": self.cleanup, "message.timestamp.type": "LogAppendTime"}
        if self.keep_ms is not None:
            found["retention.ms"] = str(self.keep_ms)
        if self.settle is not None:
            found["min.compaction.lag.ms"] = str(_milliseconds(self.settle))
        if self.max_bytes is not None:
            found["max.message.bytes"] = str(self.max_bytes)
        return found


def _milliseconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)([hd])", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time to keep, such as 24h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def folder() -> Traversable:
    """The ``topics`` folder: inside the installed package, else beside it in a checkout."""
    inside = resources.files("rebalancer") / "topics"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "topics"


@cache
def topics() -> tuple[Topic, ...]:
    """All topics in the order of the file, each dead-letter topic after all others."""
    return parse((folder() / "topics.yaml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Topic, ...]:
    """Topics of a list's text; raises ValueError for anything that is not such a list."""
    listed = yaml.safe_load(text)
    own = tuple(Topic.model_validate({**listed["defaults"], **row}) for row in listed["topics"])
    names = [topic.name for topic in own]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"listed twice: {', '.join(twice)}")
    return (*own, *_dead_letters(own, listed["dead_letters"]))


def _dead_letters(own: tuple[Topic, ...], how: Mapping[str, str]) -> Iterator[Topic]:
    for topic in own:
        yield Topic(
            name=f"{topic.name}{how['suffix']}",
            key="as came",
            partition_by="as came",
            cleanup="delete",
            keep=how["keep"],
            partitions=topic.partitions,
            max_bytes=topic.max_bytes,
            what=f"records of {topic.name} that could not be read: bytes untouched, the rest in headers",
            dead_letters_of=topic.name,
        )
