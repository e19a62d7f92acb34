"""Bodies of HTTP answers, bounded while they are read: a server's mistake must not fill our memory.

Nothing is asked, decoded or judged here.
"""

from __future__ import annotations

import aiohttp

from rebalancer.adapters.decode.errors import SourceFailedError

CHUNK = 1 << 16  # bytes read at once


async def whole(answer: aiohttp.ClientResponse, most: int, stage: str) -> bytes:
    """The body, of at most so many bytes; raises SourceFailedError of this ``stage`` for a larger one."""
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_chunked(CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise SourceFailedError(stage, f"the answer is larger than {most} bytes")
    return b"".join(parts)
