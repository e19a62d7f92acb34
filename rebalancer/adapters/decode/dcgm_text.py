"""Exporter text pages: Prometheus text and OpenMetrics, as exporters really write them.

The exporter renders labels without escaping, pages arrive with CRLF, with timestamps in seconds or
milliseconds, with exemplars; one bad line must cost one line. An error page is no page at all. The parser of
prometheus-client gives up a whole page at the first bad line, hence ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rebalancer.adapters.decode.dcgm_rows import Row, is_dcgm
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.adapters.decode.moments import epoch

STAGE = "dcgm-text"
LINE_LIMIT = 64 * 1024
SEEN_LIMIT = 4096
"""Label texts remembered within one page."""
UNREADABLE = "labels or value unreadable"
REJECTED_LIMIT = 100
"""Rejected lines that are listed; all are counted."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that could not be read; the first line is 1."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class DcgmPage:
    """What a page said. ``skipped`` counts what was left out on purpose, by kind."""

    rows: tuple[Row, ...]
    rejected: tuple[Rejected, ...] = ()
    rejected_count: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


def decode_page(body: bytes, status: int = 200) -> DcgmPage:
    """Read one page.

    Raises:
        SourceFailedError: the answer was an error, or holds no DCGM sample at all (which is not "no load").
    """
    if not 200 <= status < 300:
        raise SourceFailedError(STAGE, f"the exporter answered {status}")
    if body.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        raise SourceFailedError(STAGE, "the page is compressed")
    rows: list[Row] = []
    rejected: list[Rejected] = []
    others = 0
    seen: dict[str, Mapping[str, str]] = {}
    for number, text in _lines(body):
        row = _row(number, text, seen)
        if isinstance(row, Rejected):
            rejected.append(row)
        elif is_dcgm(row.name):
            rows.append(row)
        else:
            others += 1
    if not rows:
        raise SourceFailedError(STAGE, f"no DCGM sample in {len(body)} bytes, {len(rejected)} lines unreadable")
    return DcgmPage(tuple(rows), tuple(rejected[:REJECTED_LIMIT]), len(rejected), {"other-metric": others})


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that hold something; comments, blank lines and ``# EOF`` are left out."""
    for number, line in enumerate(body.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            yield number, text


_NAME = r"[A-Za-z_:][A-Za-z0-9_:.\-]*"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf(?:inity)?|[Nn]a[Nn]|NAN|INF)"
_TAIL = rf"(?P<value>{_NUMBER})(?:\s+(?P<at>{_NUMBER}))?(?:\s*\#.*)?"
_BARE = re.compile(rf"(?P<name>{_NAME})\s+{_TAIL}", re.ASCII)
_HEAD = re.compile(rf"(?P<name>{_NAME})?\s*\{{", re.ASCII)
_AFTER = re.compile(rf"\s*{_TAIL}", re.ASCII)
_LABEL = re.compile(rf"\s*(?P<key>{_NAME}|{_QUOTED})\s*=\s*(?P<value>{_QUOTED})\s*(?P<end>,|(?=\}}))", re.ASCII)
_QUOTED_NAME = re.compile(rf"\s*(?P<name>{_QUOTED})\s*(?:,|(?=\}}))", re.ASCII)
_LABEL_START = re.compile(rf"\s*(?P<key>{_NAME})\s*=\s*\"", re.ASCII)
_VALUE_END = re.compile(rf"\"(?=\s*(?:,\s*(?:{_NAME}\s*=\s*\"|\}})|\}}\s*{_TAIL}$))", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}


def _row(number: int, line: bytes, seen: dict[str, Mapping[str, str]]) -> Row | Rejected:
    if len(line) > LINE_LIMIT:
        return Rejected(number, f"longer than {LINE_LIMIT} bytes")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return Rejected(number, "not UTF-8")
    bare = _BARE.fullmatch(text)
    if bare is not None:
        return _made(number, bare["name"], {}, bare)
    head = _HEAD.match(text)
    if head is None:
        return Rejected(number, "no metric name")
    known = _repeated(number, text, head, seen)
    if known is not None:
        return known
    row = _strict(number, text, head)
    # without an exemplar the last brace is the one that closes the labels
    if row is not None and row.labels and "#" not in text and len(seen) < SEEN_LIMIT:
        seen[_label_text(text, head)[0]] = row.labels
    return row or _lenient(number, text, head)


def _label_text(text: str, head: re.Match[str]) -> tuple[str, str]:
    labels, _, tail = text[head.end() :].rpartition("}")
    return labels, tail


def _repeated(number: int, text: str, head: re.Match[str], seen: Mapping[str, Mapping[str, str]]) -> Row | None:
    """A GPU's labels are the same text for every metric: what was read once is not read again."""
    spelled, rest = _label_text(text, head)
    labels = seen.get(spelled)
    tail = _AFTER.fullmatch(rest) if labels is not None else None
    return (
        _made(number, head["name"], labels, tail) if tail is not None and labels is not None and head["name"] else None
    )


def _strict(number: int, text: str, head: re.Match[str]) -> Row | None:
    """The line by the format's own grammar, escapes included; None when it does not follow it."""
    name, place = head["name"] or "", head.end()
    labels: dict[str, str] = {}
    quoted = _QUOTED_NAME.match(text, place) if name == "" else None
    if quoted is not None:
        name, place = _unquoted(quoted["name"]), quoted.end()
    while (label := _LABEL.match(text, place)) is not None:
        labels.setdefault(_unquoted(label["key"]), _unquoted(label["value"]))
        place = label.end()
    return _closed(number, text, name, labels, place)


def _lenient(number: int, text: str, head: re.Match[str]) -> Row | Rejected:
    """The line without escaping, as exporters write it: a quote ends a value where a label could follow."""
    labels: dict[str, str] = {}
    place = head.end()
    while (start := _LABEL_START.match(text, place)) is not None:
        end = _VALUE_END.search(text, start.end())
        if end is None:
            return Rejected(number, _unclosed(start["key"], text, start.end()))
        labels.setdefault(start["key"], text[start.end() : end.start()])
        comma = re.compile(r"\s*,?").match(text, end.end())
        place = comma.end() if comma else end.end()
    return _closed(number, text, head["name"] or "", labels, place) or Rejected(number, UNREADABLE)


def _unclosed(key: str, text: str, place: int) -> str:
    return UNREADABLE if '"' in text[place:] else f"label {key} is not closed"


def _closed(number: int, text: str, name: str, labels: dict[str, str], place: int) -> Row | None:
    closing = re.compile(r"\s*\}").match(text, place)
    tail = _AFTER.fullmatch(text, closing.end()) if closing else None
    return _made(number, name, labels, tail) if tail is not None and name else None


def _made(number: int, name: str, labels: Mapping[str, str], tail: re.Match[str]) -> Row:
    stamp: datetime | None = epoch(tail["at"]) if tail["at"] else None
    return Row(name, labels, float(tail["value"]), stamp, number)


def _unquoted(text: str) -> str:
    """Without quotes and escapes; a backslash that escapes nothing stays, as it was meant."""
    inner = text[1:-1] if text.startswith('"') else text
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), inner)
