"""Leadership in loop time against a server in memory: who leads when, and what the other may still send."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import looptime
import pytest

from rebalancer.adapters.cluster.connection import Reply
from rebalancer.adapters.cluster.lease import Held, Leadership
from rebalancer.adapters.cluster.leaserecord import record, stamp
from rebalancer.adapters.metrics import Metrics
from rebalancer.settings import LeaseSettings
from tests.hands.fakeapi import Asked, DirectApi, Kube, direct, refusal

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ours/leases"
LEASE = f"{LEASES}/gpu-rebalancer-act"
SETTINGS = LeaseSettings()


def played(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story in loop time: hours cost nothing, and nothing depends on the machine's speed."""
    loop = looptime.new_event_loop()
    try:
        loop.run_until_complete(story())
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


class Replica:
    """A contender that notes when it led. ``frozen`` is a process that is stopped: neither clock nor work go on."""

    def __init__(self, kube: Kube, identity: str, least: int = 1) -> None:
        self.api: DirectApi
        api, self.api = direct(kube, delay=0.01)

        async def floor() -> int:
            return least

        self.metrics = Metrics()
        self.leadership = Leadership(
            api, SETTINGS, "ours", "act", identity, self.metrics, floor, clock=asyncio.get_running_loop().time
        )
        self.epochs: list[int] = []
        self.held: Held | None = None
        self.spans: list[tuple[float, float]] = []
        self.task = asyncio.create_task(self.leadership.lead(self.work))

    async def work(self, held: Held) -> None:
        self.held = held
        self.epochs.append(held.epoch)
        began = now()
        try:
            await asyncio.Event().wait()
        finally:
            self.spans.append((began, now()))

    @property
    def leads(self) -> bool:
        return self.leadership.leading

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def until(true: Callable[[], bool], within: float) -> float:
    """Wait for it, at most so many seconds; when it was so."""
    async with asyncio.timeout(within):
        while not true():  # noqa: ASYNC110 - in loop time a look costs nothing
            await asyncio.sleep(0.05)
    return now()


def spec(kube: Kube) -> Any:
    return kube.objects[LEASE]["spec"]


def test_one_of_two_leads_and_its_release_is_the_others_turn_at_once() -> None:
    async def story() -> None:
        kube = Kube()
        one, other = Replica(kube, "one"), Replica(kube, "other")
        await until(lambda: one.leads or other.leads, 5)
        first, second = (one, other) if one.leads else (other, one)
        await asyncio.sleep(120)
        assert (first.epochs, second.epochs) == ([1], [])
        await first.end()
        assert spec(kube)["holderIdentity"] == ""
        ended = now()
        assert await until(lambda: second.leads, 10) - ended <= SETTINGS.retry + 0.1
        assert second.epochs == [2]
        await second.end()

    played(story)


def test_a_renewal_that_came_first_does_not_keep_the_lease_from_being_given_back() -> None:
    """A renewal is cancelled with its work, but its request may have arrived."""

    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        kube.put(LEASE, {**kube.objects[LEASE], "spec": {**spec(kube), "renewTime": stamp(datetime.now(UTC))}})
        await one.end()
        assert spec(kube)["holderIdentity"] == ""

    played(story)


def test_a_holder_that_cannot_renew_ends_its_work_before_it_expires_and_the_other_waits_it_out() -> None:
    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        other = Replica(kube, "other")
        await asyncio.sleep(30)
        one.api.hanging = True
        renewed = kube.asked_for("PUT")[-1].body["spec"]["renewTime"]
        assert renewed
        cut = now()
        await until(lambda: bool(one.spans), 60)
        took = await until(lambda: other.leads, 60)
        began, ended = one.spans[0]
        assert began < ended <= cut + SETTINGS.renew + 0.1, "work ends by the deadline for renewing"
        assert ended + SETTINGS.duration - SETTINGS.renew <= took + 0.2
        assert took - cut >= SETTINGS.duration - SETTINGS.retry - 0.1, "the other waits a whole duration"
        assert (one.epochs, other.epochs) == ([1], [2])
        await one.end()
        await other.end()

    played(story)


