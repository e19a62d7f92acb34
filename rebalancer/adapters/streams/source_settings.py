"""What a configured source is: a foreign topic, the format of its messages, and the cluster that they are about.

Formats are said, never guessed. Our own topics cannot be sources: what we wrote would come back as somebody's word.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rebalancer.adapters.decode.foreign import FORMATS
from rebalancer.wire.topics import topics

DEAD = ".dlq"


class SourceSettings(BaseModel):
    """One foreign topic on the brokers that we use ourselves; it may have any number of partitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
    format: str
    """How its messages are written; one of the formats of ``adapters/decode/foreign.py``."""
    cluster: Annotated[str, Field(max_length=253)] = ""
    """Whose objects or GPUs they are; "" is the installation's own cluster."""

    @field_validator("topic")
    @classmethod
    def _foreign(cls, topic: str) -> str:
        if topic.removesuffix(DEAD) in {ours.name for ours in topics()}:
            raise ValueError(f"{topic} is a topic of ours")
        return topic

    @field_validator("format")
    @classmethod
    def _known(cls, spelled: str) -> str:
        if spelled not in FORMATS:
            raise ValueError(f"{spelled[:40]!r} is no format; there are {', '.join(FORMATS)}")
        return spelled
