"""What the Eviction API answered, as the kind that the next move depends on.

The number alone does not tell: 429 is a budget or a throttle, 500 may be permanent, 404 is good news.
Nothing is retried here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from rebalancer.core.protocol.calls import Answer, AnswerKind

MESSAGE_LIMIT = 500
"""Characters of a server's message that are kept: enough for a person, bounded for a topic."""
RETRY_LIMIT = 3600.0
"""Seconds; a server that asks for more is asking for a person."""
BUDGET_CAUSE = "DisruptionBudget"
TWO_BUDGETS = "more than one poddisruptionbudget"
_BY_STATUS = {
    401: AnswerKind.FORBIDDEN,
    403: AnswerKind.FORBIDDEN,
    404: AnswerKind.GONE,
    408: AnswerKind.TIMED_OUT,
    409: AnswerKind.CONFLICT,
    410: AnswerKind.GONE,
    412: AnswerKind.CONFLICT,
    502: AnswerKind.UNREACHABLE,
    503: AnswerKind.UNREACHABLE,
    504: AnswerKind.TIMED_OUT,
}


def eviction_answer(
    status: int, headers: Mapping[str, str] | None = None, body: object = None, now: datetime | None = None
) -> Answer:
    """Read an HTTP answer. ``body`` is bytes, text or parsed JSON; ``now`` resolves an HTTP-date Retry-After.

    Never raises: an answer that cannot be read is still an answer, ``failed`` with what was seen.
    """
    parsed = _parsed(body)
    message = _message(parsed, body)
    return Answer(
        kind=_kind(status, parsed, message),
        retry_after=_retry_after(headers or {}, parsed, now),
        message=message,
    )


def _kind(status: int, body: Mapping[str, Any], message: str) -> AnswerKind:
    if 200 <= status < 300:
        return AnswerKind.FAILED if body.get("status") == "Failure" else AnswerKind.OK
    if status == 429:
        return AnswerKind.BLOCKED if _names_budget(body, message) else AnswerKind.THROTTLED
    if status == 404 and not _is_gone(body, message):
        return AnswerKind.FAILED
    if status == 500:
        return AnswerKind.TWO_BUDGETS if TWO_BUDGETS in message.lower() else AnswerKind.FAILED
    return _BY_STATUS.get(status, AnswerKind.FAILED)


def _is_gone(body: Mapping[str, Any], message: str) -> bool:
    """A missing pod says so; a missing API or a proxy's page says nothing about the pod."""
    if not body:
        return message == ""
    return body.get("reason") == "NotFound" and "requested resource" not in message


def _names_budget(body: Mapping[str, Any], message: str) -> bool:
    """Servers before 1.26 sent no cause for a budget that was not observed yet, only the message."""
    causes = _mapping(body.get("details")).get("causes")
    listed = causes if isinstance(causes, list) else []
    if any(_mapping(cause).get("reason") == BUDGET_CAUSE for cause in listed):
        return True
    return "disruption budget" in message.lower()


def _retry_after(headers: Mapping[str, str], body: Mapping[str, Any], now: datetime | None) -> float | None:
    asked = next((value for name, value in headers.items() if str(name).lower() == "retry-after"), None)
    wait = _seconds(asked, now)
    if wait is None:
        wait = _seconds(_mapping(body.get("details")).get("retryAfterSeconds"), now)
    return wait


def _seconds(value: object, now: datetime | None) -> float | None:
    """Seconds from a number or an HTTP date (RFC 9110 10.2.3); None when there is none to read."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        wait = float(str(value).strip())
    except ValueError:
        wait = _until(str(value), now)
    return min(wait, RETRY_LIMIT) if wait > 0.0 else None


def _until(text: str, now: datetime | None) -> float:
    if now is None:
        return 0.0
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return (aware - now) / timedelta(seconds=1)


def _parsed(body: object) -> Mapping[str, Any]:
    if isinstance(body, (bytes, str)):
        try:
            return _mapping(orjson.loads(body))
        except orjson.JSONDecodeError:
            return {}
    return _mapping(body)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _message(parsed: Mapping[str, Any], body: object) -> str:
    text = parsed.get("message")
    if not isinstance(text, str):
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    return text.strip()[:MESSAGE_LIMIT] if isinstance(text, str) else ""