def test_no_two_ever_lead_at_once_whatever_connection_fails() -> None:
    """Connections come and go at odd times; spans of leadership never overlap, epochs only grow."""

    async def story() -> None:
        kube, dice = Kube(), random.Random(7)
        replicas = [Replica(kube, f"r{number}") for number in range(3)]

        async def shake(replica: Replica) -> None:
            while True:
                replica.api.hanging = not replica.api.hanging and dice.random() < 0.6
                await asyncio.sleep(dice.uniform(0.5, 25.0))

        shaken = [asyncio.create_task(shake(replica)) for replica in replicas]
        for _ in range(1_000):
            await asyncio.sleep(1.1)
            assert sum(one.leads for one in replicas) <= 1
        for task in shaken:
            task.cancel()
        for replica in replicas:
            replica.api.hanging = False
            await replica.end()
        spans = sorted(span for replica in replicas for span in replica.spans)
        assert len(spans) > 8
        assert len([one for one in replicas if one.spans]) == len(replicas)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        epochs = sorted(epoch for replica in replicas for epoch in replica.epochs)
        assert len(epochs) == len(set(epochs))

    played(story)


class Frozen:
    """A clock that is read by a process which did not run for a while."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_was_stopped_past_the_expiry_may_send_nothing_when_it_goes_on() -> None:
    """The clock goes on while nothing of the process runs, so the first thing it asks already says no."""
    clock = Frozen()
    held = Held(4, 15.0, clock)
    assert held.remaining() == 15.0
    clock.now = 55.0
    assert held.remaining() == 0.0


def test_a_stopped_holder_finds_its_lease_taken_and_begins_again_as_a_waiter() -> None:
    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        kube.put(LEASE, {"metadata": {"uid": kube.objects[LEASE]["metadata"]["uid"]}, "spec": held_by("two", 2)})
        await until(lambda: bool(one.spans), 10)
        assert one.held is not None
        assert one.held.remaining() == 0.0
        assert spec(kube)["holderIdentity"] == "two", "what it lost it does not release"
        await until(lambda: len(one.epochs) == 2, 60)
        assert one.epochs == [1, 3]
        await one.end()

    played(story)


def held_by(who: str, epoch: int, seconds: int = 15) -> dict[str, Any]:
    at = stamp(datetime(2026, 3, 2, 22, tzinfo=UTC))
    return {
        "holderIdentity": who, "leaseDurationSeconds": seconds, "acquireTime": at, "renewTime": at,
        "leaseTransitions": epoch,
    }  # fmt: skip


def test_a_restart_under_the_same_name_waits_like_anybody_and_gets_a_new_epoch() -> None:
    """The old process of that name may only be stopped: it must be waited out, and fenced."""

    async def story() -> None:
        kube = Kube()
        kube.put(LEASE, {"metadata": {}, "spec": held_by("pod-0", 7)})
        again = Replica(kube, "pod-0")
        began = now()
        assert await until(lambda: again.leads, 60) - began >= SETTINGS.duration
        assert again.epochs == [8]
        await again.end()

    played(story)


def test_who_lost_it_to_a_server_that_was_away_takes_it_again_at_once_under_a_new_epoch() -> None:
    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        kube.faults = [lambda _: ConnectionRefusedError("away")]
        await asyncio.sleep(60)
        assert not one.leads
        kube.faults = []
        back = now()
        assert await until(lambda: one.leads, 10) - back <= SETTINGS.retry + 0.1
        assert one.epochs == [1, 2]
        await one.end()

    played(story)


def test_an_epoch_is_above_every_one_on_a_node_even_if_the_lease_was_deleted() -> None:
    async def story() -> None:
        one = Replica(Kube(), "one", least=42)
        await until(lambda: one.leads, 5)
        assert one.epochs == [42]
        await one.end()

    played(story)


def test_a_renewal_whose_answer_is_lost_is_not_a_lost_lease() -> None:
    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        lost = [2]

        def swallow(asked: Asked) -> Exception | None:
            if asked.method == "PUT" and lost[0]:
                lost[0] -= 1
                return ConnectionResetError("after it was written")
            return None

        kube.after = [swallow]
        await asyncio.sleep(60)
        assert lost == [0]
        assert (one.leads, one.epochs, one.spans) == (True, [1], [])
        await one.end()

    played(story)


def test_a_lease_that_somebody_deletes_is_lost() -> None:
    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        del kube.objects[LEASE]
        await until(lambda: bool(one.spans), 10)
        await until(lambda: one.leads, 10)
        assert (len(one.epochs), len(one.spans)) == (2, 1)  # its work ended once and began anew
        assert spec(kube)["holderIdentity"] == "one"
        await one.end()

    played(story)


def test_after_a_lease_was_deleted_two_lead_at_once_until_the_next_renewal_and_the_new_one_has_the_higher_epoch() -> (
    None
):
    """The one overlap that there is, bounded; what is sent in it is guarded by what it was decided upon."""

    async def story() -> None:
        kube = Kube()
        old = Replica(kube, "old")
        await until(lambda: old.leads, 5)
        await asyncio.sleep(SETTINGS.retry / 2)  # so that the new one looks between two renewals
        new = Replica(kube, "new", least=2)  # the old one's epoch stands on a node
        await asyncio.sleep(SETTINGS.retry * 3 / 4)
        del kube.objects[LEASE]
        began = await until(lambda: new.leads, SETTINGS.retry + 1)
        ended = await until(lambda: not old.leads, SETTINGS.retry + 1)
        assert 0 < ended - began <= SETTINGS.retry + 0.1
        assert (old.epochs, new.epochs) == ([1], [2])
        await old.end()
        await new.end()

    played(story)


def test_labels_that_somebody_writes_cost_nothing() -> None:
    """Another's write makes one renewal fail; the lease is read, is still ours, and goes on; the label stays."""

    async def story() -> None:
        kube = Kube()
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        marked = kube.objects[LEASE]
        marked["metadata"]["labels"]["team"] = "x"
        kube.put(LEASE, marked)
        await asyncio.sleep(30)
        assert (one.leads, one.epochs) == (True, [1])
        assert kube.objects[LEASE]["metadata"]["labels"]["team"] == "x"
        await one.end()

    played(story)


