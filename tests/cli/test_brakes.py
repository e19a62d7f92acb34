"""The brakes by hand: what is published, and what is refused before anything is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from rebalancer.adapters.store import Store
from rebalancer.adapters.streams import reader
from rebalancer.adapters.translate import decode
from rebalancer.cli import brakes, doors, requesting, steering
from rebalancer.cli.exits import Refused
from rebalancer.core.facts import Control
from rebalancer.core.stimuli import Approved, FactObserved, RecallRequested
from rebalancer.settings import Settings
from rebalancer.wire.envelope import Record
from tests.cli import night
from tests.cli.conftest import Run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, store: Store) -> list[Record]:
    """What the commands publish; they read the night."""
    records: list[Record] = []

    async def fetch_store(_: Settings, __: Sequence[str]) -> Store:
        return store

    async def publish(_: object, given: Sequence[Record], __: int) -> None:
        records.extend(given)

    monkeypatch.setattr(doors, "fetch_store", fetch_store)
    monkeypatch.setattr(reader, "publish", publish)
    return records


def said(records: list[Record]) -> object:
    (record,) = records
    return decode(*record)


def test_pause_keeps_everything_else_of_the_brakes(run: Run, sent: list[Record]) -> None:
    told = run("pause", "--why", "firmware", "--by", "grace", "--cluster", "berlin")
    assert told.exit_code == 0
    fact = said(sent)
    assert isinstance(fact, FactObserved)
    assert fact.fact == Control(paused=True, paused_pools=("infer-l20",), by="grace", why="firmware")
    assert (told.stdout, sent[0].topic) == ("", "gpu.fact.control.v1")


def test_one_pool_can_be_paused_and_resumed(run: Run, sent: list[Record]) -> None:
    assert run("pause", "--pool", "infer-a100", "--by", "grace").exit_code == 0
    fact = said(sent)
    assert isinstance(fact, FactObserved)
    assert isinstance(fact.fact, Control)
    assert fact.fact.paused_pools == ("infer-a100", "infer-l20")
    assert steering.resumed(fact.fact, "grace", "", pool="infer-a100").paused_pools == ("infer-l20",)


def test_resume_lets_everything_go_again(run: Run, sent: list[Record]) -> None:
    assert run("resume", "--by", "grace").exit_code == 0
    fact = said(sent)
    assert isinstance(fact, FactObserved)
    assert fact.fact == Control(by="grace")


def test_one_pool_cannot_go_while_everything_is_paused() -> None:
    with pytest.raises(Refused, match="everything is paused") as refused:
        steering.resumed(Control(paused=True), "grace", "", pool="infer-a100")
    assert refused.value.code == 3


@pytest.mark.parametrize(
    ("options", "scope", "target"),
    [
        pytest.param(["--node", "a-1"], "node", "a-1", id="a node"),
        pytest.param(["--pool", "infer-a100"], "pool", "infer-a100", id="a pool"),
        pytest.param(["--all"], "all", "", id="all"),
    ],
)
def test_a_recall_is_a_request_that_says_who(
    run: Run, sent: list[Record], options: list[str], scope: str, target: str
) -> None:
    told = run("recall", *options, "--by", "grace", "--json")
    assert told.exit_code == 0
    asked = said(sent)
    assert isinstance(asked, RecallRequested)
    assert (asked.scope, asked.target, asked.by) == (scope, target, "grace")
    assert json.loads(told.stdout)["topic"] == "gpu.control.v1"


def test_an_approval_is_a_request(run: Run, sent: list[Record]) -> None:
    assert run("approve", night.HELD_BACK, "--by", "grace").exit_code == 0
    asked = said(sent)
    assert isinstance(asked, Approved)
    assert (asked.plan, asked.by) == (night.HELD_BACK, "grace")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["recall", "--node", "a-11"], "no node is called 'a-11'; did you mean a-1", id="a node misspelt"),
        pytest.param(["recall", "--pool", "infer-a10"], "did you mean infer-a100?", id="a pool misspelt"),
        pytest.param(["pause", "--pool", "infer"], "no pool is called 'infer'", id="a pool to pause misspelt"),
        pytest.param(["approve", "cccc000000000004"], "did you mean cccc000000000003", id="a decision misspelt"),
        pytest.param(["approve", night.RECLAIM], "does not wait for approval", id="a decision that does not wait"),
    ],
)
def test_a_name_that_nobody_has_is_refused_and_nothing_is_sent(
    run: Run, sent: list[Record], arguments: list[str], says: str
) -> None:
    told = run(*arguments)
    assert (told.exit_code, told.stdout, sent) == (1, "", [])
    assert says in told.stderr


def test_an_approval_that_comes_too_late_is_refused(store: Store) -> None:
    with pytest.raises(Refused, match="was valid until"):
        brakes.waiting(store, night.HELD_BACK, datetime(3000, 1, 1, tzinfo=UTC))


def test_whoever_asks_is_named_even_without_saying_so() -> None:
    assert "@" in requesting.whoami()
