"""A telemetry worker in a process of its own, so that a day in lockstep uses more than one core.

`python -m rebalancer.bootstrap.aside` reads one line of JSON from stdin (see :class:`Errand`), says `ready` on stdout
once its partitions are assigned, and ends when stdin does: it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import structlog

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import telemetry
from rebalancer.adapters.streams.app import AppSettings
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.publish import Publisher
from rebalancer.adapters.streams.telemetry import Telemetry
from rebalancer.adapters.translate import decode_stimulus, encode_stimulus
from rebalancer.core.policy import Policy
from rebalancer.core.stimuli import PolicyAdopted

WITHIN = 60.0
"""Seconds until a worker must be ready."""
LINE_LIMIT = 1 << 24
"""Bytes that the errand may have: a policy of ten thousand pools."""


class AsideFailed(ChildProcessError):  # noqa: N818 - says what happened
    """The worker ended, or did not get ready in time."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker has to know. ``policy`` is an encoded :class:`PolicyAdopted`."""

    kafka: str
    cluster: str
    name: str
    scratch: str
    fetch_wait_ms: int | None
    policy: dict[str, Any]


def errand(kafka: str, cluster: str, name: str, scratch: Path, wait: int | None, policy: Policy) -> Errand:  # noqa: PLR0917 - a record's fields in order
    """The errand of a worker under this policy."""
    return Errand(kafka, cluster, name, str(scratch), wait, encode_stimulus(PolicyAdopted(policy, "scenario")))


async def send_aside(what: Errand, stack: AsyncExitStack) -> None:
    """Start a worker that ends with the stack; returns once it is ready. Raises AsideFailed."""
    command = (sys.executable, "-m", "rebalancer.bootstrap.aside")
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    stack.push_async_callback(_dismiss, process)
    if process.stdin is None or process.stdout is None:
        raise AsideFailed("the worker has no pipes")
    process.stdin.write(orjson.dumps(asdict(what)) + b"\n")
    await process.stdin.drain()
    try:
        async with asyncio.timeout(WITHIN):
            said = await process.stdout.readline()
    except TimeoutError:
        raise AsideFailed(f"telemetry worker {what.name} was not ready within {WITHIN:.0f} s") from None
    if said.strip() != b"ready":
        raise AsideFailed(f"telemetry worker {what.name} ended before it was ready")


async def _dismiss(process: Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(10.0):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _run() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    what = Errand(**orjson.loads(await reader.readline()))
    adopted = decode_stimulus(what.policy)
    if not isinstance(adopted, PolicyAdopted):
        raise AsideFailed("the errand holds no policy")
    kafka = KafkaSettings(bootstrap=what.kafka)
    app = AppSettings(telemetry.GROUP, kafka, fetch_wait_ms=what.fetch_wait_ms, data_dir=Path(what.scratch))
    async with Publisher(kafka) as publisher:
        role = Telemetry(app, {what.cluster: adopted.policy}, publisher, Metrics(), what.name, lockstep=True)
        await role.start()
        try:
            await role.ready()
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await reader.read()
        finally:
            await role.stop()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_run())
