"""prometheus-kafka-adapter: JSON and "avro-json", which is plain JSON text too.

Values are texts, times are cut to seconds and any order may arrive, so two samples of one second cannot be told
apart: the assembler keeps the larger. ``NaN`` is remote write's mark that a series ended; it stays NaN here and
becomes "not reported", never zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rebalancer.adapters.decode.bridges.envelope import Item, Message, documents, each
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.moments import epoch, moment
from rebalancer.adapters.decode.objects import text, texts

STAGE = "prometheus-kafka-adapter"
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE)


def decode(message: Message) -> list[Item]:
    """Rows of one message.

    Raises:
        DecodeError: no JSON at all.
    """
    return each(documents(message.value, STAGE), _sample)


def _sample(raw: Mapping[str, Any]) -> list[Item]:
    labels = texts(raw.get("labels"))
    name = text(raw.get("name")) or labels.get("__name__", "")
    if not name:
        raise DecodeError(STAGE, "a sample needs a name")
    stamp = raw.get("timestamp")
    return [Row(name, labels, number(raw.get("value"), STAGE), moment(stamp) or epoch(stamp))]


def number(value: object, stage: str) -> float:
    """A number or a text that is one, ``NaN`` and infinities included.

    Raises:
        DecodeError: neither.
    """
    if isinstance(value, float):
        return value
    spelled = "" if isinstance(value, bool) else text(value).strip()
    if _NUMBER.fullmatch(spelled) is None:
        raise DecodeError(stage, f"{spelled[:40]!r} is no value")
    return float(spelled)
