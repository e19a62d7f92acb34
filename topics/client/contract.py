"""The contract as a subscriber has it: the list of topics, the AsyncAPI document, the schemas. Judges single records.

Reads only what lies in the folder above this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from jsonschema import Draft202012Validator

TOPICS = Path(__file__).resolve().parents[1]
INTERNAL = ("gpu.journal.v1",)
"""Not part of the promise, so not followed."""
SAME = {"id": "ce_id", "time": "ce_time", "cluster": "ce_cluster", "type": "ce_type"}
"""What headers and body both say."""


class Message(NamedTuple):
    """One record: where it lay, and what it says; ``value`` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    key: str
    headers: Mapping[str, str]
    value: dict[str, Any] | None

    @property
    def kind(self) -> str:
        """The last words of its type, such as ``usage.loan``; empty if it says none."""
        told = str((self.value or {}).get("type") or self.headers.get("ce_type", ""))
        return told.removeprefix("io.gpu-rebalancer.").removesuffix(".v1")


class Contract:
    """What may lie on which topic."""

    def __init__(self, folder: Path = TOPICS) -> None:
        """Read the folder once; a validator a type of record."""
        listed = yaml.safe_load((folder / "topics.yaml").read_text())["topics"]
        document = yaml.safe_load((folder / "asyncapi.yaml").read_text())
        sent = {
            item["channel"]["$ref"].removeprefix("#/channels/")
            for item in document["operations"].values()
            if item["action"] == "send"
        }
        self.followed = [row["name"] for row in listed if row["name"] in sent and row["name"] not in INTERNAL]
        self._validators: dict[tuple[str, str], Draft202012Validator] = {}
        self._headers = Draft202012Validator(document["components"]["schemas"]["Headers"])
        for topic in self.followed:
            schema = json.loads((folder / "schemas" / "v1" / f"{topic}.json").read_text())
            for message in document["channels"][topic]["messages"].values():
                whole = {"$ref": "#" + message["payload"]["$ref"].partition("#")[2], "$defs": schema["$defs"]}
                self._validators[topic, message["name"]] = Draft202012Validator(whole)

    def faults(self, message: Message) -> list[str]:
        """What is wrong with a record; empty if nothing is."""
        where = f"{message.topic}/{message.partition}@{message.offset}"
        found = [f"{where} headers: {error.message}" for error in self._headers.iter_errors(dict(message.headers))]
        if message.value is None:
            return found
        validator = self._validators.get((message.topic, str(message.value.get("type"))))
        if validator is None:
            return [*found, f"{where}: type {message.value.get('type')!r} does not belong there"]
        found += [f"{where} {error.json_path}: {error.message}" for error in validator.iter_errors(message.value)]
        told = {name: message.headers.get(header) for name, header in SAME.items() if header in message.headers}
        return found + [f"{where}: {name} differs" for name, text in told.items() if message.value.get(name) != text]
