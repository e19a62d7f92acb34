"""The reading commands: tables for people, JSON with stable keys, from a tapped folder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.adapters.store import RawRecord, Store
from rebalancer.adapters.tapfolder import NoTap, follow_folder, parse_line, read_folder
from rebalancer.adapters.translate import encode_deleted, encode_fact, encode_loan, encode_snapshot, encode_tombstone
from rebalancer.cli import reading
from rebalancer.core.facts import Control
from rebalancer.core.loans import LoanPhase
from rebalancer.core.plan import Result
from rebalancer.core.stimuli import FactDeleted, OutcomeReported, SnapshotBegan, SnapshotEnded
from rebalancer.core.units import Mode
from tests.cli import night
from tests.cli.conftest import Run


def test_pools_show_idle_gpu_hours_by_what_kept_them(run: Run, folder: Path) -> None:
    told = run("pools", "--from", folder)
    assert told.exit_code == 0
    row = next(line for line in told.stdout.splitlines() if line.startswith("infer-a100"))
    assert "floor 170.5, not-idle-long-enough 12.2" in row
    assert "busy" not in row


def test_pools_as_json_leave_nothing_out(run: Run, folder: Path) -> None:
    (pool,) = json.loads(run("pools", "--from", folder, "--json").stdout)
    assert pool["idle_gpu_hours"] == {"busy": 0.0, "floor": 170.5, "not-idle-long-enough": 12.25}
    assert (pool["pool"], pool["owned"], pool["at"]) == ("infer-a100", 160, "2026-03-04T03:20:00Z")


def test_loans_show_only_what_is_out_unless_all_are_asked_for(run: Run, folder: Path) -> None:
    assert json.loads(run("loans", "--from", folder, "--json").stdout) == []
    told = run("loans", "--from", folder)
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "no loan is out\n")
    (loan,) = json.loads(run("loans", "--from", folder, "--all", "--json").stdout)
    assert (loan["id"], loan["phase"], loan["because"]["reason"]) == ("loan-1", "returned", "idle-proven")
    assert "a-1" in run("loans", "--from", folder, "--all").stdout


def test_decisions_are_listed_with_their_sentence_and_outcome_newest_last(run: Run, folder: Path) -> None:
    told = json.loads(run("decisions", "--from", folder, "--json").stdout)
    assert [one["plan"]["id"] for one in told] == [night.LEND, night.RECLAIM, night.HELD_BACK]
    assert told[1]["sentence"] == "6 inference pods of infer-a100 wait for 24 GPUs, 8 stand ready"
    assert [outcome["kind"] for outcome in told[1]["outcomes"]] == ["close", "evict", "restore"]
    table = run("decisions", "--from", folder).stdout
    assert "3 done of 3 steps" in table
    assert "no outcome yet" in table


@pytest.mark.parametrize(
    ("options", "found"),
    [
        pytest.param(["--count", "1"], [night.HELD_BACK], id="the latest one"),
        pytest.param(["--count", "0"], [night.LEND, night.RECLAIM, night.HELD_BACK], id="all"),
        pytest.param(["--pool", "infer-l20"], [], id="of another pool"),
    ],
)
def test_decisions_can_be_narrowed(run: Run, folder: Path, options: list[str], found: list[str]) -> None:
    told = json.loads(run("decisions", "--from", folder, "--json", *options).stdout)
    assert [one["plan"]["id"] for one in told] == found


@pytest.mark.parametrize(
    ("result", "every", "shown"),
    [
        pytest.param(Result.STARTED, False, False, id="a step that began, in lines"),
        pytest.param(Result.STARTED, True, True, id="a step that began, in JSON"),
        pytest.param(Result.BLOCKED, False, True, id="a step that is held up"),
        pytest.param(Result.DONE, False, True, id="a step that is done"),
    ],
)
def test_following_shows_a_decision_anew_when_its_line_is_another(
    store: Store, result: Result, every: bool, shown: bool
) -> None:
    told = next(iter(store.results(store.plans[night.RECLAIM])))
    changed = reading.changed(store, OutcomeReported(replace(told, result=result)), every=every)
    assert (changed is not None) is shown


def test_status_says_how_things_stand(run: Run, folder: Path) -> None:
    told = json.loads(run("status", "--from", folder, "--json").stdout)
    assert {key: told[key] for key in ("pools", "nodes", "gpus", "loans_open", "loans_overdue", "paused")} == {
        "pools": 1,
        "nodes": 2,
        "gpus": 16,
        "loans_open": 0,
        "loans_overdue": [],
        "paused": False,
    }
    assert told["paused_pools"] == ["infer-l20"]
    assert told["brakes"] == "paused: infer-l20"
    assert told["alerts"][0]["sentence"] == "a-9 is 60 s past its due time"
    assert told["last_decision"]["id"] == night.HELD_BACK
    assert "last decision" in run("status", "--from", folder).stdout


def test_an_overdue_loan_is_named(store: Store, run: Run, folder: Path) -> None:
    late = encode_loan(night.loan(LoanPhase.ON_LOAN), night.CLUSTER, night.at(600))
    with (folder / "gpu.state.loan.v1.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"topic": late.topic, "key": "loan-1", "value": json.loads(late.value or b"")}) + "\n")
    assert json.loads(run("status", "--from", folder, "--json").stdout)["loans_overdue"] == ["loan-1"]
    assert store.loans["loan-1"].phase is LoanPhase.RETURNED


def test_a_folder_without_topics_ends_with_1_and_says_how_to_make_one(run: Run, tmp_path: Path) -> None:
    told = run("pools", "--from", tmp_path)
    assert (told.exit_code, told.stdout) == (1, "")
    assert "`rebalancer demo --out DIR` writes them" in told.stderr
    with pytest.raises(NoTap):
        list(read_folder(tmp_path / "none"))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"topic": "gpu.state.pool.v1", "key": "a"', id="a line that was cut off"),
        pytest.param(b"[]\n", id="a list"),
        pytest.param(b'{"topic": "gpu.state.pool.v1"}\n', id="a line without key and value"),
        pytest.param(b"\xff\n", id="bytes that are no text"),
    ],
)
def test_a_line_that_is_no_record_is_passed_over(line: bytes) -> None:
    assert parse_line(line) is None


def test_a_record_that_cannot_be_read_is_counted_and_the_rest_goes_on(store: Store) -> None:
    before = len(store.pools)
    assert store.feed(RawRecord("gpu.state.pool.v1", b"a", b"no json")) is None
    assert store.feed(RawRecord("somebody.elses", b"a", b"{}")) is None
    assert (dict(store.unread), len(store.pools)) == ({"bytes": 1, "topic": 1}, before)


def test_a_tombstone_takes_away_what_it_names(store: Store) -> None:
    for record in night.records():
        if record.topic == "gpu.state.pool.v1":
            store.feed(RawRecord(*encode_tombstone(record, night.at(400), night.CLUSTER)))
    store.feed(RawRecord(*encode_deleted(FactDeleted("node", "n2", night.at(400)), night.CLUSTER)))
    assert (dict(store.pools), list(store.nodes)) == ({}, ["n1"])


def test_a_tombstone_without_headers_does_too(store: Store) -> None:
    store.feed(RawRecord("gpu.state.pool.v1", f"{night.CLUSTER}/infer-a100".encode(), None))
    assert dict(store.pools) == {}


def test_another_clusters_records_are_not_taken_in() -> None:
    store = Store(cluster="paris")
    store.feed(RawRecord(*encode_fact(night.node("n1", "a-1"), night.CLUSTER, night.T0)))
    store.feed(RawRecord(*encode_fact(night.node("n2", "p-1"), "paris", night.T0)))
    assert list(store.nodes) == ["n2"]


async def test_following_a_folder_gives_what_is_appended_in_whole_lines(folder: Path) -> None:
    path = folder / "gpu.decision.plan.v1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    coming = follow_folder(folder, (path.stem,))
    first = asyncio.ensure_future(anext(coming))
    await asyncio.sleep(0)  # it has looked once: what stands there is not new
    with path.open("ab") as file:
        file.write(lines[0] + lines[1][:20])
    assert json.loads((await first).value or b"")["data"]["id"] == night.LEND
    with path.open("ab") as file:
        file.write(lines[1][20:])
    assert json.loads((await anext(coming)).value or b"")["data"]["id"] == night.RECLAIM
    await coming.aclose()


def test_brakes_whose_object_is_gone_by_the_latest_full_list_are_not_told_any_more() -> None:
    at = night.at(0)
    told = [
        encode_fact(Control(retired=True, max_loans=5), "c", at),
        encode_snapshot(SnapshotBegan("control", "s", at), "c"),
        encode_snapshot(SnapshotEnded("control", "s", 0, at), "c"),
    ]
    stores = [Store().feed_all(RawRecord(*one) for one in told[:count]) for count in (1, 3)]
    assert [reading.standing(store)["brakes"] for store in stores] == [
        "being retired, at most 5 loans",
        "nothing is paused or recalled",
    ]


def test_loans_that_stand_in_shadow_alone_are_counted_for_themselves() -> None:
    store = Store()
    real = night.loan(LoanPhase.ON_LOAN)
    for loan in (real, replace(real, id="shadow", mode=Mode.SHADOW)):
        store.loans[loan.id] = loan
    told = reading.standing(store)
    assert (told["loans_open"], told["gpus_lent"], told["loans_in_shadow"]) == (1, real.gpus, 1)
