"""The connection itself: what is an answer, what is a fault, how long anything may take, and which token is sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from rebalancer.adapters.cluster import connection
from rebalancer.adapters.cluster.connection import JSON_PATCH, Api, NotConnected, connected
from rebalancer.settings import KubernetesSettings


class Server:
    """Notes what it is asked; answers by path."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        sent = await request.text()
        self.asked.append((request.method, request.path_qs, request.headers.get("Authorization", ""), sent))
        if request.path == "/slow":
            await asyncio.sleep(5)
        if request.path == "/text":
            return web.Response(text="ok")
        if request.path == "/broken":
            return web.Response(text="{", content_type="application/json")
        if request.path == "/redirected":
            raise web.HTTPTooManyRequests(headers={"Retry-After": "7"})
        if request.path == "/watch":
            return await self._watch(request)
        return web.json_response({"message": "the object has been modified"}, status=409)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"type":"BOOKMARK","object":{}}\n\n')
        await response.write(b'{"type":"ADDED","object":{"pad":"' + b"x" * 3_000_000 + b'"}}\n')
        if request.query.get("then") == "silence":
            await asyncio.sleep(5)
        if request.query.get("then") == "cut" and request.transport is not None:
            request.transport.abort()
        return response


@asynccontextmanager
async def at(server: Server, folder: Path, **user: str) -> AsyncIterator[Api]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    place = folder / "kubeconfig"
    place.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "first",
                "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
                "users": [{"name": "us", "user": user or {"token": "one"}}, {"name": "them", "user": {"token": "two"}}],
                "contexts": [
                    {"name": "first", "context": {"cluster": "it", "user": "us"}},
                    {"name": "second", "context": {"cluster": "it", "user": "them"}},
                ],
            }
        )
    )
    try:
        async with connected(KubernetesSettings(kubeconfig=place)) as api:
            yield api
    finally:
        await runner.cleanup()


async def test_a_status_is_an_answer_and_is_asked_for_once(tmp_path: Path) -> None:
    server = Server()
    async with at(server, tmp_path) as api:
        reply = await api.request("GET", "/x", timeout=2)
        throttled = await api.request("GET", "/redirected", timeout=2)
    assert (reply.ok, reply.status, reply.message) == (False, 409, "the object has been modified")
    assert (throttled.status, throttled.retry_after) == (429, 7.0)
    assert len(server.asked) == 2


@pytest.mark.parametrize("exempt", [pytest.param("", id="by it"), pytest.param("127.0.0.1", id="past it, if exempt")])
async def test_the_surroundings_proxy_is_asked_and_no_netrc_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    proxy, server, netrc = Server(), Server(), tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password secret")
    monkeypatch.setenv("NETRC", str(netrc))
    async with at(proxy, tmp_path) as beside:
        monkeypatch.setenv("http_proxy", beside.host)
        monkeypatch.setenv("no_proxy", exempt)
        async with at(server, tmp_path) as api:
            await api.request("GET", "/x", timeout=2)
    asked, spared = (server, proxy) if exempt else (proxy, server)
    assert [authorization for _, _, authorization, _ in asked.asked] == ["Bearer one"]
    assert spared.asked == []


async def test_bodies_go_as_they_are_and_queries_are_spelled_as_kubernetes_has_them(tmp_path: Path) -> None:
    server = Server()
    patch = [{"op": "test", "path": "/a", "value": None}]
    async with at(server, tmp_path) as api:
        await api.request("PATCH", "/x", body=patch, content_type=JSON_PATCH, query={"dryRun": "All"}, timeout=2)
        await api.request("DELETE", "/x", body={"preconditions": {"uid": "u"}}, query={"force": True}, timeout=2)
    assert [(method, path) for method, path, _, _ in server.asked] == [
        ("PATCH", "/x?dryRun=All"),
        ("DELETE", "/x?force=true"),
    ]
    assert json.loads(server.asked[0][3]) == patch
    assert json.loads(server.asked[1][3]) == {"preconditions": {"uid": "u"}}


async def test_what_is_no_json_is_bytes_and_what_lies_about_it_is_a_fault(tmp_path: Path) -> None:
    async with at(Server(), tmp_path) as api:
        assert (await api.request("GET", "/text", timeout=2)).body == b"ok"
        with pytest.raises(NotConnected, match="no JSON"):
            await api.request("GET", "/broken", timeout=2)


async def test_no_request_takes_longer_than_it_may(tmp_path: Path) -> None:
    async with at(Server(), tmp_path) as api:
        with pytest.raises(TimeoutError, match=r"within 0\.1 seconds"):
            await api.request("GET", "/slow", timeout=0.1)
        assert (await api.request("GET", "/x", timeout=2)).status == 409


async def test_a_watch_gives_its_lines_however_long_and_ends_with_the_server(tmp_path: Path) -> None:
    async with at(Server(), tmp_path) as api:
        kinds = [event["type"] async for event in api.stream("/watch", idle=2)]
    assert kinds == ["BOOKMARK", "ADDED"]


async def test_a_watch_that_is_cut_or_falls_silent_is_a_fault(tmp_path: Path) -> None:
    async with at(Server(), tmp_path) as api:
        with pytest.raises(NotConnected):
            _ = [event async for event in api.stream("/watch", {"then": "cut"}, idle=2)]
        with pytest.raises(TimeoutError, match="silent"):
            _ = [event async for event in api.stream("/watch", {"then": "silence"}, idle=0.2)]


async def test_a_watch_that_is_refused_says_so_as_one_event(tmp_path: Path) -> None:
    async with at(Server(), tmp_path) as api:
        events = [event async for event in api.stream("/x", idle=2)]
    assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 409)]


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CREDENTIALS_EVERY", 0.0)
    server, token = Server(), tmp_path / "token"
    token.write_text("old")
    async with at(server, tmp_path, tokenFile=str(token)) as api:
        await api.request("GET", "/x", timeout=2)
        token.write_text("new")
        await api.request("GET", "/x", timeout=2)
    assert [sent for _, _, sent, _ in server.asked] == ["Bearer old", "Bearer new"]


async def test_the_context_of_the_settings_is_taken(tmp_path: Path) -> None:
    server = Server()
    async with at(server, tmp_path):
        settings = KubernetesSettings(kubeconfig=tmp_path / "kubeconfig", context="second")
        async with connected(settings) as other:
            await other.request("GET", "/x", timeout=2)
    assert server.asked[-1][2] == "Bearer two"


@pytest.mark.parametrize("text", ["", "{}", "apiVersion: v1\nkind: Config\n", "a: [", "- 1"])
async def test_a_kubeconfig_that_is_none_is_told_in_a_sentence(tmp_path: Path, text: str) -> None:
    place = tmp_path / "kubeconfig"
    place.write_text(text)
    with pytest.raises(NotConnected, match="kubeconfig"):
        async with connected(KubernetesSettings(kubeconfig=place)):
            pass


async def test_outside_of_a_pod_without_a_kubeconfig_is_told_in_a_sentence() -> None:
    with pytest.raises(NotConnected, match="service account"):
        async with connected(KubernetesSettings()):
            pass
