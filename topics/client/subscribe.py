"""A subscriber that knows nothing but this repository's `topics` folder: follows, validates, rebuilds the invoice.

    python topics/client/subscribe.py --kafka HOST:PORT[,...] [--cluster NAME]
    python topics/client/subscribe.py --from DIR        (a folder tapped by `rebalancer demo --out DIR`)

Needs aiokafka (for --kafka), jsonschema and PyYAML. Reads the topics to their end as it is now, judges every record
by its schema, adds up from plans, outcomes, loans, verdicts and facts what each pool and loan used, and compares that
with the usage records. Exit codes: 0 all agree, 1 they do not, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contract import Contract, Message
from history import History
from invoice import differences, told

SHOWN = 20
"""Faults and differences told at most, each."""


def from_folder(folder: Path, topics: list[str]) -> Iterator[Message]:
    """Records of a tapped folder; a line that was cut off is passed over."""
    for topic in topics:
        path = folder / f"{topic}.jsonl"
        for line in path.read_text().splitlines(keepends=True) if path.is_file() else ():
            if line.endswith("\n"):
                row = json.loads(line)
                names = ("topic", "partition", "offset", "key")
                yield Message(*(row[name] for name in names), dict(row["headers"]), row["value"])


async def from_kafka(bootstrap: str, topics: list[str]) -> list[Message]:
    """Everything that lies on the topics now."""
    from aiokafka import AIOKafkaConsumer, TopicPartition  # noqa: PLC0415 - a tapped folder needs no client

    found: list[Message] = []
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    try:
        places = [TopicPartition(topic, part) for topic in topics for part in consumer.partitions_for_topic(topic)]
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += map(_message, records)
    finally:
        await consumer.stop()
    return found


def _message(record: Any) -> Message:
    headers = {name: (raw or b"").decode() for name, raw in record.headers}
    value = json.loads(record.value) if record.value is not None else None
    return Message(record.topic, record.partition, record.offset, (record.key or b"").decode(), headers, value)


def report(contract: Contract, messages: list[Message]) -> dict[str, Any]:
    """What was read, what is wrong with it, the invoice in force, and where it differs from what history says."""
    judged = [(message, contract.faults(message)) for message in messages]
    faults = [fault for _, found in judged for fault in found]
    history = History(message for message, found in judged if not found)
    lines = [{**data, "pool": line.pool} for line, data in sorted(told(history).items())]
    return {
        "records": dict(sorted(Counter(message.kind for message in messages).items())),
        "faults": faults[:SHOWN],
        "lines": lines,
        "differences": differences(history)[:SHOWN],
    }


def main() -> int:
    """Read, judge, rebuild, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--kafka", metavar="HOST:PORT")
    where.add_argument("--from", dest="folder", type=Path, metavar="DIR")
    parser.add_argument("--cluster", default="", help="only this one's records")
    asked = parser.parse_args()
    contract = Contract()
    if asked.kafka:
        messages = asyncio.run(from_kafka(asked.kafka, contract.followed))
    else:
        messages = list(from_folder(asked.folder, contract.followed))
    mine = [one for one in messages if asked.cluster in ("", one.headers.get("ce_cluster"))]
    found = report(contract, mine)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 1 if found["faults"] or found["differences"] or not mine else 0


if __name__ == "__main__":
    sys.exit(main())
