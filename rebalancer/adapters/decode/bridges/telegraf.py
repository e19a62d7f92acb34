"""Telegraf's serialisers: JSON of metric_version 1 and 2, batches, and influx line protocol.

Version 1 puts the metric in ``name`` and its value in ``gauge`` or ``counter``; version 2 puts the metric in the
field's name. ``host`` and ``url`` are Telegraf's own and never the node; the url's host is where it scraped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from rebalancer.adapters.decode.bridges.envelope import Item, Message, documents, each
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import Rejected
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.moments import epoch, moment
from rebalancer.adapters.decode.objects import mapping, texts

STAGE = "telegraf"
VALUE_FIELDS = ("gauge", "counter", "value", "untyped")
OWN_TAGS = frozenset({"host", "url", "address"})


def decode_json(message: Message) -> list[Item]:
    """Rows of one message.

    Raises:
        DecodeError: no JSON at all.
    """
    parts: list[Any] = []
    for document in documents(message.value, STAGE):
        batch = document.get("metrics") if isinstance(document, Mapping) else None
        parts.extend(batch if isinstance(batch, list) else [document])
    return each(parts, _metric)


def _metric(raw: Mapping[str, Any]) -> list[Item]:
    name, fields = raw.get("name"), mapping(raw.get("fields"))
    if not isinstance(name, str) or not fields:
        raise DecodeError(STAGE, "a metric needs a name and fields")
    return list(_rows(name, texts(raw.get("tags")), fields, raw.get("timestamp")))


def _rows(name: str, tags: Mapping[str, str], fields: Mapping[str, Any], stamp: object) -> Iterator[Row]:
    labels = {key: value for key, value in tags.items() if key not in OWN_TAGS}
    if tags.get("url") and "instance" not in labels:
        labels["instance"] = _netloc(tags["url"])
    at = epoch(stamp) or moment(stamp)
    for field, value in fields.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield Row(name if field in VALUE_FIELDS else field, labels, _float(value), at)


def _float(value: float) -> float:
    """JSON integers have no bound, floats do: what is beyond them is no load anyway."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def decode_influx(message: Message) -> list[Item]:
    """Rows of one message of line protocol, a metric a line; a bad line costs itself only.

    Raises:
        DecodeError: the message is no text.
    """
    try:
        text = message.value.decode("utf-8")
    except UnicodeDecodeError as broken:
        raise DecodeError(STAGE, "line protocol must be UTF-8") from broken
    found: list[Item] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            found.extend(_line(number, stripped))
    return found


_PART = r"(?:\\.|[^,= \\])+"
_SERIES = re.compile(rf"((?:\\.|[^, \\])+)((?:,{_PART}={_PART})*) +", re.DOTALL)
_TAG = re.compile(rf",({_PART})=({_PART})", re.DOTALL)
_FIELD = re.compile(rf"({_PART})=(\"(?:\\.|[^\"\\])*\"|[^, ]+)(?:,|(?= |$))", re.DOTALL)
_STAMP = re.compile(r" +(-?\d{1,20})|", re.ASCII)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[iu]?", re.ASCII)
_UNESCAPE = re.compile(r"\\([,= \\\"])")


def _line(number: int, line: str) -> list[Item]:
    series = _SERIES.match(line)
    if series is None:
        return [Rejected(number, "no measurement and fields")]
    tags = {_plain(tag[1]): _plain(tag[2]) for tag in _TAG.finditer(series[2])}
    fields: dict[str, float] = {}
    place = series.end()
    while (field := _FIELD.match(line, place)) is not None:
        place = field.end()
        value = _NUMBER.fullmatch(field[2])
        if value is not None:
            fields[_plain(field[1])] = float(value[1])
    stamp = _STAMP.fullmatch(line, place)
    if stamp is None or place == series.end():
        return [Rejected(number, "fields or timestamp unreadable")]
    return list(_rows(_plain(series[1]), tags, fields, int(stamp[1]) if stamp[1] else None))


def _plain(text: str) -> str:
    return _UNESCAPE.sub(r"\1", text)
