"""Alerts as Alertmanager wants them, offered to every replica again and again while they stand.

Labels identify and never change while an alert stands; annotations tell. An alert that stands ends a few resends from
now, so that it runs out where nobody tells it any more; what must outlive us stands in Prometheus by rules of its own.
Each replica has its own sender: one that hangs delays nobody. Nothing raises here, and nothing is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import aiohttp
import orjson
import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.reasons import Reason, sentence

if TYPE_CHECKING:
    from rebalancer.settings import AlertSettings

log = structlog.get_logger(__name__)
PATH = "/api/v2/alerts"
PERIODS = 4
"""Resends that may fail before an alert runs out there; Prometheus' own alerts last as many."""
RESOLVED_FOR = timedelta(minutes=15)
"""How long the end of an alert is told again: as long as Prometheus does."""
MOST = 5_000
"""Alerts remembered: an alert for each node of a large fleet. The oldest are forgotten first."""
CHUNK = 500
"""Alerts in one request, about half a megabyte."""
SOON = 2.0
"""Seconds to the first try after one that failed; then twice as long each time, up to the resend period."""
PRODUCT = "GpuRebalancer"
NAMES: Mapping[Reason, str] = {
    Reason.OVERDUE: "LoanOverdue",
    Reason.LOAN_LOST: "LoanLost",
    Reason.GANG_SPLIT: "GangSplit",
    Reason.BUDGET_BLOCKED: "EvictionBlocked",
    Reason.TWO_BUDGETS: "EvictionBlocked",
    Reason.STUCK: "PodStuck",
    Reason.CONTENDED: "NodeContended",
    Reason.SQUATTER: "Squatter",
    Reason.NODE_QUARANTINED: "NodeQuarantined",
    Reason.NODE_NOT_USABLE: "NodeCapacityMismatch",
    Reason.LABEL_CONFLICT: "NodeLabelsUnclear",
    Reason.TELEMETRY_SILENT: "TelemetryUnknown",
    Reason.INVALID_POLICY: "PolicyRefused",
    Reason.CAP: "ReclaimPaced",
}
"""The name of an alert by its reason; each has a runbook of that name."""
TROUBLED = "ActTroubled"
"""The name of all others: act is held up by something else (no right, no answer), which its reason says."""
BY_NODE = frozenset(
    {
        Reason.OVERDUE, Reason.LOAN_LOST, Reason.NODE_QUARANTINED, Reason.NODE_NOT_USABLE, Reason.LABEL_CONFLICT,
        Reason.CONTENDED,
    }
)  # fmt: skip
"""Reasons whose target is always a node."""


def name_of(reason: Reason) -> str:
    """The alert's name, which is its runbook's as well."""
    return PRODUCT + NAMES.get(reason, TROUBLED)


def labels_of(alert: RaiseAlert, cluster: str) -> dict[str, str]:
    """What identifies an alert: the same for as long as it stands, in every process that tells it."""
    reason = alert.because.reason
    found = {
        "alertname": name_of(reason), "cluster": cluster, "severity": alert.severity, "reason": reason.value,
        "source": "gpu-rebalancer",
    }  # fmt: skip
    found |= {"pool": alert.pool} if alert.pool else {}
    if alert.target not in ("", alert.pool, cluster):
        found[_kind(alert)] = alert.target
    return found


def _kind(alert: RaiseAlert) -> str:
    """What the target is. Gangs and pods have a namespace in front, nodes never."""
    if alert.because.reason is Reason.SQUATTER:
        return "pod"
    return "node" if alert.because.reason in BY_NODE or "/" not in alert.target else "gang"


