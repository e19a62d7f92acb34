"""The run's one broker is shared while anybody uses it and gone when nobody does."""

from pathlib import Path

import pytest

from tests.servers.ports import is_open
from tests.servers.sharing import shared_kafka


def port(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


@pytest.mark.kafka
def test_who_leaves_last_stops_it_and_who_comes_later_starts_a_new_one(tmp_path: Path) -> None:
    with shared_kafka(tmp_path) as first:
        assert is_open(port(first.bootstrap))
        (tmp_path / "users" / "999999999").touch()  # a process that crashed and never took its file away
    assert not is_open(port(first.bootstrap))
    with shared_kafka(tmp_path) as later:
        assert is_open(port(later.bootstrap))
        assert later != first


@pytest.mark.kafka
def test_a_note_of_a_running_broker_is_believed(tmp_path: Path) -> None:
    with shared_kafka(tmp_path) as first:
        note = (tmp_path / "kafka.json").read_text()
        (tmp_path / "second").mkdir()
        (tmp_path / "second" / "kafka.json").write_text(note)
        with shared_kafka(tmp_path / "second") as second:
            assert second == first
        assert is_open(port(first.bootstrap))
