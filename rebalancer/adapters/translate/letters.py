"""Dead letters: a record that could not be read, kept as it came, beside its topic.

Key and value are the very bytes received; headers added say where it came from and why it is here.
"""

from __future__ import annotations

from rebalancer.adapters.translate.messages import WireError
from rebalancer.wire.envelope import Headers, Record

MAX_REASON = 1024
"""Bytes of the error kept: a poison record must not make a header that the broker refuses."""


def dead_letter(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Headers, error: WireError
) -> Record:
    """The record for ``<topic>.dlq``. A missing key stays empty, a tombstone stays one."""
    added = [
        ("dlq_topic", topic.encode()),
        ("dlq_partition", str(partition).encode()),
        ("dlq_offset", str(offset).encode()),
        ("dlq_stage", error.stage.encode()),
        ("dlq_error", error.reason.encode(errors="replace")[:MAX_REASON]),
    ]
    return Record(f"{topic}.dlq", key or b"", value, [*headers, *added])
