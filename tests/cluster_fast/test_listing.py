"""Lists read page by page: what a page asks for, and a list that never ends."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.adapters.cluster.listing import PAGE, Endless, pages


async def test_each_page_goes_on_from_the_one_before() -> None:
    asked: list[dict[str, str]] = []

    async def ask(page: dict[str, str]) -> dict[str, Any]:
        asked.append(page)
        return {"items": [len(asked)], "metadata": {"continue": "there" if len(asked) == 1 else ""}}

    assert [body["items"] async for body in pages(ask)] == [[1], [2]]
    assert asked == [{"limit": str(PAGE)}, {"limit": str(PAGE), "continue": "there"}]


async def test_a_list_that_goes_on_for_ever_is_an_error_and_not_a_loop() -> None:
    async def ask(_: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"continue": "more"}}

    with pytest.raises(Endless, match=f"more than {3 * PAGE}"):
        assert len([body async for body in pages(ask, 3)]) < 3
