"""What people read over HTTP: why things happened, as text or JSON; nothing but reading; and the probes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

import rebalancer.adapters.why as answers
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.serving import pages
from rebalancer.adapters.store import RawRecord, Store
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.explaining import Explaining
from rebalancer.adapters.streams.health import Health
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.translate import encode_alert
from rebalancer.adapters.why import UnknownTarget, why
from rebalancer.core.instructions import ClearAlert
from tests.cli import night
from tests.core.protocol.fake import pod

Client: TypeAlias = TestClient[web.Request, web.Application]


@dataclass
class Known:
    store: Store
    loaded: bool = True


@pytest.fixture
def known() -> Known:
    return Known(Store().feed_all(RawRecord(*record) for record in night.records()))


@pytest.fixture
def health() -> Health:
    return Health("act", Metrics())


@pytest.fixture
async def client(known: Known, health: Health) -> AsyncIterator[Client]:
    async with TestClient(TestServer(pages(Metrics(), [health], known))) as found:
        yield found


@pytest.mark.parametrize("target", [night.RECLAIM, night.GANG, "research/llm-7-0", "a-1", "n1", "loan-1", "alert-1"])
async def test_why_answers_as_the_command_line_does(client: Client, known: Known, target: str) -> None:
    answer = await client.get(f"/why/{target}")
    assert (answer.status, answer.content_type) == (200, "text/plain")
    assert await answer.text() == why(known.store, target).sentence + "\n"


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        pytest.param("?format=json", "", id="asked for in the address"),
        pytest.param("", "application/json", id="wanted"),
    ],
)
async def test_json_says_all_that_the_sentence_was_made_from(client: Client, query: str, accept: str) -> None:
    answer = await client.get(f"/why/{night.GANG}{query}", headers={"Accept": accept} if accept else {})
    assert answer.content_type == "application/json"
    told = await answer.json()
    assert (told["kind"], told["plan"]["id"], told["target"]) == ("gang", night.RECLAIM, night.GANG)
    assert told["sentence"].startswith("research/llm-7 was evicted")


async def test_an_unknown_name_is_404_and_names_what_is_called_like_it(client: Client) -> None:
    answer = await client.get("/why/research/llm-8?format=json")
    assert answer.status == 404
    assert "research/llm-7" in (await answer.json())["nearest"]
    assert (await client.get("/why/" + "x" * 5000)).status == 404


def test_an_unknown_name_is_not_compared_with_every_pod_of_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing costs some 0.1 ms a name, on the loop that also keeps the Lease."""
    compared: list[int] = []

    def counted(word: str, names: Sequence[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(names))
        return get_close_matches(word, names, n, cutoff)

    monkeypatch.setattr(answers, "get_close_matches", counted)
    store = Store(pods={f"uid-{number}": pod(f"worker-{number:05}") for number in range(5_000)})
    with pytest.raises(UnknownTarget, match="worker-0234"):
        why(store, "ml/worker-0234x")
    assert compared
    assert max(compared) <= 2 * answers.COMPARED


async def test_an_alert_that_is_over_can_still_be_asked_about(client: Client, known: Known) -> None:
    known.store.feed(RawRecord(*encode_alert(ClearAlert("alert-1", night.at(330)), night.CLUSTER)))
    text = await (await client.get("/why/alert-1")).text()
    assert text == "critical since 2026-03-04 03:20Z, over by now: a-9 is 60 s past its due time\n"


async def test_loans_and_decisions_are_listed(client: Client, known: Known) -> None:
    assert await (await client.get("/loans")).text() == "no loan is out\n"
    decisions = await (await client.get("/decisions?count=1&format=json")).json()
    assert [one["plan"]["id"] for one in decisions] == [known.store.recent(1)[0].id]
    assert len(await (await client.get("/decisions?count=many&format=json")).json()) == len(known.store.plans)


@pytest.mark.parametrize("page", ["/why/a-1", "/loans", "/decisions"])
async def test_before_the_topics_are_read_one_is_asked_to_come_back(client: Client, known: Known, page: str) -> None:
    known.loaded = False
    answer = await client.get(page)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
@pytest.mark.parametrize("page", ["/why/a-1", "/loans", "/decisions", "/metrics", "/healthz", "/readyz"])
async def test_nothing_can_be_changed(client: Client, method: str, page: str) -> None:
    assert (await client.request(method, page)).status == 405


async def test_probes_tell_health_and_readiness(client: Client, health: Health) -> None:
    assert [(await client.get(page)).status for page in ("/healthz", "/readyz")] == [200, 200]
    health.began(0)
    assert [(await client.get(page)).status for page in ("/healthz", "/readyz")] == [200, 503]
    health.progressed -= 3600
    assert (await client.get("/healthz")).status == 503


async def test_without_a_store_there_are_no_pages_that_explain(health: Health) -> None:
    async with TestClient(TestServer(pages(Metrics(), [health]))) as client:
        assert (await client.get("/why/a-1")).status == 404
        assert "gpu_rebalancer_ready" in await (await client.get("/metrics")).text()


def test_the_store_forgets_the_oldest_plans() -> None:
    small = Store(kept_plans=2).feed_all(RawRecord(*record) for record in night.records())
    assert len(small.plans) == 2
    assert set(small.plans) == set(list(Store().feed_all(RawRecord(*one) for one in night.records()).plans)[-2:])


async def test_what_follows_the_topics_keeps_to_its_cluster() -> None:
    explaining = Explaining(KafkaSettings(), "paris", 0)
    for offset, record in enumerate(night.records()):
        await explaining._take(Came(record.topic, 0, offset, record.key, record.value, tuple(record.headers)))
    assert (explaining.loaded, explaining.store.plans) == (False, {})
