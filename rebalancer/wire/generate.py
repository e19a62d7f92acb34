"""What is generated under ``topics/``: JSON Schemas, the AsyncAPI document, examples. Drift fails the tests.

``python -m rebalancer.wire.generate`` writes the files of a checkout; :func:`render` only makes their
texts. The schemas are open on purpose: fields may be added, so none forbids what it does not know.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic.json_schema import models_json_schema

from rebalancer.wire import v1
from rebalancer.wire.envelope import Said, seal
from rebalancer.wire.examples import AT, CLUSTER, EXAMPLES, KEYS
from rebalancer.wire.topics import Topic, topics

DIALECT = "https://json-schema.org/draft/2020-12/schema"
RECEIVED = (v1.CONTROL, v1.SAMPLE_DEMAND, v1.SAMPLE_DEVICE)
"""Topics that others may write to; all else is ours to send."""


def render() -> dict[str, str]:
    """Path below ``topics/`` to text, for every generated file."""
    own = [topic for topic in topics() if topic.dead_letters_of is None]
    files = {"asyncapi.yaml": yaml.safe_dump(asyncapi(own), sort_keys=False, width=110, allow_unicode=True)}
    for topic in own:
        files[f"schemas/v1/{topic.name}.json"] = _json(schema(topic))
        files[f"examples/{topic.name}.json"] = _json([example(topic.name, kind) for kind in v1.kinds_on(topic.name)])
    return files


def schema(topic: Topic) -> dict[str, Any]:
    """JSON Schema of the records' bodies on a topic: one of its kinds."""
    kinds = v1.kinds_on(topic.name)
    models = [(v1.RECORD_MODELS[kind.name], "validation") for kind in kinds]
    _, found = models_json_schema(models)  # type: ignore[arg-type]  # the mode is a literal, the list forgets it
    return {
        "$schema": DIALECT,
        "title": topic.name,
        "description": topic.what,
        "oneOf": [{"$ref": f"#/$defs/{_record_name(kind)}"} for kind in kinds],
        **found,
    }


def example(topic: str, kind: v1.Kind) -> dict[str, Any]:
    """A whole record as JSON: key, headers, value; raises if the example is not what the model says."""
    data = kind.model.model_validate_json(orjson.dumps(EXAMPLES[kind.name])).model_dump_json().encode()
    at = datetime.fromisoformat(AT)
    record = seal(topic, _key(kind), kind.type, Said(CLUSTER, at, data))
    body = v1.READERS[kind.type].validate_json(record.value or b"")
    value = orjson.loads(record.value or b"")
    value["id"] = body.id
    return {
        "key": record.key.decode(),
        "headers": {name: text.decode() for name, text in record.headers},
        "value": value,
    }


def _key(kind: v1.Kind) -> str:
    data = EXAMPLES[kind.name]
    return KEYS.get(kind.name) or str(data.get("uid") or data["pool"])


def _record_name(kind: v1.Kind) -> str:
    return v1.RECORD_MODELS[kind.name].__name__


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def asyncapi(own: list[Topic]) -> dict[str, Any]:
    """The AsyncAPI 3.0 document: a channel a topic, its messages, who sends and who receives."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "GPU pool rebalancer: topics",
            "version": "v1",
            "description": "Bodies are JSON; identity is in CloudEvents headers and again in the body.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in own},
        "operations": {_operation_name(topic.name): _operation(topic.name) for topic in own},
        "components": {"schemas": {"Headers": _headers()}},
    }


def _channel(topic: Topic) -> dict[str, Any]:
    config = {"cleanup.policy": [topic.cleanup]}
    if topic.keep_ms is not None:
        config["retention.ms"] = topic.keep_ms  # type: ignore[assignment]  # AsyncAPI wants a number here
    return {
        "address": topic.name,
        "description": topic.what,
        "messages": {_record_name(kind): _message(topic, kind) for kind in v1.kinds_on(topic.name)},
        "bindings": {
            "kafka": {"partitions": topic.partitions, "topicConfiguration": config, "bindingVersion": "0.5.0"}
        },
    }


def _message(topic: Topic, kind: v1.Kind) -> dict[str, Any]:
    return {
        "name": kind.type,
        "summary": (kind.model.__doc__ or "").strip().splitlines()[0],
        "headers": {"$ref": "#/components/schemas/Headers"},
        "payload": {"$ref": f"./schemas/v1/{topic.name}.json#/$defs/{_record_name(kind)}"},
        "bindings": {"kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": "0.5.0"}},
    }


def _operation_name(topic: str) -> str:
    return f"{_action(topic)} {topic}"


def _action(topic: str) -> str:
    return "receive" if topic in RECEIVED else "send"


def _operation(topic: str) -> dict[str, Any]:
    return {"action": _action(topic), "channel": {"$ref": f"#/channels/{topic}"}}


def _headers() -> dict[str, Any]:
    kind = v1.KINDS[0]
    names = example(kind.topics[0], kind)["headers"]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def main(root: Path) -> int:
    """Write what differs below ``root``; returns how many files were written."""
    written = 0
    for name, text in render().items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written += 1
    return written


if __name__ == "__main__":
    count = main(Path(__file__).parents[2] / "topics")
    sys.stdout.write(f"{count} files written\n")
