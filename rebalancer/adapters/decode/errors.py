"""The only exceptions that leave this room, each with the stage and the reason that a dead letter carries."""

from __future__ import annotations


class DecodeError(ValueError):
    """Something foreign could not be read. ``stage`` names the decoder, ``reason`` is one sentence."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


class SourceFailedError(DecodeError):
    """A source answered with something that is no report at all: its nodes become unknown, not idle."""


class UnsupportedEncodingError(DecodeError):
    """The bytes are in an encoding that is deliberately not read here (protobuf, Avro with a schema id)."""
