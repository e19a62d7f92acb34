"""One server for all the test processes of a run (pytest-xdist).

Who comes first starts it, who leaves last stops it; the processes agree through a small file beside a lock.
Without xdist there is one process, and the same code.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from tests.servers.addresses import Addresses
from tests.servers.artifacts import file_lock
from tests.servers.kafka import STOP_WITHIN, KafkaServer


class Note(TypedDict):
    """What the processes tell each other; `addresses` is `Addresses.to_json()`."""

    users: int
    pid: int
    addresses: str


@contextmanager
def shared_kafka(folder: Path) -> Iterator[Addresses]:
    """Addresses of the run's broker, which lives in `folder`; started here if nobody else has."""
    folder.mkdir(parents=True, exist_ok=True)
    note, lock = folder / "kafka.json", folder / "kafka.lock"
    mine: KafkaServer | None = None
    with file_lock(lock):
        if not note.exists():
            mine = KafkaServer(folder / f"kafka-{os.getpid()}").start()
            _write(note, Note(users=0, pid=mine.pid or 0, addresses=mine.addresses.to_json()))
        told = _change_users(note, by=+1)
    try:
        yield Addresses.from_json(told["addresses"])
    finally:
        with file_lock(lock):
            _leave(note, mine)


def _leave(note: Path, mine: KafkaServer | None) -> None:
    told = _change_users(note, by=-1)
    if told["users"]:
        return
    note.unlink()
    if mine:
        mine.stop()
    else:
        _end(told["pid"])


def _end(pid: int) -> None:
    """Ask another process's child to end, and wait until it has: as a zombie it has."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _change_users(note: Path, by: int) -> Note:
    told: Note = json.loads(note.read_text())
    told["users"] += by
    _write(note, told)
    return told


def _write(note: Path, told: Note) -> None:
    note.write_text(json.dumps(told))
