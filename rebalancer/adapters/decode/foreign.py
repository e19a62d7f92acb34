"""The one entry for foreign messages: a configured format, a record, and what it told.

Formats are configured per topic, never guessed from content. What comes out is re-keyed and published by the
caller; nothing is published or fetched here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rebalancer.adapters.decode.bridges import knative, objects_json, otlp, prometheus_adapter, telegraf, vector
from rebalancer.adapters.decode.bridges.envelope import Item, Message
from rebalancer.adapters.decode.dcgm_text import Rejected, decode_page
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.kubernetes import Reading

_DECODERS: Mapping[str, Callable[[Message, Reading], list[Item]]] = {
    "telegraf-json": lambda message, _: telegraf.decode_json(message),
    "telegraf-influx": lambda message, _: telegraf.decode_influx(message),
    "vector-json": lambda message, _: vector.decode(message),
    "prometheus-kafka-adapter": lambda message, _: prometheus_adapter.decode(message),
    "otlp-json": otlp.decode,
    "knative": knative.decode,
    "kubernetes-json": objects_json.decode,
    "argo-events": objects_json.decode,
    "dcgm-text": lambda message, _: _page(message),
}
FORMATS = tuple(_DECODERS)
OBJECT_FORMATS = frozenset({"otlp-json", "knative", "kubernetes-json", "argo-events"})
"""Formats in which a record without a value says that an object may be gone."""


def decode_foreign(
    format: str,  # noqa: A002 - the word that settings use
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | str] = (),
    reading: Reading | None = None,
) -> list[Item]:
    """Rows, sightings and rejected parts of one record; empty when no decision needs it.

    Raises:
        UnsupportedEncodingError: the bytes are in an encoding that is not read here.
        DecodeError: the format is not one of :data:`FORMATS`, or nothing in the record could be read.
    """
    decoder = _DECODERS.get(format)
    if decoder is None:
        raise DecodeError("foreign", f"{format[:40]!r} is no format; there are {', '.join(FORMATS)}")
    if value is None:
        if format in OBJECT_FORMATS:
            return objects_json.tombstone(key)
        raise DecodeError(format, "a record without a value")
    if not value.strip():
        raise DecodeError(format, "an empty value")
    found = decoder(Message(key, value, _headers(headers)), reading or Reading())
    bad = [item for item in found if isinstance(item, Rejected)]
    if bad and len(bad) == len(found):
        raise DecodeError(format, f"part {bad[0].line}: {bad[0].why}")
    return found


def _page(message: Message) -> list[Item]:
    page = decode_page(message.value)
    return [*page.rows, *page.rejected]


def _headers(headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | str]) -> dict[str, str]:
    """Lower-case names to texts; of repeated headers the first counts."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, str] = {}
    for name, value in pairs:
        spelled = value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
        found.setdefault(str(name).lower(), spelled)
    return found
