"""What is told to Kubernetes of what act did: to whom, in which words, how often, and that nothing waits for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rebalancer.adapters.cluster import events
from rebalancer.adapters.cluster.connection import Reply
from rebalancer.adapters.cluster.events import AGAIN_AFTER, DONE, NOTE_LIMIT, NOTICE, WAITING, Events, camel
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.plan import CloseNode, EvictGang, LendNode, Method, Outcome, Plan, RestoreNode, Result, Step
from rebalancer.core.protocol.calls import AnswerKind, GiveNotice
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode, OwnerClass
from tests.hands.fakeapi import Kube, direct, refusal
from tests.hands.things import NOW, OWNER, hands, member, raw_pod

DUE = Because(Reason.LOAN_DUE, {"node": "n1", "due": "06:00", "return_seconds": 120})
IDLE = Because(Reason.IDLE_PROVEN, {"node": "n1", "idle_minutes": 30, "spare_nodes": 2, "gang": "g", "due": "06:00"})
JOBSET = "JobSet.v1alpha2.jobset.x-k8s.io/train"
LEND = LendNode(
    "loan", "uid-n1", "n1", "infer-l20", OwnerClass.TRAINING, "g", 8, NOW, NOW, OWNER
)  # fmt: skip
CLOSE = CloseNode("loan", "uid-n1", "n1")
RESTORE = RestoreNode("loan", "uid-n1", "n1", NOW)
EVICT = EvictGang(
    "g", "team//train", "team", JOBSET, (member("p1"),), True, NOW, NOW, 0, 30, 0.0, DUE
)  # fmt: skip


def plan(*steps: Step, because: Because = DUE, name: str = "plan") -> Plan:
    return Plan(name, "infer-l20", Method.RETURN, Mode.ACT, because, steps, NOW, NOW + timedelta(minutes=10))


def became(of: Plan, index: int, result: Result, because: Because | None = None, **numbers: int) -> Outcome:
    confirmed = because or Because(Reason.CONFIRMED)
    return Outcome(of.id, of.pool, index, of.steps[index].kind, "t", result, confirmed, NOW, numbers=numbers)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is set by hand, so nobody waits for it."""
    monkeypatch.setattr(events, "LATER", 0.0)


class Told:
    """Events over a server in memory, with a clock that is set by hand."""

    def __init__(self, kube: Kube | None = None) -> None:
        self.kube = kube or Kube()
        self.metrics = Metrics()
        self.now = 0.0
        self.events = Events(
            direct(self.kube)[0], "pod-0_1", timedelta(minutes=15), self.metrics, clock=lambda: self.now
        )

    async def all(self) -> list[dict[str, Any]]:
        """Everything that was sent once nothing waits any more."""
        task = asyncio.create_task(self.events.run())
        before = -1.0
        while (now := sum(self.count(one) for one in ("told", "failed"))) != before or self.events._waiting.qsize():
            before = now
            await asyncio.sleep(0.02)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return [one.body for one in self.kube.asked_for("POST")]

    def count(self, result: str) -> float:
        return self.metrics.registry.get_sample_value("gpu_rebalancer_events_total", {"result": result}) or 0.0


@pytest.mark.parametrize(
    ("step", "result", "because", "reason", "kind"),
    [
        pytest.param(LEND, Result.DONE, None, "Lent", "Normal", id="a node is lent"),
        pytest.param(CLOSE, Result.DONE, None, "Recalled", "Normal", id="a node is called home"),
        pytest.param(RESTORE, Result.DONE, None, "Returned", "Normal", id="a node is home"),
        pytest.param(RESTORE, Result.REFUSED, Because(Reason.CONTENDED), "Contended", "Warning", id="contended"),
        pytest.param(RESTORE, Result.BLOCKED, Because(Reason.STUCK), "Stuck", "Warning", id="a pod is stuck"),
        pytest.param(LEND, Result.REFUSED, Because(Reason.NODE_TAKEN), "NodeTaken", "Normal", id="undone in time"),
    ],
)
async def test_a_node_is_told_what_becomes_of_it(
    step: Step, result: Result, because: Because | None, reason: str, kind: str
) -> None:
    told = Told()
    of = plan(step, because=IDLE if step is LEND else DUE)
    told.events.heard(of)
    told.events.told(became(of, 0, result, because))
    (sent,) = await told.all()
    assert (sent["reason"], sent["type"], sent["metadata"]["namespace"]) == (reason, kind, "default")
    assert sent["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    assert sent["eventTime"] == "2026-03-02T22:00:00.000000Z"
    assert sent["note"]


async def test_the_note_is_the_sentence_of_topic_and_page() -> None:
    told = Told()
    of = plan(CLOSE)
    told.events.heard(of)
    told.events.told(became(of, 0, Result.DONE))
    assert (await told.all())[0]["note"] == "the loan of n1 is due at 06:00 and its return takes up to 120 s"


async def test_a_gangs_top_owner_is_told_of_eviction_and_cooldown_under_its_uid() -> None:
    told = Told()
    told.kube.faults = [
        lambda asked: (
            Reply(200, {}, {"items": [{"metadata": {"uid": "uid-of-train"}}]})
            if asked.path == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
            else None
        )
    ]
    of = plan(CLOSE, EVICT)
    told.events.heard(of)
    told.events.told(became(of, 1, Result.DONE, members=1))
    sent = await told.all()
    assert [one["reason"] for one in sent] == ["GangEvicted", "Cooldown"]
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "namespace": "team"}
    assert all(one["regarding"] == {**owner, "uid": "uid-of-train"} for one in sent)
    assert sent[1]["note"].endswith("again at 2026-03-02 22:15Z at the earliest (it rests at least 15 min)")
    assert len(told.kube.asked_for("GET")) == 1, "one look-up for one owner"


