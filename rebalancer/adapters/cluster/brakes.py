"""The control object: the brakes' ConfigMap in the cluster, read and changed by people's commands.

A change is made from what stands there, is refused by the server if that is no longer so, and is then made anew, a
bounded number of times; keys that are not ours stay as a person wrote them. Each change is noted in the object with
who and why, and logged. What a brake does is the core's to say, and nothing here touches anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import structlog

from rebalancer.adapters.cluster.connection import JSON, MERGE, Api, Reply
from rebalancer.adapters.decode.control import CONTROL_NAME, control_from_configmap, control_to_configmap
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.objects import mapping, metadata, text, texts
from rebalancer.core.facts import Control

log = structlog.get_logger(__name__)
PATIENCE = 10.0
"""Seconds for one call: a person waits for it."""
TRIES = 6
"""Changes tried before giving up: somebody else won each time, which people's commands do not do to each other."""
PAUSE = 0.1
"""Seconds before the second try; doubled for each further one, so that all of them take about three seconds."""
HISTORY = "history"
KEPT = 30
"""Changes noted in the object: enough for an incident, and far below what a ConfigMap may hold."""
LINE = 400
"""Characters of one note."""


class BrakesRefused(Exception):  # noqa: N818 - an answer, not a defect
    """The control object could not be read or changed; says what to do."""


async def read_control(api: Api, namespace: str) -> tuple[Control, str]:
    """The brakes and the version they were read at; ("no brakes", "") where there is no such object.

    Raises:
        BrakesRefused: it cannot be read as brakes, or we may not read it. Never "not braked".
        ConnectionError, TimeoutError: the API server cannot be reached.
    """
    control, raw = await _read(api, namespace)
    return control, text(metadata(raw).get("resourceVersion"))


async def write_control(api: Api, namespace: str, change: Callable[[Control], Control]) -> Control:
    """Change the brakes; the object is made where there is none. ``change`` may be called several times.

    Raises:
        BrakesRefused: as :func:`read_control`, or others changed it each time.
        ConnectionError, TimeoutError: the API server cannot be reached; the change may have been made or not.
    """
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE * 2 ** (attempt - 1))
        before, raw = await _read(api, namespace)
        after = change(before)
        if raw and after == before:
            return before
        reply = await _write(api, namespace, raw, before, after)
        if reply.ok:
            log.info("brakes changed", by=after.by, why=after.why, changed=told(before, after))
            return after
        if reply.status not in {404, 409}:
            raise BrakesRefused(f"{_named(namespace)} was not changed: {reply.message}")
        if reply.status == 404 and not raw:
            raise BrakesRefused(f"{_named(namespace)} cannot be made: {reply.message}")
    raise BrakesRefused(f"{_named(namespace)} was changed by others {TRIES} times meanwhile; try again")


async def delete_control(api: Api, namespace: str) -> bool:
    """Take the control object away; whether there was one.

    Raises:
        BrakesRefused: we may not.
        ConnectionError, TimeoutError: the API server cannot be reached.
    """
    reply = await api.request("DELETE", _path(namespace, CONTROL_NAME), timeout=PATIENCE)
    if not reply.ok and reply.status != 404:
        raise BrakesRefused(f"{_named(namespace)} cannot be deleted: {reply.message}")
    return reply.ok


def told(before: Control, after: Control) -> str:
    """What changed, as ``key=value`` in the object's own spelling, without who and why."""
    old, new = control_to_configmap(before), control_to_configmap(after)
    return " ".join(f"{key}={new[key]}" for key in new if new[key] != old[key] and key not in {"by", "why"})


def noted(history: str, moment: datetime, before: Control, after: Control) -> str:
    """The history with one more line, newest last; the oldest lines go first."""
    line = f"{moment:%Y-%m-%dT%H:%M:%SZ} {after.by or 'unknown'}: {told(before, after)} {after.why}".strip()
    lines = [*history.splitlines(), " ".join(line.split())[:LINE]]
    return "\n".join(lines[-KEPT:])


async def _read(api: Api, namespace: str) -> tuple[Control, Mapping[str, Any]]:
    reply = await api.request("GET", _path(namespace, CONTROL_NAME), timeout=PATIENCE)
    if reply.status == 404:
        return Control(), {}
    if not reply.ok:
        raise BrakesRefused(f"{_named(namespace)} cannot be read: {reply.message}")
    raw = mapping(reply.body)
    try:
        return control_from_configmap(raw), raw
    except DecodeError as unreadable:
        mend = f"kubectl -n {namespace} edit configmap {CONTROL_NAME}"
        raise BrakesRefused(f"{_named(namespace)} cannot be read: {unreadable.reason}; mend it: {mend}") from unreadable


async def _write(api: Api, namespace: str, raw: Mapping[str, Any], before: Control, after: Control) -> Reply:
    history = noted(texts(raw.get("data")).get(HISTORY, ""), datetime.now(UTC), before, after)
    data = {**control_to_configmap(after), HISTORY: history}
    if raw:
        version = text(metadata(raw).get("resourceVersion"))
        body: dict[str, Any] = {"metadata": {"resourceVersion": version}, "data": data}
        path = _path(namespace, CONTROL_NAME)
        return await api.request("PATCH", path, body=body, content_type=MERGE, timeout=PATIENCE)
    labels = {"app.kubernetes.io/name": "gpu-rebalancer"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONTROL_NAME, "labels": labels}, "data": data}
    return await api.request("POST", _path(namespace), body=body, content_type=JSON, timeout=PATIENCE)


def _path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def _named(namespace: str) -> str:
    return f"the control object {namespace}/{CONTROL_NAME}"
