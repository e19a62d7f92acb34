"""A small synchronous client of the test API server: JSON in, JSON out, one kept connection a thread.

For arranging and asserting in tests, with all rights by default. The product has its own client; neither uses
the other.
"""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import yaml

CALL_WITHIN = 30.0  # seconds for one answer
POLL = 0.05  # seconds between two looks while waiting
IDLE_LIMIT = 30.0  # seconds; the server closes a connection that idles for 90
KIND_APPEARS_WITHIN = 10.0  # seconds until a new CRD is served
MERGE, JSON_PATCH, APPLY = (f"application/{kind}+{end}" for kind, end in
                            (("merge-patch", "json"), ("json-patch", "json"), ("apply-patch", "yaml")))  # fmt: skip
STRATEGIC = "application/strategic-merge-patch+json"

Json = dict[str, Any]
T = TypeVar("T")


class ApiError(Exception):
    """The API server refused: `status` is the HTTP status, `body` the Status object."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status}: {body.get('message', body)}")
        self.status, self.body = status, body


class AdminClient:
    """Calls to one API server with one token. Safe to share between threads."""

    def __init__(self, url: str, authority: Path, token: str) -> None:
        self._at = urlsplit(url)
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._own, self._era = threading.local(), 0
        self._opened: list[http.client.HTTPSConnection] = []  # those of threads that are gone, too
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any
    ) -> tuple[int, Json]:
        """One call, whatever it answers: status and body. `query` keys are the API's own.

        Raises:
            OSError, http.client.HTTPException: the server is away or does not answer.
        """
        headers = {**self._headers, "Content-Type": content_type}
        blob = None if body is None else json.dumps(body).encode()
        connection = self._connection()
        try:
            connection.request(method, path + (f"?{urlencode(query)}" if query else ""), blob, headers)
            answer = connection.getresponse()
            told = answer.read()
        except (OSError, http.client.HTTPException):
            self.disconnect()
            raise
        self._own.used = time.monotonic()
        return answer.status, _parsed(told)

    def get(self, path: str, **query: Any) -> Json:
        return self._checked("GET", path, **query)

    def items(self, path: str, **query: Any) -> list[Json]:
        """The objects of a list."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Any, **query: Any) -> Json:
        return self._checked("POST", path, body, **query)

    def put(self, path: str, body: Any) -> Json:
        return self._checked("PUT", path, body)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Json:
        return self._checked("PATCH", path, body, content_type=content_type, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Json:
        return self._checked("DELETE", path, body, **query)

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
        status, body = self.request("GET", path)
        if status not in {200, 404}:
            raise ApiError(status, body)
        return status == 200

    def apply(self, documents: str | Iterable[Json], manager: str = "tests", namespace: str = "default") -> list[Json]:
        """Server-side apply of YAML text or objects, in order; objects without a namespace go to `namespace`."""
        objects = yaml.safe_load_all(documents) if isinstance(documents, str) else documents
        return [
            self.patch(self.path_of(one, namespace), one, APPLY, fieldManager=manager, force="true")
            for one in objects
            if one
        ]

    def path_of(self, item: Json, namespace: str = "default") -> str:
        """The path of an object by its kind, which the server is asked for; waits for a kind that is not served yet."""
        key = (item["apiVersion"], item["kind"])
        if key not in self._resources:
            self.wait(lambda: self._learn(*key), KIND_APPEARS_WITHIN, f"the API server to serve {' '.join(key)}")
        plural, namespaced = self._resources[key]
        within = f"/namespaces/{item['metadata'].get('namespace') or namespace}" if namespaced else ""
        return f"{_root(key[0])}{within}/{plural}/{item['metadata']['name']}"

    def wait(self, predicate: Callable[[], T], timeout: float, what: str) -> T:
        """Ask `predicate` until what it returns is true, and return that; refusals and silence count as not yet.

        Raises:
            TimeoutError: not within `timeout` seconds; the message has `what` and the last answer.
        """
        deadline, last = time.monotonic() + timeout, "nothing true"
        while time.monotonic() < deadline:
            try:
                if found := predicate():
                    return found
            except (ApiError, OSError, http.client.HTTPException) as error:
                last = repr(error)
            time.sleep(POLL)
        raise TimeoutError(f"{what}: not within {timeout:g} s ({last})")

    def new_era(self) -> None:
        """The server was restarted: every thread's next call opens a connection of its own."""
        self._era += 1

    def close(self) -> None:
        """Close the connections of every thread."""
        self._era += 1
        while self._opened:
            self._opened.pop().close()

    def disconnect(self) -> None:
        """Close this thread's connection; the next call opens one."""
        connection, self._own.connection = getattr(self._own, "connection", None), None
        if connection is not None:
            connection.close()
            with suppress(ValueError):  # closed with all the others meanwhile
                self._opened.remove(connection)

    def _connection(self) -> http.client.HTTPSConnection:
        idle = time.monotonic() - getattr(self._own, "used", 0.0)
        if idle > IDLE_LIMIT or getattr(self._own, "era", self._era) != self._era:
            self.disconnect()
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if kept is None:
            assert self._at.hostname
            kept = http.client.HTTPSConnection(self._at.hostname, self._at.port, context=self._tls, timeout=CALL_WITHIN)
            self._opened.append(kept)
            self._own.connection, self._own.used, self._own.era = kept, time.monotonic(), self._era
        return kept

    def _checked(self, method: str, path: str, body: Any = None, **rest: Any) -> Json:
        status, told = self.request(method, path, body, **rest)
        if status >= 400:
            raise ApiError(status, told)
        return told

    def _learn(self, version: str, kind: str) -> bool:
        for one in self.get(_root(version))["resources"]:
            if "/" not in one["name"]:
                self._resources[version, one["kind"]] = (one["name"], one["namespaced"])
        return (version, kind) in self._resources


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _parsed(told: bytes) -> Json:
    try:
        found = json.loads(told) if told else {}
    except ValueError:
        found = {"message": told.decode(errors="replace")}
    return found if isinstance(found, dict) else {"value": found}
