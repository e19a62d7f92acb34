"""The product's requests with their moments, from the API server's audit log.

`received` is when the server began with a request, `answered` when its answer was complete; both are the server's
own clock, which is this machine's. Only what a service account asked is logged.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple


class Request(NamedTuple):
    """One request; moments in epoch seconds, ``dry`` for a dry run, ``code`` the HTTP status."""

    received: float
    answered: float
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    dry: bool
    code: int

    @property
    def evicts(self) -> bool:
        """Whether it is an eviction, dry or not."""
        return self.subresource == "eviction" and self.verb == "create"

    @property
    def accepted(self) -> bool:
        """Whether it is an eviction that was accepted for real."""
        return self.evicts and not self.dry and self.code in {200, 201}


class AuditTail:
    """Reads on from where it stopped."""

    def __init__(self, log: Path, user: str) -> None:
        self._log, self._user = log, user
        self._at = log.stat().st_size if log.exists() else 0
        self.requests: list[Request] = []

    def read(self) -> list[Request]:
        """All requests of the user that ended since this tail was made, in the order of their answers."""
        with self._log.open("rb") as log:
            log.seek(self._at)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]  # the last line may be half written
        self._at += len(whole)
        for line in whole.splitlines():
            event = json.loads(line)
            if event["user"]["username"].endswith(self._user) and event["stage"] == "ResponseComplete":
                self.requests.append(_request(event))
        return self.requests


def _request(event: dict[str, Any]) -> Request:
    at = event.get("objectRef", {})
    return Request(
        _seconds(event["requestReceivedTimestamp"]),
        _seconds(event["stageTimestamp"]),
        event["verb"],
        at.get("resource", ""),
        at.get("subresource", ""),
        at.get("namespace", ""),
        at.get("name", ""),
        "dryRun=All" in event["requestURI"],
        event.get("responseStatus", {}).get("code", 0),
    )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
