"""Rows gathered into scrapes: when one is over, what is late, and that nothing grows without bound."""

import itertools
from collections.abc import Iterable
from datetime import datetime, timedelta

import pytest

from rebalancer.adapters.decode.dcgm_nodes import NodeEntry
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.streams import scrapes
from rebalancer.adapters.streams.scrapes import Scrape, Scrapes
from tests.streams.sourced import NOW, SIX

NODE = NodeEntry("u7", "gpu-7", 2)


def row(second: float, value: float = 50.0, gpu: str = "A") -> Row:
    return Row("DCGM_FI_DEV_GPU_UTIL", {"UUID": gpu}, value, SIX + timedelta(seconds=second))


def add(held: Scrapes, rows: Iterable[Row], tick: float = 0.0, now: datetime = NOW) -> list[str]:
    return [held.add(one, NODE, ("p", number), now, tick) for number, one in enumerate(rows)]


def values(found: Iterable[Scrape]) -> list[list[float]]:
    return [[one.value for one in scrape.rows] for scrape in found]


def test_a_complete_scrape_is_over_when_nothing_more_came_for_a_second() -> None:
    held = Scrapes()
    add(held, [row(0, 1, "A"), row(0, 2, "B")])
    assert held.due(0.9) == []
    assert values(held.due(1.0)) == [[1, 2]]
    assert (held.rows, held.oldest()) == (0, {})


def test_a_scrape_that_lacks_a_gpu_waits_longer_and_is_told_all_the_same() -> None:
    held = Scrapes()
    add(held, [row(0, 1, "A")])
    assert held.due(9.9) == []
    assert values(held.due(10.0)) == [[1]]


def test_a_nodes_newer_rows_end_its_older_scrapes_at_once() -> None:
    held = Scrapes()
    add(held, [row(0, 1), row(15, 2)])
    assert values(held.due(0.0)) == [[1]]


def test_another_nodes_clock_ends_nobodys_scrape() -> None:
    held = Scrapes()
    add(held, [row(0, 1)])
    held.add(row(15, 2), NodeEntry("u8", "gpu-8", 2), ("p", 9), NOW, 0.0)
    assert held.due(0.0) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_order_of_arrival_does_not_matter(order: tuple[int, ...]) -> None:
    rows = [row(0, 1, "A"), row(0.3, 2, "B"), row(15, 3, "A"), row(15.3, 4, "B")]
    held = Scrapes()
    assert set(add(held, [rows[one] for one in order])) == {""}
    assert values(held.due(1.0)) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        pytest.param(0, "late", id="a duplicate of what was told"),
        pytest.param(0.5, "late", id="a row of a scrape that was told"),
        pytest.param(-30, "late", id="an older scrape"),
        pytest.param(15, "", id="the next scrape"),
        pytest.param(-3_700, "old", id="more than an hour ago"),
        pytest.param(81, "future", id="more than a minute ahead"),
    ],
)
def test_what_comes_after_a_scrape_was_told(second: float, why: str) -> None:
    held = Scrapes()
    add(held, [row(0, 1, "A"), row(0, 1, "B")])
    held.due(1.0)
    assert add(held, [row(second)]) == [why]


def test_offsets_of_rows_that_are_held_are_not_committed() -> None:
    held = Scrapes()
    add(held, [row(0), row(0.1), row(15)])
    assert held.oldest() == {"p": 0}
    held.due(0.0)
    assert held.oldest() == {"p": 2}


@pytest.mark.parametrize("limit", ["ROWS", "NODE_ROWS"])
def test_rows_beyond_the_bounds_are_refused(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(scrapes, limit, 3)
    held = Scrapes()
    assert add(held, [row(one) for one in range(5)]) == ["", "", "", "crowded", "crowded"]
    assert held.rows == 3
    held.due(10.0)
    assert add(held, [row(15)]) == [""]


def test_nodes_beyond_the_bound_are_refused_until_one_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "NODES", 1)
    held = Scrapes()
    add(held, [row(0)])
    other = NodeEntry("u8", "gpu-8", 2)
    assert held.add(row(0), other, ("p", 1), NOW, 0.0) == "crowded"
    held.due(10.0)
    held.due(4_000.0)
    assert held.add(row(0), other, ("p", 1), NOW, 4_000.0) == ""
