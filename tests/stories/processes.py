"""Children of a story: started, waited for until they say `ready`, killed or ended, always within bounds."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Self

READY_WITHIN = 60.0  # seconds; 4 on a quiet machine
ENDS_WITHIN = 20.0
ROOT = Path(__file__).parents[2]


class Child:
    """One process of `python -m module`; what it says on stderr goes to a file beside its scratch folder."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process, self._log = process, log

    @classmethod
    async def start(cls, module: str, log: Path, **options: object) -> Self:
        """Start it and return at once; raises OSError."""
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *words, stdout=PIPE, stderr=errors, cwd=ROOT
            )
        return cls(process, log)

    async def ready(self) -> None:
        """Wait for its word; raises AssertionError with the end of its log if it ends or takes too long."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), READY_WITHIN)
        except TimeoutError:
            line = b"(nothing)"
        assert line == b"ready\n", f"{line!r}\n{self._tail()}"

    async def kill(self) -> None:
        """SIGKILL, as the kernel does it when memory is short."""
        if self._process.returncode is None:
            self._process.kill()
        await self._over()

    async def end(self) -> None:
        """SIGTERM; it leaves its groups and ends by itself."""
        if self._process.returncode is None:
            self._process.terminate()
        await self._over()

    async def _over(self) -> None:
        try:
            await asyncio.wait_for(self._process.communicate(), ENDS_WITHIN)
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()
            raise AssertionError(f"no end within {ENDS_WITHIN:.0f} s\n{self._tail()}") from None

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