def test_work_that_fails_ends_leading_with_its_error_and_gives_the_lease_back() -> None:
    async def story() -> None:
        kube = Kube()
        api, _ = direct(kube)
        leadership = Leadership(api, SETTINGS, "ours", "act", "one", Metrics(), clock=now)

        async def work(held: Held) -> None:
            del held
            await asyncio.sleep(1)
            raise RuntimeError("a defect")

        with pytest.raises(RuntimeError, match="a defect"):
            await leadership.lead(work)
        assert spec(kube)["holderIdentity"] == ""

    played(story)


def test_the_lease_is_given_back_only_after_work_has_ended() -> None:
    async def story() -> None:
        kube = Kube()
        api, _ = direct(kube)
        leadership = Leadership(api, SETTINGS, "ours", "act", "one", Metrics(), clock=now)
        holders: list[str] = []

        async def work(held: Held) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(2)
                holders.append(spec(kube)["holderIdentity"])
                assert held.remaining() > 0

        task = asyncio.create_task(leadership.lead(work))
        await until(lambda: leadership.leading, 5)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert (holders, spec(kube)["holderIdentity"]) == (["one"], "")

    played(story)


@contextmanager
def at_a_full_second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Whole(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Whole:
            del tz
            return cls(2026, 3, 2, 22, 0, 0, 0, UTC)

    with monkeypatch.context() as patched:
        patched.setattr("rebalancer.adapters.cluster.lease.datetime", Whole)
        yield


def test_times_keep_six_digits_at_a_full_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `isoformat` drops, a server refuses with 400."""

    def strict(asked: Asked) -> Reply | None:
        if asked.method not in {"POST", "PUT"}:
            return None
        times = [asked.body["spec"][key] for key in ("renewTime", "acquireTime")]
        good = all(re.fullmatch(r"[0-9T:-]{19}\.\d{6}Z", one) for one in times)
        return None if good else refusal(400, "BadRequest", "cannot parse")

    async def story() -> None:
        kube = Kube(faults=[strict])
        one = Replica(kube, "one")
        await until(lambda: one.leads, 5)
        await asyncio.sleep(20)
        await one.end()
        assert spec(kube)["holderIdentity"] == ""

    with at_a_full_second(monkeypatch):
        played(story)


def test_who_may_not_read_the_lease_waits_and_says_so() -> None:
    async def story() -> None:
        kube = Kube(faults=[lambda _: refusal(403, "Forbidden", "no")])
        one = Replica(kube, "one")
        await asyncio.sleep(30)
        assert not one.leads
        assert one.metrics.registry.get_sample_value("gpu_rebalancer_leader", {"role": "act"}) == 0
        await one.end()

    played(story)


def test_a_record_without_anything_is_nobodys() -> None:
    assert record({}).holder == ""
    assert record({"spec": {"leaseTransitions": -3}}).transitions == 0
