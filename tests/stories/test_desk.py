"""A partition's desk that loses the broker leaves what it did not finish to the one that comes after it."""

from typing import Any

import pytest

from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import desk as room
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.desk import Desk, Item
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came, Loaded
from rebalancer.adapters.streams.publish import NotPublished
from rebalancer.adapters.translate import Received


class Letters:
    """Dead letters at a broker that is away, or there."""

    def __init__(self) -> None:
        self.away = True
        self.buried: list[int] = []

    async def bury(self, bad: Came, error: Exception) -> None:
        del error
        if self.away:
            raise NotPublished("away")
        self.buried.append(bad.offset)


def item(offset: int, finished: list[int]) -> Item:
    """Of a cluster that nobody decides for, so it is to be buried."""

    async def done() -> None:
        finished.append(offset)

    came = Came("gpu.control.v1", 0, offset, b"k", b"v", ())
    return Item(came, Received("control", "nobody", "", None, None), done)  # type: ignore[arg-type]  # never looked at


async def test_what_a_desk_did_not_finish_when_the_broker_went_is_handled_by_the_next_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(*_: object) -> Loaded:
        return Loaded({}, {}, {})

    monkeypatch.setattr(room, "read_to_end", nothing)
    monkeypatch.setattr(room, "AGAIN", 0.0)
    monkeypatch.setattr(room, "BATCH", 2)
    letters: Any = Letters()
    nobody: Any = None
    given = (0, KafkaSettings(), dict, letters, Health("decide", Metrics()), nobody)
    finished: list[int] = []
    first = Desk(*given)
    for offset in range(3):
        await first.put(item(offset, finished))
    with pytest.raises(NotPublished):
        await first.run()
    assert finished == []

    letters.away = False
    second = Desk(*given, left=first.unfinished(again=True))
    await second._round(second._batch)
    await second._round(await second._take())
    assert letters.buried == finished == [0, 1, 2]
