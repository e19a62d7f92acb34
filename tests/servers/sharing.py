"""One server for all the test processes of a run (pytest-xdist).

Who comes first starts it, and stops it when the others have left; they agree through a small folder beside a
lock, which has a file named after each process that uses the server. Without xdist there is one process, and
the same code.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.addresses import Addresses
from tests.servers.artifacts import file_lock
from tests.servers.kafka import KafkaServer

OTHERS_LEAVE_WITHIN = 1800.0  # seconds: what the slowest worker may still have to do when the owner is done


@contextmanager
def shared_kafka(folder: Path) -> Iterator[Addresses]:
    """Addresses of the run's broker, which lives in `folder`; started here if nobody else has."""
    users = folder / "users"
    users.mkdir(parents=True, exist_ok=True)
    mine: KafkaServer | None = None
    with file_lock(folder / "lock"):
        note = folder / "kafka.json"
        if not note.exists():
            mine = KafkaServer(Path(tempfile.mkdtemp(prefix="kafka-", dir=folder))).start()
            note.write_text(mine.addresses.to_json())
        me = users / str(os.getpid())
        me.touch()
    try:
        yield Addresses.from_json(note.read_text())
    finally:
        me.unlink()
        if mine:
            _stop_after_others(mine, folder)


def _stop_after_others(mine: KafkaServer, folder: Path) -> None:
    deadline = time.monotonic() + OTHERS_LEAVE_WITHIN
    while not _stopped_if_unused(mine, folder, at_any_rate=time.monotonic() > deadline):
        time.sleep(0.1)


def _stopped_if_unused(mine: KafkaServer, folder: Path, *, at_any_rate: bool) -> bool:
    with file_lock(folder / "lock"):  # whoever comes after this starts a server of its own
        used = any(_lives(int(one.name)) for one in (folder / "users").iterdir())
        if used and not at_any_rate:
            return False
        (folder / "kafka.json").unlink()
        mine.stop()
        return True


def _lives(pid: int) -> bool:
    """Say whether a process is there and no zombie: a worker that crashed never took its file away."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
