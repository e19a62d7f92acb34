"""What each identity asked of the API server, from the server's own audit log.

Only identities under test are logged: service accounts outside kube-system, and the outsider. The control
plane's own parts would bury them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.credentials import OUTSIDER

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "Metadata", "users": [OUTSIDER]},
        {"level": "None"},
    ],
}


class Call(NamedTuple):
    """One request. `resource` is "" for paths that are no resources; `code` is the HTTP status."""

    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    code: int


def calls_of(log: Path, user: str) -> list[Call]:
    """What `user` (a full name, `system:serviceaccount:<namespace>:<name>`) asked, in the order of the answers."""
    seen: dict[str, Call] = {}  # a watch is told when it opens and when it closes
    for event in _events(log):
        if event["user"]["username"] == user:
            seen.setdefault(event["auditID"], _call(event))
    return list(seen.values())


def _events(log: Path) -> Iterator[dict[str, Any]]:
    if not log.exists():
        return
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last one may be half written
            yield json.loads(line)


def _call(event: dict[str, Any]) -> Call:
    at = event.get("objectRef", {})
    return Call(
        event["verb"],
        at.get("apiGroup", ""),
        at.get("resource", ""),
        at.get("subresource", ""),
        at.get("namespace", ""),
        event.get("responseStatus", {}).get("code", 0),
    )
