"""The control object: made when absent, changed from what stands there, never guessed at."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rebalancer.adapters.cluster import brakes
from rebalancer.adapters.cluster.brakes import BrakesRefused, delete_control, noted, read_control, write_control
from rebalancer.adapters.cluster.connection import Api, Reply
from rebalancer.core.facts import Control
from tests.control.fakeapi import FakeApi, refusal

NAMESPACE = "gpu-rebalancer"
AT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpu-rebalancer-control"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def pause(control: Control) -> Control:
    return replace(control, paused=True, by="grace", why="firmware")


async def test_no_object_means_no_brakes(api: Api, server: FakeApi) -> None:
    assert await read_control(api, NAMESPACE) == (Control(), "")
    assert server.writes() == []


async def test_the_object_is_made_by_the_first_change(api: Api, server: FakeApi) -> None:
    assert await write_control(api, NAMESPACE, pause) == Control(paused=True, by="grace", why="firmware")
    data = server.objects[AT]["data"]
    assert (data["paused"], data["by"], data["why"]) == ("true", "grace", "firmware")
    assert "grace: paused=true firmware" in data["history"]
    assert (await read_control(api, NAMESPACE))[0].paused


async def test_what_a_person_wrote_beside_it_stays(api: Api, server: FakeApi) -> None:
    server.place(AT, data={"paused": "no", "recall-nodes": "a-1 a-2", "ticket": "OPS-7"})
    after = await write_control(api, NAMESPACE, pause)
    assert after.recall_nodes == ("a-1", "a-2")
    assert server.objects[AT]["data"]["ticket"] == "OPS-7"


async def test_a_change_that_changes_nothing_is_not_written(api: Api, server: FakeApi) -> None:
    server.place(AT, data={"paused": "true", "by": "grace", "why": "firmware"})
    assert (await write_control(api, NAMESPACE, pause)).paused
    assert server.writes() == []


async def test_a_change_by_others_in_between_is_kept(api: Api, server: FakeApi) -> None:
    server.place(AT, data={})

    def meanwhile(fake: FakeApi, method: str, path: str) -> Reply | None:
        if method == "PATCH":
            fake.hook = None
            fake.place(path, data={"recall-all": "true", "by": "ada"})
        return None

    server.hook = meanwhile
    after = await write_control(api, NAMESPACE, pause)
    assert (after.paused, after.recall_all, after.by) == (True, True, "grace")


async def test_an_object_made_by_others_in_between_is_changed(api: Api, server: FakeApi) -> None:
    def meanwhile(fake: FakeApi, method: str, path: str) -> Reply | None:
        if method == "POST":
            fake.hook = None
            fake.place(f"{path}/gpu-rebalancer-control", data={"recall-all": "true"})
        return None

    server.hook = meanwhile
    after = await write_control(api, NAMESPACE, pause)
    assert (after.paused, after.recall_all) == (True, True)


async def test_it_gives_up_when_others_always_win(api: Api, server: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brakes, "PAUSE", 0.001)
    server.place(AT, data={})
    server.hook = lambda _, method, __: refusal(409, "modified") if method == "PATCH" else None
    with pytest.raises(BrakesRefused, match="changed by others 6 times"):
        await write_control(api, NAMESPACE, pause)
    assert len(server.writes()) == brakes.TRIES


@pytest.mark.parametrize(
    ("data", "refused", "says"),
    [
        pytest.param({"paused": "perhaps"}, ("", 0), "neither true nor false; mend it: kubectl", id="unreadable"),
        pytest.param({}, ("GET", 403), "cannot be read: no", id="we may not read it"),
        pytest.param({}, ("PATCH", 403), "was not changed: no", id="we may not change it"),
        pytest.param(None, ("POST", 404), "cannot be made: no", id="there is no such namespace"),
    ],
)
async def test_what_cannot_be_done_is_said_and_nothing_is_assumed(
    api: Api, server: FakeApi, data: dict[str, str] | None, refused: tuple[str, int], says: str
) -> None:
    if data is not None:
        server.place(AT, data=data)
    server.hook = lambda _, asked, __: refusal(refused[1], "no") if asked == refused[0] else None
    with pytest.raises(BrakesRefused, match=says):
        await write_control(api, NAMESPACE, pause)


async def test_taking_it_away_twice_is_fine(api: Api, server: FakeApi) -> None:
    server.place(AT, data={})
    assert await delete_control(api, NAMESPACE)
    assert not await delete_control(api, NAMESPACE)


def test_the_history_is_bounded_and_newest_last() -> None:
    history = ""
    for count in range(brakes.KEPT + 5):
        history = noted(history, NOON, Control(), Control(max_loans=count, by="grace", why="a\nb"))
    lines = history.splitlines()
    assert (len(lines), lines[-1]) == (brakes.KEPT, "2026-03-02T12:00:00Z grace: max-loans=34 a b")
