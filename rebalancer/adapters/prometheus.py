"""DCGM series from a Prometheus query API, as the rows that every other source of them ends in.

A range is asked for, not an instant: an instant's values come with the time of the question, and event time is when
the GPU was looked at. Of a device only the newest row of each metric counts. An answer that is an error, or says of
itself that it is not whole, tells nothing: its nodes turn unknown when what is known of them grows old. Nothing is
repeated or judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import orjson

from rebalancer.adapters.bodies import whole
from rebalancer.adapters.decode.dcgm_rows import NAMES, Row, device_of
from rebalancer.adapters.decode.errors import SourceFailedError
from rebalancer.adapters.decode.moments import epoch
from rebalancer.settings import DcgmSettings

STAGE = "prometheus"
RANGE = 90
"""Seconds asked for: one scrape at the longest interval in use (60 s), and time for it to be stored."""
SAME = timedelta(seconds=1)
"""Rows of one device and metric that lie closer are copies of one scrape (a pod's, a job's); older ones ended."""
ANSWER_LIMIT = 256 * 1024 * 1024
"""Bytes of an answer: a bound on memory, not on fleets; a larger one is refused and counted."""
TEXT = frozenset({str})
UNITS = "(_ratio|_percent|_watts|_celsius)?(_total)?"


def query_of(match: str = "") -> str:
    """The one question that is asked; ``match`` are further label matchers."""
    named = f'__name__=~"(?i:{"|".join(NAMES)}){UNITS}"'
    return f"{{{named}{',' if match else ''}{match}}}[{RANGE}s]"


class PrometheusSource:
    """Asks one query API. The session is the caller's."""

    def __init__(self, settings: DcgmSettings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session
        self._url = f"{settings.url.rstrip('/')}/api/v1/query"
        self._form = {"query": query_of(settings.match), "timeout": f"{settings.timeout:g}s"}

    async def answer(self) -> bytes:
        """The raw answer, within the settings' time-out.

        Raises:
            SourceFailedError: it was an error, or too large.
            ConnectionError, TimeoutError: there was none.
        """
        limit = aiohttp.ClientTimeout(total=self._settings.timeout)
        # Thanos leaves out what it cannot reach unless told otherwise; Prometheus does not mind the parameter
        form = {**self._form, "partial_response": "false"}
        try:
            async with self._session.post(self._url, data=form, headers=self._headers(), timeout=limit) as answer:
                return await _read(answer)
        except TimeoutError:
            raise TimeoutError(f"{self._url} did not answer within {self._settings.timeout:g} seconds") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionError(f"cannot ask {self._url}: {str(error) or type(error).__name__}") from error

    def _headers(self) -> dict[str, str]:
        """The token is read at each question: such files are replaced while we run."""
        if self._settings.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._settings.token_file.read_text(encoding='utf-8').strip()}"}


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    if not 200 <= answer.status < 300:
        said = (await answer.content.read(500)).decode("utf-8", "replace")
        raise SourceFailedError(STAGE, f"the query API answered {answer.status}: {said}")
    return await whole(answer, ANSWER_LIMIT, STAGE)


def rows_of(raw: bytes) -> list[Row]:
    """The newest rows of an answer.

    Raises:
        SourceFailedError: it is no answer, an error, or not whole.
    """
    try:
        said = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise SourceFailedError(STAGE, f"the answer is no JSON: {error}") from error
    if not isinstance(said, dict) or said.get("status") != "success":
        why = said.get("error") if isinstance(said, dict) else None
        raise SourceFailedError(STAGE, f"the query failed: {str(why)[:300]}")
    if said.get("warnings"):
        raise SourceFailedError(STAGE, f"the answer may not be whole: {str(said['warnings'])[:300]}")
    data = said.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise SourceFailedError(STAGE, "the answer has no result")
    return newest(row for series in result for row in _series(series))


def _series(series: Any) -> Iterable[Row]:
    """The last value of a series; one that cannot be read is none."""
    if not isinstance(series, dict) or not isinstance(series.get("metric"), dict):
        return
    labels = series["metric"]
    if not TEXT.issuperset(map(type, labels.values())):
        labels = {key: str(value) for key, value in labels.items()}
    values = series.get("values") or [series.get("value")]
    last = values[-1] if isinstance(values, list) else None
    if not isinstance(last, list) or len(last) != 2:
        return
    at = epoch(last[0])
    try:
        value = float(last[1])
    except (TypeError, ValueError):
        return
    if at is not None:
        yield Row(labels.pop("__name__", ""), labels, value, at)


def newest(rows: Iterable[Row]) -> list[Row]:
    """Only what each device said last of each metric: a series whose pod left goes on in the range for a while."""
    dated = [((_whose(row.labels), row.name), row.at, row) for row in rows if row.at is not None]
    latest: dict[tuple[object, str], datetime] = {}
    for key, at, _ in dated:
        if (last := latest.get(key)) is None or last < at:
            latest[key] = at
    return [row for key, at, row in dated if (last := latest[key]) is at or last - at < SAME]


def _whose(labels: Mapping[str, str]) -> object:
    return device_of(labels) or tuple(sorted(labels.items()))
