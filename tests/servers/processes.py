"""Child processes of a harness: started, stopped, paused, and never left behind.

A `Keeper` is a small process of its own that holds the other end of a pipe: when the test process ends,
however it ends, the pipe closes and the keeper kills what was registered with it. Ending is by process id
only, never by name.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ENDS_WITHIN = 10.0  # seconds after SIGKILL; the kernel needs milliseconds
LOG_LINES = 15  # of a part's log in an error message

_KEEPER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and that ends us
kept = set()
for line in sys.stdin:
    (kept.add if line[0] == "+" else kept.discard)(int(line[1:]))
for pid in kept:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class PartError(Exception):
    """A part did not start, or was asked for what its state does not allow."""


class Keeper:
    """Kills the registered processes when this one is gone."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _KEEPER], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def keep(self, pid: int) -> None:
        self._say(f"+{pid}")

    def forget(self, pid: int) -> None:
        self._say(f"-{pid}")

    def close(self) -> None:
        """Kill what is still registered and end."""
        if self._child.stdin:
            self._child.stdin.close()  # twice does no harm
        self._child.wait(ENDS_WITHIN)

    def _say(self, line: str) -> None:
        if self._child.stdin and not self._child.stdin.closed:
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()


class Part:
    """One program with a fixed command line, log file `<name>.log` in `folder`; started and stopped at will."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, keeper: Keeper, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log_file = folder / f"{name}.log"
        self._folder, self._keeper = folder, keeper
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it is started."""
        return self._process.pid if self._process else None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; who needs it ready waits for that.

        Raises:
            PartError: it runs already.
        """
        if self.runs:
            raise PartError(f"{self.name} runs already")
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        self._keeper.keep(self._process.pid)

    def kill(self) -> None:
        """End it at once (SIGKILL), paused or not; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(ENDS_WITHIN)
            self._keeper.forget(process.pid)

    def end(self, within: float) -> int:
        """Ask it to end (SIGTERM) and wait `within` seconds; its exit code.

        Raises:
            PartError: it does not run.
            subprocess.TimeoutExpired: it goes on; `kill` it.
        """
        process = self._started()
        process.terminate()
        code = process.wait(within)
        self._process = None
        self._keeper.forget(process.pid)
        return code

    def pause(self) -> None:
        """Stop it from running (SIGSTOP): its connections stay open and nobody answers."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on (SIGCONT)."""
        self._started().send_signal(signal.SIGCONT)

    def log_end(self) -> str:
        """The last lines of its log, for an error message."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return "".join(f"\n  | {line}" for line in lines[-LOG_LINES:])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise PartError(f"{self.name} does not run{self.log_end()}")
        return self._process
