"""The policy file of a running process: read at the start, looked at again and again, adopted when it is valid.

A change that cannot be adopted is told once, and the policy in force stays. Who adopts it is the caller's matter.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from rebalancer.adapters.policyfile import PolicyRefused, load_policy
from rebalancer.core.policy import Policy

log = structlog.get_logger(__name__)
EVERY = 10.0
"""Seconds between looks at the file."""


class PolicyFile:
    """``digest``: of the text that was read last."""

    def __init__(self, path: Path) -> None:
        self.digest = ""
        self._path = path

    def read(self) -> Policy:
        """What the file says now.

        Raises:
            PolicyRefused, OSError: it is invalid, or cannot be read.
        """
        # Hashed before it is parsed: what changes in between is then seen as another change, never as adopted.
        self.digest = hashlib.sha256(self._path.read_bytes()).hexdigest()
        return load_policy(self._path)

    async def follow(
        self, adopt: Callable[[Policy], Awaitable[None]], refuse: Callable[[str], Awaitable[None]]
    ) -> None:
        """Until cancelled: hand over every valid change, and say once why an invalid one is refused."""
        refused = ""
        while True:
            await asyncio.sleep(EVERY)
            before, last = self.digest, refused
            try:
                policy = await asyncio.to_thread(self.read)
            except (PolicyRefused, OSError) as error:
                refused = str(error)
                if refused != last:
                    log.error("policy refused, the old one stays", why=refused)  # noqa: TRY400 - told in one sentence
                    await refuse(refused)
                continue
            refused = ""
            if self.digest != before or last:
                log.info("policy adopted", digest=self.digest[:12])
                await adopt(policy)
