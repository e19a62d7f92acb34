"""The world's hands and eyes over a socket, for an act in another process: one pickled question, one answer.

Between a test and its own child only: what is unpickled was pickled by us.
"""

import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rebalancer.core.protocol.calls import Answer, Call
from rebalancer.core.stimuli import Fact, FactDeleted, FactKind, FactObserved
from rebalancer.simulate.cluster import SimulatedCluster

LENGTH = 4


async def serve(world: SimulatedCluster, at: Path) -> asyncio.Server:
    """Answer for a world until the server is closed."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                name, given = await _receive(reader)
                await _send(writer, await getattr(world, name)(given))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the child was killed: that is what the stories are about
        finally:
            writer.close()

    return await asyncio.start_unix_server(talk, at)


class Afar:
    """Hands and eyes of a world that lives in another process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._turn = asyncio.Lock()

    async def perform(self, call: Call) -> Answer:
        answer: Answer = await self._ask("perform", call)
        return answer

    async def snapshot(self, of: FactKind) -> Sequence[Fact]:
        facts: Sequence[Fact] = await self._ask("snapshot", of)
        return facts

    async def changes(self) -> Sequence[FactObserved | FactDeleted]:
        raise NotImplementedError("act follows no changes")

    async def _ask(self, name: str, given: Any) -> Any:
        async with self._turn:
            await _send(self._writer, (name, given))
            return await _receive(self._reader)


async def _send(writer: asyncio.StreamWriter, what: Any) -> None:
    raw = pickle.dumps(what)
    writer.write(len(raw).to_bytes(LENGTH, "big") + raw)
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> Any:
    length = int.from_bytes(await reader.readexactly(LENGTH), "big")
    return pickle.loads(await reader.readexactly(length))