async def test_a_gang_that_left_by_itself_has_no_cooldown() -> None:
    told = Told()
    of = plan(EVICT)
    told.events.heard(of)
    told.events.told(became(of, 0, Result.DONE, members=0))
    assert [one["reason"] for one in await told.all()] == ["GangEvicted"]


async def test_notice_reaches_the_top_owner_once_it_was_given() -> None:
    told = Told()
    told.kube.put("/api/v1/namespaces/team/pods/p1", raw_pod("p1", "n1"))
    by = hands(direct(told.kube)[0])
    by._events = told.events
    call = GiveNotice("g", (member("p1"),), JOBSET, NOW, "the loan is due")
    assert (await by.perform(call)).kind is AnswerKind.OK
    sent = await told.all()
    assert [one["reason"] for one in sent] == ["RecallNotice"]
    assert sent[0]["note"] == "to be evicted from 2026-03-02 22:00:00Z on: the loan is due"
    told.kube.objects.clear()
    assert (await by.perform(call)).kind is AnswerKind.GONE
    assert len(await told.all()) == 1


async def test_the_same_about_the_same_is_told_once_in_a_while() -> None:
    told = Told()
    blocked = Because(Reason.STUCK, {"pod": "team/p1", "seconds": 200})
    for number, after in enumerate((0.0, 60.0, AGAIN_AFTER - 60.0, AGAIN_AFTER)):
        told.now = after
        of = plan(RESTORE, name=f"plan-{number}")
        told.events.heard(of)
        told.events.told(became(of, 0, Result.BLOCKED, blocked))
    assert len(await told.all()) == 2
    assert told.count("repeated") == 2


async def test_too_many_are_dropped_and_counted_and_nothing_waits() -> None:
    told = Told()
    for number in range(WAITING + 7):
        of = plan(replace(CLOSE, node=f"uid-{number}", node_name=f"n{number}"), name=f"plan-{number}")
        told.events.heard(of)
        told.events.told(became(of, 0, Result.DONE))
    assert told.count("crowded") == 7


async def test_what_is_remembered_is_bounded() -> None:
    told = Told()
    for number in range(6_000):
        of = plan(replace(CLOSE, node=f"uid-{number}"), name=f"plan-{number}")
        told.events.heard(of)
        told.events.told(became(of, 0, Result.DONE))
        told.events._waiting.get_nowait()
    assert len(told.events._plans) <= 1_024
    assert len(told.events._lately) <= 4_096


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refusal(403, "Forbidden", "no"), id="refused"),
        pytest.param(ConnectionRefusedError(), id="no server"),
        pytest.param(TimeoutError(), id="a server that hangs"),
        pytest.param(LookupError("nobody thought of it"), id="a defect of ours"),
    ],
)
async def test_an_event_that_cannot_be_told_is_counted_and_not_repeated(fault: Reply | Exception) -> None:
    told = Told()
    told.kube.faults = [lambda _: fault]
    of = plan(CLOSE)
    told.events.heard(of)
    told.events.told(became(of, 0, Result.DONE))
    assert len(await told.all()) == 1
    assert (told.count("failed"), told.count("told")) == (1, 0)


async def test_what_nobody_can_be_told_is_left_out() -> None:
    told = Told()
    orphan = plan(replace(EVICT, top_owner=""))
    told.events.heard(orphan)
    told.events.told(became(orphan, 0, Result.DONE, members=1))
    told.events.told(became(plan(CLOSE, name="never heard of"), 0, Result.DONE))
    told.events.told(replace(became(orphan, 0, Result.DONE), step=-1))
    assert await told.all() == []


async def test_a_long_note_is_cut_where_the_server_would_refuse_it() -> None:
    told = Told()
    of = plan(CLOSE, because=Because(Reason.OPERATOR_RECALL, {"by": "x" * 2000, "target": "n1"}))
    told.events.heard(of)
    told.events.told(became(of, 0, Result.DONE))
    assert len((await told.all())[0]["note"]) == NOTE_LIMIT


def test_reasons_are_a_closed_set_of_words_that_kubernetes_takes() -> None:
    reasons = {*DONE.values(), NOTICE, *map(camel, Reason)}
    assert camel(Reason.NODE_GONE) == "NodeGone"
    assert all(one.isalnum() and one[0].isupper() and len(one) <= 128 for one in reasons)
    assert len(reasons) >= len(Reason)
