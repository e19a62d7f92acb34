"""The one place where records and the core's objects become each other; pure, fast, and total.

Whatever the bytes are, reading gives what they say or a :class:`WireError`. Nothing is sent here, nothing
decided.
"""

from rebalancer.adapters.translate.decode import cluster_of, decode, read
from rebalancer.adapters.translate.encode import (
    encode_alert,
    encode_barrier,
    encode_deleted,
    encode_demand,
    encode_fact,
    encode_forecast,
    encode_heartbeat,
    encode_instruction,
    encode_journal,
    encode_loan,
    encode_outcome,
    encode_plan,
    encode_pool,
    encode_request,
    encode_sample,
    encode_snapshot,
    encode_term,
    encode_tombstone,
    encode_usage,
    encode_verdict,
    encode_workload,
)
from rebalancer.adapters.translate.letters import dead_letter
from rebalancer.adapters.translate.messages import (
    Barrier,
    Content,
    JournalEntry,
    Received,
    SnapshotRequested,
    TermRecord,
    Tombstone,
    WireError,
)
from rebalancer.adapters.translate.stimuli import decode_stimulus, encode_stimulus
from rebalancer.wire.envelope import Record, cluster_partition, key_partition

__all__ = [
    "Barrier",
    "Content",
    "JournalEntry",
    "Received",
    "Record",
    "SnapshotRequested",
    "TermRecord",
    "Tombstone",
    "WireError",
    "cluster_of",
    "cluster_partition",
    "dead_letter",
    "decode",
    "decode_stimulus",
    "encode_alert",
    "encode_barrier",
    "encode_deleted",
    "encode_demand",
    "encode_fact",
    "encode_forecast",
    "encode_heartbeat",
    "encode_instruction",
    "encode_journal",
    "encode_loan",
    "encode_outcome",
    "encode_plan",
    "encode_pool",
    "encode_request",
    "encode_sample",
    "encode_snapshot",
    "encode_stimulus",
    "encode_term",
    "encode_tombstone",
    "encode_usage",
    "encode_verdict",
    "encode_workload",
    "key_partition",
    "read",
]
