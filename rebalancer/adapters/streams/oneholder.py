"""Partition assignment for a role that must not be shared: one member of the group holds everything.

The others wait and take over when it goes. It is Kafka's own group protocol; nothing else is locked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata


class OneHolder(AbstractPartitionAssignor):
    """All partitions of all topics to the first member by id."""

    name = "gpu-rebalancer-one-holder"
    version = 0

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        """Who gets what."""
        wanted = sorted({topic for member in members.values() for topic in member.subscription})
        places = [(topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in wanted]
        everything = [(topic, partitions) for topic, partitions in places if partitions]
        holder = min(members)
        return {
            member: ConsumerProtocolMemberAssignment(cls.version, everything if member == holder else [], b"")
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> Any:
        """What a member tells about itself."""
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        """Nothing is remembered between assignments."""