class Board:
    """What stands and what has lately ended, of one cluster; bounded."""

    def __init__(self, cluster: str, settings: AlertSettings, metrics: Metrics) -> None:
        self._cluster, self._metrics = cluster, metrics
        self._lasts = PERIODS * timedelta(seconds=settings.resend)
        self._link, self._runbooks = settings.link.rstrip("/"), settings.runbooks.rstrip("/")
        self._standing: dict[str, RaiseAlert] = {}
        self._over: dict[str, tuple[RaiseAlert, datetime]] = {}

    def raised(self, alert: RaiseAlert) -> None:
        """It stands; told again it is the same alert."""
        self._over.pop(alert.id, None)
        self._standing[alert.id] = alert
        if len(self._standing) > MOST:
            del self._standing[next(iter(self._standing))]
            self._metrics.alerts_dropped.inc()

    def cleared(self, key: str, at: datetime) -> None:
        """It is over. One that was never seen standing has no labels to be told by: there it runs out by itself."""
        alert = self._standing.pop(key, None)
        if alert is None:
            return
        self._over[key] = (alert, max(at, alert.since))
        if len(self._over) > MOST:
            del self._over[next(iter(self._over))]

    def forgotten(self, key: str) -> None:
        """Its record was deleted; what still stands is over."""
        self.cleared(key, datetime.now(UTC))

    def payload(self, now: datetime) -> list[dict[str, Any]]:
        """What to tell now, newest last; ends that were told for long enough are forgotten."""
        self._over = {key: held for key, held in self._over.items() if now - held[1] <= RESOLVED_FOR}
        ended = [self._told(alert, end) for alert, end in self._over.values()]
        return [*ended, *(self._told(alert, now + self._lasts) for alert in self._standing.values())]

    def _told(self, alert: RaiseAlert, ends: datetime) -> dict[str, Any]:
        told = {
            "labels": labels_of(alert, self._cluster),
            "annotations": self._annotations(alert),
            "startsAt": alert.since.astimezone(UTC).isoformat(),
            "endsAt": ends.astimezone(UTC).isoformat(),
        }
        return told | ({"generatorURL": f"{self._link}/why/{quote(alert.id)}"} if self._link else {})

    def _annotations(self, alert: RaiseAlert) -> dict[str, str]:
        told = sentence(alert.because)
        since = alert.since.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
        found = {
            "summary": told[:200],
            "description": f"{told[:1].upper()}{told[1:]} (first seen {since}).",
            "id": alert.id,
        }
        found |= {f"n_{name}": str(value) for name, value in alert.because.numbers.items()}
        if self._runbooks:
            found["runbook_url"] = f"{self._runbooks}/{name_of(alert.because.reason)}.md"
        return found


class Alertmanagers:
    """One sender a replica; what is told is the board's at that moment."""

    def __init__(
        self,
        board: Board,
        settings: AlertSettings,
        metrics: Metrics,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._board, self._metrics, self._clock = board, metrics, clock
        self._resend, self._timeout = settings.resend, settings.timeout
        self._urls = {url.rstrip("/"): asyncio.Event() for url in settings.alertmanagers}
        for url in self._urls:
            metrics.alertmanager(replica(url))

    def changed(self) -> None:
        """Something was raised or is over: all replicas are told at once."""
        for event in self._urls.values():
            event.set()

    async def run(self) -> None:
        """Tell until cancelled; returns at once when there is nobody to tell."""
        if not self._urls:
            return
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            for url, event in self._urls.items():
                group.create_task(self._serve(session, url, event), name=f"alerts-{replica(url)}")

    async def _serve(self, session: aiohttp.ClientSession, url: str, event: asyncio.Event) -> None:
        again = SOON
        while True:
            event.clear()
            accepted = await self._tell(session, url)
            again = SOON if accepted else min(2 * again, self._resend)
            try:
                async with asyncio.timeout(self._resend if accepted else min(again, self._resend)):
                    await event.wait()
            except TimeoutError:
                continue

    async def _tell(self, session: aiohttp.ClientSession, url: str) -> bool:
        """Everything that stands, to one replica; whether all of it was taken."""
        alerts = self._board.payload(self._clock())
        results = [await self._post(session, url, chunk) for chunk in _chunks(alerts)]
        return all(result == "accepted" for result in results)

    async def _post(self, session: aiohttp.ClientSession, url: str, alerts: list[dict[str, Any]]) -> str:
        result, why = await _offered(session, url + PATH, orjson.dumps(alerts))
        self._metrics.alerts_sent.labels(replica(url), result).inc(len(alerts))
        if result != "accepted":
            log.warning("alerts not taken", alertmanager=replica(url), count=len(alerts), result=result, why=why)
        return result


async def _offered(session: aiohttp.ClientSession, url: str, body: bytes) -> tuple[str, str]:
    """The result of one request, and what was answered if it was not taken."""
    try:
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            if answer.status < 300:
                return "accepted", ""
            why = (await answer.content.read(500)).decode(errors="replace")
            return ("refused" if answer.status < 500 else "failed"), f"{answer.status} {why}"
    except TimeoutError:
        return "timed-out", ""
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: an address that is none
        return "unreachable", str(error)


def _chunks(alerts: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    for start in range(0, len(alerts), CHUNK):
        yield alerts[start : start + CHUNK]


def replica(url: str) -> str:
    """Host and port: an address may hold a name and password, a label must not."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "unnamed"
    except ValueError:
        return "unnamed"
