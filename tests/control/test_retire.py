"""Retirement: what it waits for, what it refuses to do, and that nothing of ours is left when it says so."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from rebalancer.adapters.cluster import alone, retire
from rebalancer.adapters.cluster.connection import Api, Reply
from rebalancer.adapters.cluster.leaserecord import stamp
from rebalancer.adapters.cluster.listing import NotListed
from rebalancer.adapters.cluster.retire import Retirement, Retiring
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.core.units import CLOSING
from rebalancer.settings import LeaseSettings
from tests.control.fakeapi import FakeApi, refusal
from tests.control.things import FOREIGN, LENT, OWNER, POLICY, lent, node, pod

HERE = "gpu-rebalancer"
CONTROL = f"/api/v1/namespaces/{HERE}/configmaps/gpu-rebalancer-control"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HERE}/leases"
SCALE = f"/apis/apps/v1/namespaces/{HERE}/deployments/rebalancer/scale"
SOON = Retiring("grace", timeout=1.0)


@pytest.fixture
def said() -> list[str]:
    """What it told."""
    return []


@pytest.fixture
def retirement(api: Api, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Retirement:
    """A retirement that looks often and takes Leases quickly."""
    monkeypatch.setattr(retire, "LOOK_EVERY", 0.02)
    lease = LeaseSettings(duration=2.0, renew=1.2, retry=0.1)
    policy = replace(POLICY, acting=replace(POLICY.acting, call_timeout=timedelta(seconds=0.5)))
    return Retirement(api, HERE, lease, policy, Reading(dialect(policy)), "retire-test", said.append)


def held(by: str, transitions: int = 3, seconds: int = 1) -> dict[str, Any]:
    now = stamp(datetime.now(UTC))
    spec = {"holderIdentity": by, "leaseDurationSeconds": seconds, "renewTime": now, "acquireTime": now}
    return {"spec": {**spec, "leaseTransitions": transitions}}


def place(server: FakeApi, *raws: dict[str, Any]) -> None:
    for raw in raws:
        meta = raw["metadata"]
        at = f"namespaces/{meta['namespace']}/pods" if raw["kind"] == "Pod" else "nodes"
        server.place(f"/api/v1/{at}/{meta['name']}", **raw)


def taints(server: FakeApi, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.objects[f"/api/v1/nodes/{name}"]["spec"]["taints"]
    return found


async def test_where_nothing_of_ours_is_nothing_is_written(retirement: Retirement, server: FakeApi) -> None:
    place(server, node("n1"))
    ended = await retirement.run(SOON)
    assert (ended.result, ended.done, server.writes()) == ("nothing-there", True, [])


async def test_once_all_is_home_and_nobody_runs_control_object_and_leases_go_last(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, node("n1"))
    server.place(CONTROL, data={"paused": "true"})
    server.place(f"{LEASES}/gpu-rebalancer-act", **held(""))
    server.place(f"{LEASES}/gpu-rebalancer-collect", **held(""))
    ended = await retirement.run(SOON)
    assert (ended.result, ended.left) == ("retired", ())
    assert [path for path in server.objects if "nodes" not in path] == []
    gone = [path for method, path in server.requests() if method == "DELETE"]
    assert gone == [CONTROL, f"{LEASES}/gpu-rebalancer-act", f"{LEASES}/gpu-rebalancer-collect"]
    assert (await retirement.run(SOON)).result == "nothing-there"


async def test_traces_are_taken_off_and_what_is_others_stays(retirement: Retirement, server: FakeApi) -> None:
    closing = {"key": CLOSING, "effect": "NoSchedule"}
    place(server, node("closed", FOREIGN, OWNER, closing), node("unmarked", FOREIGN, LENT))
    place(server, node("copied", OWNER, annotations=lent("other")["metadata"]["annotations"]))
    place(server, pod("p1", "n1", annotations={"gpu-rebalancer.io/evict-at": "2026-01-01T00:00:00Z", "a": "b"}))
    ended = await retirement.run(SOON)
    assert ended.result == "retired"
    assert (taints(server, "closed"), taints(server, "unmarked")) == ([FOREIGN, OWNER], [FOREIGN, OWNER])
    kept = server.objects["/api/v1/nodes/copied"]["metadata"]["annotations"]
    assert (kept, taints(server, "copied")) == ({"example.com/keep": "this"}, [OWNER])
    assert server.objects["/api/v1/namespaces/ml/pods/p1"]["metadata"]["annotations"] == {"a": "b"}


async def test_it_waits_for_act_and_leaves_the_node_to_it(
    retirement: Retirement, server: FakeApi, said: list[str]
) -> None:
    place(server, lent("n1"), node("n2"))
    server.place(f"{LEASES}/gpu-rebalancer-act", **held("act-1"))

    def act(fake: FakeApi, method: str, path: str) -> Reply | None:
        looks = sum(one == ("GET", "/api/v1/nodes") for one in fake.requests())
        if method == "GET" and path.endswith("gpu-rebalancer-act") and looks >= 3:
            fake.place("/api/v1/nodes/n1", **node("n1", FOREIGN, OWNER))
            fake.place(path, **held(""))
        return None

    server.hook = act
    ended = await retirement.run(SOON)
    assert ended.result == "retired"
    assert said[0] == "still lent: n1; act brings them home"


async def test_without_an_actor_it_says_what_to_do_and_keeps_the_retirement(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, lent("n1"))
    ended = await retirement.run(SOON)
    assert (ended.result, ended.left) == ("no-actor", ("n1",))
    assert "--alone" in ended.sentence
    assert server.objects[CONTROL]["data"]["retired"] == "true"


async def test_alone_it_brings_the_loan_home_with_whole_gang_and_exact_taints(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, lent("n1"), pod("p0", "n1"), pod("p1", "n1"))
    ended = await retirement.run(Retiring("grace", timeout=6.0, alone=True))
    assert ended.result == "retired"
    assert taints(server, "n1") == [FOREIGN, OWNER]
    assert server.objects["/api/v1/nodes/n1"]["metadata"]["annotations"] == {"example.com/keep": "this"}
    assert not [path for path in server.objects if "/pods/" in path]
    assert CONTROL not in server.objects


async def test_while_somebody_still_runs_the_control_object_stays(retirement: Retirement, server: FakeApi) -> None:
    place(server, node("n1"))
    server.place(CONTROL, data={})
    renew = asyncio.create_task(_renewing(server))
    ended = await retirement.run(SOON)
    renew.cancel()
    assert (ended.result, ended.done) == ("still-running", False)
    assert "collect-1 still runs" in ended.sentence
    assert server.objects[CONTROL]["data"]["retired"] == "true"


async def _renewing(server: FakeApi) -> None:
    while True:
        server.place(f"{LEASES}/gpu-rebalancer-collect", **held("collect-1"))
        await asyncio.sleep(0.05)


async def test_named_deployments_are_scaled_down_and_their_leases_waited_for(
    retirement: Retirement, server: FakeApi, said: list[str]
) -> None:
    place(server, node("n1"))
    server.place(SCALE, spec={"replicas": 2})
    renew = asyncio.create_task(_renewing(server))

    def stop(fake: FakeApi, method: str, path: str) -> Reply | None:
        if path == SCALE and method == "PATCH":
            renew.cancel()
        return None

    server.hook = stop
    server.place(f"{LEASES}/gpu-rebalancer-collect", **held("collect-1"))
    ended = await retirement.run(Retiring("grace", timeout=5.0, stop=("rebalancer", "absent")))
    assert ended.result == "retired"
    assert server.objects[SCALE]["spec"]["replicas"] == 0
    assert "there is no deployment absent" in said


BUSY = Reply(503, {}, {"message": "busy"})
FALTERING = [
    pytest.param(failure, (method, path), calls, id=f"{what}: {how}")
    for how, failure in (
        ("no answer in time", TimeoutError("slow")),
        ("busy", BUSY),
        ("away", ConnectionResetError("away")),
    )
    for what, method, path, calls in (
        ("act's Lease", "GET", f"{LEASES}/gpu-rebalancer-act", {2, 3, 5}),
        ("collect's Lease", "GET", f"{LEASES}/gpu-rebalancer-collect", {2, 3, 5}),
        ("the nodes", "GET", "/api/v1/nodes", {1, 2}),
        ("the Deployment", "PATCH", SCALE, {1, 2}),
    )
]
"""Calls of the waiting, by their number: the first look at the Leases is not waited for."""


@pytest.mark.parametrize(("failure", "what", "calls"), FALTERING)
async def test_a_server_that_falters_ends_no_waiting_that_has_time_left(
    retirement: Retirement, server: FakeApi, failure: Exception | Reply, what: tuple[str, str], calls: set[int]
) -> None:
    place(server, node("n1"))
    server.place(CONTROL, data={})
    server.place(SCALE, spec={"replicas": 2})
    server.place(f"{LEASES}/gpu-rebalancer-collect", **held("collect-1"))
    real, count = retirement.api.request, itertools.count(1)

    async def faltering(method: str, path: str, **asked: Any) -> Reply:
        if (method, path) == what and next(count) in calls:
            if isinstance(failure, Exception):
                raise failure
            return failure
        return await real(method, path, **asked)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(retirement.api, "request", faltering)
        ended = await retirement.run(Retiring("grace", timeout=5.0, stop=("rebalancer",)))
    assert ended.result == "retired"
    assert next(count) > max(calls)


async def test_a_server_that_stays_away_is_told_when_the_time_is_over(
    retirement: Retirement, server: FakeApi, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place(server, lent("n1"))
    server.place(CONTROL, data={})
    monkeypatch.setattr(Retirement, "_out", AsyncMock(side_effect=TimeoutError("slow")))
    with pytest.raises(TimeoutError, match="slow"):
        await retirement.run(replace(SOON, timeout=0.2))
    assert "slow" in said


async def test_a_taint_without_mark_or_policy_is_told_and_never_guessed(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, node("n1", FOREIGN, LENT, labels={"node-pool": "elsewhere", "gpu-model": "A100"}))
    ended = await retirement.run(SOON)
    assert ended.result == "traces"
    assert "which owner taint n1 had is not known" in ended.sentence
    assert taints(server, "n1") == [FOREIGN, LENT]
    assert CONTROL in server.objects


async def test_what_may_not_be_seen_is_no_proof_that_nothing_is_left(retirement: Retirement, server: FakeApi) -> None:
    place(server, node("n1"))
    server.place(CONTROL, data={})
    server.hook = lambda _, __, path: refusal(403, "no pods for you") if path == "/api/v1/pods" else None
    with pytest.raises(NotListed, match="no pods for you"):
        await retirement.run(SOON)
    assert CONTROL in server.objects


async def test_a_server_that_does_not_answer_in_time_is_not_taken_for_somebody_who_still_runs(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, node("n1"))

    async def silent(_: object) -> None:
        raise TimeoutError("no answer within 30 seconds")

    with pytest.raises(TimeoutError, match="no answer"):
        await retirement._leading(asyncio.get_running_loop().time() + 30, silent)


async def test_alone_a_server_that_is_busy_for_a_moment_ends_nothing_that_is_under_way(
    retirement: Retirement, server: FakeApi, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "LOOK_EVERY", 0.05)
    place(server, lent("n1"), pod("p0", "n1"))
    busy = iter([refusal(503, "etcd elects a leader"), refusal(429, "too many requests")])
    server.hook = lambda _, __, path: next(busy, None) if path == "/api/v1/pods" else None
    ended = await retirement.run(Retiring("grace", timeout=6.0, alone=True))
    assert ended.result == "retired"
    assert [one for one in said if "etcd" in one or "too many" in one]


async def test_a_node_that_borrowers_still_use_without_a_mark_is_told_and_not_given_to_its_owner(
    retirement: Retirement, server: FakeApi
) -> None:
    place(server, node("n1", FOREIGN, LENT), pod("p0", "n1"))
    ended = await retirement.run(SOON)
    assert (ended.result, taints(server, "n1")) == ("traces", [FOREIGN, LENT])
    assert "ml/p0" in ended.sentence
    assert CONTROL in server.objects
