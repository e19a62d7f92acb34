"""The Lease on a real API server: who leads, who waits, and what a stopped process may still send."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.lease import Held, Leadership
from rebalancer.adapters.metrics import Metrics
from rebalancer.settings import KubernetesSettings, LeaseSettings
from tests.cluster.granting import granted, in_force
from tests.cluster.leaseholder import LEASE
from tests.servers.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(180)
WITHIN = 30.0
BUSY = 2.0
"""Seconds by which a process on a busy machine may say later what it did in time."""
ROOT = Path(__file__).parents[2]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Holder:
    """One process of `leaseholder`, and when it said what."""

    def __init__(self, plane: ControlPlane, space: str, name: str) -> None:
        self.said: list[tuple[float, str]] = []
        words = {
            "kubeconfig": plane.identity(space, name), "namespace": space, "identity": name, "pod": "nobody",
        }  # fmt: skip
        options = [word for key, value in words.items() for word in (f"--{key}", str(value))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.leaseholder", *options], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append((time.monotonic(), line.strip()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self._process.terminate()
        self._process.wait(WITHIN)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def heard(self, word: str, since: float = 0.0) -> list[str]:
        return [line for at, line in list(self.said) if at >= since and line.startswith(word)]

    @property
    def leads(self) -> bool:
        turns = [line for _, line in list(self.said) if line.startswith(("leading", "over"))]
        return bool(turns) and turns[-1].startswith("leading")


def allow(plane: ControlPlane, space: str, *names: str) -> None:
    """All rights within the namespace for these service accounts."""
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": space} for name in names]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/rolebindings"
    plane.api.post(path, {"metadata": {"name": "holders"}, "subjects": subjects, "roleRef": role})


def lease(plane: ControlPlane, space: str) -> Any:
    return plane.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/gpu-rebalancer-act")["spec"]


def wait(plane: ControlPlane, true: Callable[[], bool], what: str) -> None:
    plane.api.wait(true, WITHIN, what)


def test_a_stopped_holder_that_goes_on_sends_nothing_and_waits_for_its_turn(plane: ControlPlane, space: str) -> None:
    """Stopped in the middle of its work, past its expiry; the other has taken over when it goes on."""
    allow(plane, space, "one", "other")
    with Holder(plane, space, "one") as one:
        wait(plane, lambda: bool(one.heard("sent")), "the first to work")
        with Holder(plane, space, "other") as other:
            one.stop()
            stopped = time.monotonic()
            wait(plane, lambda: other.leads, "the other to take over")
            assert time.monotonic() - stopped >= LEASE.duration - LEASE.retry - 0.5
            assert (lease(plane, space)["holderIdentity"], lease(plane, space)["leaseTransitions"]) == ("other", 2)
            wait(plane, lambda: bool(other.heard("sent")), "the other to work")
            asked = evictions(plane, space, "one")
            one.resume()
            resumed = time.monotonic()
            wait(plane, lambda: bool(one.heard("over", resumed)), "the first to stop")
            time.sleep(2 * LEASE.retry)
            assert evictions(plane, space, "one") - asked <= 1, "at most the one that was on its way when it stopped"
            assert len(one.heard("sent", resumed)) <= 1
            assert (one.leads, other.leads) == (False, True)
            assert lease(plane, space)["holderIdentity"] == "other"
        wait(plane, lambda: one.leads, "the first to lead again once the other has given the lease back")
        assert one.heard("leading") == ["leading 1", "leading 3"]
    assert lease(plane, space)["holderIdentity"] == ""


def evictions(plane: ControlPlane, space: str, name: str) -> int:
    """What the server's audit log says that an identity asked."""
    return len([one for one in plane.audit(f"{space}:{name}") if one.subresource == "eviction"])


def test_a_killed_holder_is_waited_out(plane: ControlPlane, space: str) -> None:
    allow(plane, space, "one", "other")
    with Holder(plane, space, "one") as one:
        wait(plane, lambda: one.leads, "the first to lead")
        with Holder(plane, space, "other") as other:
            time.sleep(2 * LEASE.retry)
            one.kill()
            killed = time.monotonic()
            wait(plane, lambda: other.leads, "the other to take over")
            assert time.monotonic() - killed >= LEASE.duration - LEASE.retry - 0.5
            assert other.heard("leading") == ["leading 2"]


def test_a_server_that_is_away_ends_work_and_nobody_crashes(plane: ControlPlane, space: str) -> None:
    allow(plane, space, "one")
    with Holder(plane, space, "one") as one:
        wait(plane, lambda: one.leads, "it to lead")
        plane.stop("apiserver")
        away = time.monotonic()
        while not one.heard("over"):
            assert time.monotonic() - away < WITHIN
            time.sleep(0.05)
        assert time.monotonic() - away <= LEASE.duration + BUSY, "before it expires"
        plane.start("apiserver")
        wait(plane, lambda: one.leads, "it to lead again")
        assert one.heard("leading") == ["leading 1", "leading 2"]


async def test_a_lease_with_the_defaults_is_taken_kept_and_given_back_also_at_a_full_second(
    plane: ControlPlane, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every time it writes has no fraction of its own; a server takes them because six digits are always sent."""

    class Whole(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Whole:
            return cls.fromtimestamp(int(time.time()), tz or UTC)

    monkeypatch.setattr("rebalancer.adapters.cluster.lease.datetime", Whole)
    metrics, settings = Metrics(), LeaseSettings()
    kubeconfig = granted(plane, space, "shadow", "shadow")  # all that it may write is its own Lease
    in_force(plane, kubeconfig)
    async with connected(KubernetesSettings(kubeconfig=kubeconfig, namespace=space)) as api:
        leadership = Leadership(api, settings, space, "act", "one", metrics)

        async def work(held: Held) -> None:
            assert held.epoch == 1
            await asyncio.sleep(2.5 * settings.retry)
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            await leadership.lead(work)
    told = lease(plane, space)
    assert told["holderIdentity"] == ""
    assert told["leaseTransitions"] == 1
    assert all(TIME.fullmatch(told[key]) and told[key].endswith(".000000Z") for key in ("renewTime", "acquireTime"))
    assert told["renewTime"] > told["acquireTime"]
    assert metrics.registry.get_sample_value("gpu_rebalancer_failures_total", {"role": "act"}) == 0.0


async def test_two_that_ask_at_once_are_told_apart_by_the_server(plane: ControlPlane, space: str) -> None:
    """Many contenders at the same moment, over and over: one leads, epochs never repeat."""
    settings = LeaseSettings(duration=3, renew=2, retry=0.1)
    epochs: list[int] = []
    leading: set[str] = set()
    async with connected(KubernetesSettings(kubeconfig=plane.kubeconfig(), namespace=space)) as api:

        async def contend(name: str) -> None:
            async def work(held: Held) -> None:
                epochs.append(held.epoch)
                assert not leading
                leading.add(name)
                try:
                    await asyncio.sleep(0.2)
                    raise TimeoutError("its turn is over")
                finally:
                    leading.discard(name)

            for _ in range(2):
                with suppress(TimeoutError):
                    await Leadership(api, settings, space, "act", name, Metrics()).lead(work)

        async with asyncio.timeout(60):
            await asyncio.gather(*(contend(f"r{number}") for number in range(5)))
    assert len(epochs) == 10
    assert epochs == sorted(set(epochs))
