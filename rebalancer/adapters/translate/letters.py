"""Dead letters: a record that could not be read, kept as it came, beside its topic.

Key and value are the very bytes received; headers added say where it came from and why it is here.
"""

from __future__ import annotations

from rebalancer.adapters.translate.messages import WireError
from rebalancer.wire.envelope import Record

MAX_REASON = 1024
"""Bytes of the error kept: a poison record must not make a header that the broker refuses."""


def dead_letter(came: Record, partition: int, offset: int, error: WireError) -> Record:
    """The record for ``<topic>.dlq`` of one that came from ``partition`` at ``offset``."""
    added = [
        ("dlq_topic", came.topic.encode()),
        ("dlq_partition", str(partition).encode()),
        ("dlq_offset", str(offset).encode()),
        ("dlq_stage", error.stage.encode()),
        ("dlq_error", error.reason.encode(errors="replace")[:MAX_REASON]),
    ]
    return Record(f"{came.topic}.dlq", came.key, came.value, [*came.headers, *added])
