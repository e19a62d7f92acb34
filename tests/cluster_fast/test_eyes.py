"""Eyes over a fake API server: lists, watches, and every way in which they break."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from rebalancer.adapters.cluster import reflector
from rebalancer.adapters.cluster.connection import NotConnected, connected
from rebalancer.adapters.cluster.eyes import ClusterEyes
from rebalancer.adapters.cluster.reflector import Refused
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.core.facts import Control, GangSpec, Node, Pod
from rebalancer.core.ports import SightLost
from rebalancer.core.stimuli import FactDeleted, FactObserved
from rebalancer.settings import KubernetesSettings
from tests.cluster_fast.fakeapi import CLAIMS, EXTRA, JOBSETS, FakeApi, fake_api, node, pod
from tests.hands.fakeapi import kubeconfig

PODS, NODES, CONFIGMAPS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces/gpu-rebalancer/configmaps"
Change = FactObserved | FactDeleted


class Sighted:
    """Eyes with their watches running, and their counters."""

    def __init__(self, api: FakeApi, eyes: ClusterEyes, registry: CollectorRegistry) -> None:
        self.api, self.eyes, self.registry = api, eyes, registry

    async def changes(self, count: int = 1) -> list[Change]:
        found: list[Change] = []
        async with asyncio.timeout(5):
            while len(found) < count:
                found += await self.eyes.changes()
        return found

    async def lost(self) -> SightLost:
        with pytest.raises(SightLost) as caught:
            await self.changes()
        return caught.value

    async def watching(self, path: str, count: int = 1) -> None:
        async with asyncio.timeout(5):
            while [one for _, one in self.api.open.values()].count(path) < count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    async def seen(self, uid: str) -> None:
        """Something about this pod waits to be taken."""
        async with asyncio.timeout(5):
            while ("pod", uid) not in self.eyes._pending:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    async def placed(self, version: str) -> None:
        """Some watch has come to this version."""
        async with asyncio.timeout(5):
            while all(one.reflector._version != version for one in self.eyes._sources.values()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.005)

    def count(self, name: str, kind: str) -> float | None:
        return self.registry.get_sample_value(f"gpu_rebalancer_{name}_total", {"kind": kind})


@asynccontextmanager
async def looking(api: FakeApi, folder: Path) -> AsyncIterator[Sighted]:
    registry = CollectorRegistry()
    async with connected(KubernetesSettings(kubeconfig=kubeconfig(folder, api.url))) as connection:
        eyes = ClusterEyes(connection, "gpu-rebalancer", Reading(), Watching(registry))
        task = asyncio.create_task(eyes.run())
        try:
            yield Sighted(api, eyes, registry)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def sighted(tmp_path: Path) -> AsyncIterator[Sighted]:
    async with fake_api() as api, looking(api, tmp_path) as found:
        yield found


def said(changes: list[Change]) -> list[tuple[str, str]]:
    return [
        ("gone", one.uid) if isinstance(one, FactDeleted) else (type(one.fact).__name__, one.fact.uid)
        for one in changes
    ]


async def test_a_list_of_several_pages_is_one_list(sighted: Sighted) -> None:
    for number in range(5):
        sighted.api.put(PODS, pod(f"p{number}"))
    facts = await sighted.eyes.snapshot("pod")
    assert [fact.uid for fact in facts] == [f"p{number}" for number in range(5)]
    assert [query["limit"] for path, query in sighted.api.lists if path == PODS] == ["500"] * 3
    assert all("resourceVersion" not in query for _, query in sighted.api.lists)


async def test_a_list_that_expires_before_its_end_is_begun_again(sighted: Sighted) -> None:
    for number in range(5):
        sighted.api.put(PODS, pod(f"p{number}"))
    sighted.api.expire_continue = 1
    assert len(await sighted.eyes.snapshot("pod")) == 5


async def test_a_list_that_always_expires_is_given_up_with_an_error(sighted: Sighted) -> None:
    for number in range(5):
        sighted.api.put(PODS, pod(f"p{number}"))
    sighted.api.expire_continue = 10
    with pytest.raises(Refused, match="expired"):
        await sighted.eyes.snapshot("pod")


async def test_what_happens_after_a_list_is_told_by_the_watch(sighted: Sighted) -> None:
    sighted.api.put(PODS, pod("p1"))
    await sighted.eyes.snapshot("pod")
    sighted.api.put(PODS, pod("p1", node="n1"))
    (change,) = await sighted.changes()
    assert isinstance(change, FactObserved)
    assert isinstance(change.fact, Pod)
    assert (change.fact.node, change.fact.gpus) == ("n1", 8)
    sighted.api.delete(PODS, "p1")
    assert said(await sighted.changes()) == [("gone", "p1")]


async def test_what_happened_between_list_and_watch_is_told(sighted: Sighted) -> None:
    await sighted.eyes.snapshot("pod")
    sighted.api.put(PODS, pod("p1"))
    sighted.api.put(PODS, pod("p2"))
    assert said(await sighted.changes(2)) == [("Pod", "p1"), ("Pod", "p2")]


async def test_changes_of_one_object_that_nobody_took_are_told_once_as_it_now_is(sighted: Sighted) -> None:
    await sighted.eyes.snapshot("pod")
    for name in ("", "n1", ""):
        sighted.api.put(PODS, pod("p1", node=name))
    sighted.api.put(PODS, pod("p2"))
    await sighted.seen("p2")  # the last that was said
    assert said(list(await sighted.eyes.changes())) == [("Pod", "p1"), ("Pod", "p2")]


async def test_a_bookmark_moves_the_place_and_is_no_object(sighted: Sighted) -> None:
    await sighted.eyes.snapshot("pod")
    await sighted.watching(PODS)
    await sighted.api.tell(PODS, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "5000"}})
    await sighted.placed("5000")
    sighted.api.cut()
    async with asyncio.timeout(5):
        while len(sighted.api.watches) < 2:  # noqa: ASYNC110 - the fake tells nobody
            await asyncio.sleep(0.01)
    assert sighted.api.watches[-1][1]["resourceVersion"] == "5000"
    assert all(query["allowWatchBookmarks"] == "true" for _, query in sighted.api.watches)


async def test_a_watch_that_breaks_goes_on_where_it_was_and_misses_nothing(sighted: Sighted) -> None:
    sighted.api.put(PODS, pod("p1"))
    await sighted.eyes.snapshot("pod")
    await sighted.watching(PODS)
    sighted.api.cut()
    sighted.api.delete(PODS, "p1")
    sighted.api.put(PODS, pod("p2"))
    assert said(await sighted.changes(2)) == [("gone", "p1"), ("Pod", "p2")]
    assert sighted.count("watches_resumed", "pod") >= 1  # type: ignore[operator]  # the counter is there
    assert sighted.count("watches_lost", "pod") == 0


@pytest.mark.parametrize("how", ["in the stream", "as a status"])
async def test_a_version_that_is_no_longer_there_needs_a_list_which_tells_what_is_gone(
    sighted: Sighted, how: str
) -> None:
    for uid in ("p1", "p2"):
        sighted.api.put(PODS, pod(uid))
    await sighted.eyes.snapshot("pod")
    await sighted.watching(PODS)
    if how == "as a status":
        sighted.api.refuse[PODS] = 410
    sighted.api.delete(PODS, "p1")
    await sighted.changes()
    sighted.api.events.clear()
    sighted.api.cut()
    sighted.api.delete(PODS, "p2")
    sighted.api.put(PODS, pod("p3"))
    sighted.api.compact()
    assert (await sighted.lost()).kinds == ("pod",)
    sighted.api.refuse.clear()
    assert [fact.uid for fact in await sighted.eyes.snapshot("pod")] == ["p3"]
    assert said(await sighted.changes()) == [("gone", "p2")]
    sighted.api.put(PODS, pod("p4"))
    assert said(await sighted.changes()) == [("Pod", "p4")]


async def test_a_watch_that_stays_broken_is_given_up_and_lists_say_where_the_server_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "BROKEN", 0.2)
    async with fake_api() as api, looking(api, tmp_path) as sighted:
        await sighted.eyes.snapshot("pod")
        await sighted.watching(PODS)
        api.refuse[PODS] = 503
        api.cut()
        assert (await sighted.lost()).kinds == ("pod",)
        with pytest.raises(Refused, match="503"):
            await sighted.eyes.snapshot("pod")
        api.refuse.clear()
        await sighted.eyes.snapshot("pod")
        api.put(PODS, pod("p1"))
        assert said(await sighted.changes()) == [("Pod", "p1")]


async def test_an_unreachable_server_is_named(tmp_path: Path) -> None:
    settings = KubernetesSettings(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))
    async with connected(settings) as connection:
        eyes = ClusterEyes(connection, "gpu-rebalancer", Reading(), Watching(CollectorRegistry()))
        with pytest.raises(NotConnected, match=r"127\.0\.0\.1:1"):
            await eyes.snapshot("pod")


async def test_a_late_word_about_the_dead_does_not_raise_them(sighted: Sighted) -> None:
    late = sighted.api.put(PODS, pod("p1", node="n1"))
    await sighted.eyes.snapshot("pod")
    sighted.api.delete(PODS, "p1")
    assert said(await sighted.changes()) == [("gone", "p1")]
    sighted.api.say(PODS, "MODIFIED", late)
    sighted.api.put(PODS, pod("p2"))
    assert said(await sighted.changes()) == [("Pod", "p2")]
    sighted.api.objects[PODS]["p1"] = late
    assert [fact.uid for fact in await sighted.eyes.snapshot("pod")] == ["p2"]


async def test_an_older_version_than_was_told_is_not_told(sighted: Sighted) -> None:
    old = {**pod("p1"), "metadata": {**pod("p1")["metadata"], "resourceVersion": "7"}}
    sighted.api.put(PODS, pod("p1", node="n1"))
    await sighted.eyes.snapshot("pod")
    sighted.api.say(PODS, "MODIFIED", old)
    sighted.api.put(PODS, pod("p2"))
    assert said(await sighted.changes()) == [("Pod", "p2")]


async def test_the_pod_recreated_under_the_same_name_lives_when_the_old_one_is_deleted_late(sighted: Sighted) -> None:
    sighted.api.put(PODS, pod("uid-25", "chat-0", "n1"))
    await sighted.eyes.snapshot("pod")
    sighted.api.put(PODS, pod("uid-26", "chat-0", "n1"))
    sighted.api.delete(PODS, "uid-25")
    assert said(await sighted.changes(2)) == [("Pod", "uid-26"), ("gone", "uid-25")]
    assert [fact.uid for fact in await sighted.eyes.snapshot("pod")] == ["uid-26"]


async def test_a_node_replaced_under_the_same_name_is_another_node(sighted: Sighted) -> None:
    sighted.api.put(NODES, node("old", "gpu-1"))
    await sighted.eyes.snapshot("node")
    sighted.api.delete(NODES, "old")
    sighted.api.put(NODES, node("new", "gpu-1"))
    assert said(await sighted.changes(2)) == [("gone", "old"), ("Node", "new")]


async def test_kinds_that_are_not_installed_are_looked_for_again(sighted: Sighted) -> None:
    assert await sighted.eyes.snapshot("group") == []
    sighted.api.kinds.update(EXTRA)
    jobset = {
        "metadata": {"uid": "j1", "name": "llm", "namespace": "ml"},
        "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4}}}]},
    }
    sighted.api.put(JOBSETS, jobset)
    (gang,) = await sighted.eyes.snapshot("group")
    assert isinstance(gang, GangSpec)
    assert (gang.gang, gang.size) == ("ml/jobset/llm", 8)
    del sighted.api.kinds[JOBSETS]
    assert await sighted.eyes.snapshot("group") == []


async def test_native_pod_groups_are_found_in_a_version_that_is_not_the_preferred_one(sighted: Sighted) -> None:
    groups = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
    sighted.api.kinds["/apis/scheduling.k8s.io/v1/priorityclasses"] = ("scheduling.k8s.io/v1", "PriorityClass")
    sighted.api.kinds[groups] = ("scheduling.k8s.io/v1alpha2", "PodGroup")
    spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    sighted.api.put(groups, {"metadata": {"uid": "g1", "name": "llm", "namespace": "ml"}, "spec": spec})
    (gang,) = await sighted.eyes.snapshot("group")
    assert isinstance(gang, GangSpec)
    assert (gang.gang, gang.min_member) == ("ml/podgroup/llm", 4)


async def test_a_kind_of_gangs_that_may_not_be_read_hides_no_other_and_is_counted(sighted: Sighted) -> None:
    sighted.api.kinds.update(EXTRA)
    sighted.api.put("/apis/batch/v1/jobs", {"metadata": {"uid": "b1", "name": "b", "namespace": "ml"}, "spec": {}})
    sighted.api.refuse[JOBSETS] = 403
    assert [fact.uid for fact in await sighted.eyes.snapshot("group")] == ["b1"]
    assert sighted.count("lists_refused", "group") == 1
    sighted.api.refuse[PODS] = 403
    with pytest.raises(Refused, match="preflight"):
        await sighted.eyes.snapshot("pod")


async def test_a_pod_rests_on_its_claim_and_is_read_again_when_that_changes(sighted: Sighted) -> None:
    sighted.api.kinds.update(EXTRA)
    claiming = pod("p1", node="n1", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}], containers=[{}])
    sighted.api.put(PODS, claiming)
    (before,) = await sighted.eyes.snapshot("pod")
    assert isinstance(before, Pod)
    assert before.gpus is None
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]}}
    sighted.api.put(CLAIMS, {"metadata": {"uid": "c1", "name": "c", "namespace": "ml"}, "spec": asked})
    (change,) = await sighted.changes()
    assert isinstance(change, FactObserved)
    assert isinstance(change.fact, Pod)
    assert (change.fact.gpus, change.fact.resource_version) == (2, "")


async def test_a_pod_that_cannot_be_read_still_occupies_its_node(
    sighted: Sighted, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = pod("p1", node="n1")
    strange["spec"]["containers"] = 7
    sighted.api.put(PODS, strange)
    monkeypatch.setattr("rebalancer.adapters.decode.pods._grace", _grace_of_a_list)
    (fact,) = await sighted.eyes.snapshot("pod")
    assert isinstance(fact, Pod)
    assert (fact.node, fact.gpus, fact.uid) == ("n1", None, "p1")
    assert sighted.count("objects_unreadable", "pod") == 1


def _grace_of_a_list(spec: dict[str, object], _: object) -> int:
    """A decoder with a fault that a strange pod brings out."""
    return len(spec["containers"]) if "containers" in spec else 30  # type: ignore[arg-type]  # the fault


async def test_unreadable_brakes_stop_lending_and_keep_what_can_be_read(sighted: Sighted) -> None:
    data = {"max-loans": "many", "recall-all": "true", "paused": "false"}
    sighted.api.put(CONFIGMAPS, {"metadata": {"uid": "m1", "name": "gpu-rebalancer-control"}, "data": data})
    (control,) = await sighted.eyes.snapshot("control")
    assert isinstance(control, Control)
    assert (control.paused, control.recall_all, control.max_loans) == (True, True, None)
    assert "max-loans" in control.why


async def test_brakes_that_are_deleted_are_only_gone_once_a_list_says_so(sighted: Sighted) -> None:
    held = {"metadata": {"uid": "m1", "name": "gpu-rebalancer-control"}, "data": {"paused": "true"}}
    sighted.api.put(CONFIGMAPS, held)
    await sighted.eyes.snapshot("control")
    sighted.api.delete(CONFIGMAPS, "m1")
    assert (await sighted.lost()).kinds == ("control",)
    assert await sighted.eyes.snapshot("control") == []


async def test_another_policy_has_all_nodes_told_anew_until_they_change(sighted: Sighted) -> None:
    """In each list: whether the first was taken in is not known, and by their versions they would pass for known."""
    sighted.api.put(NODES, node("n1"))
    sighted.api.put(NODES, node("n2"))
    await sighted.eyes.snapshot("node")
    sighted.eyes.adopt(Reading())
    assert (await sighted.lost()).kinds == ("node",)
    assert await versions(sighted) == {"n1": False, "n2": False}
    assert await versions(sighted) == {"n1": False, "n2": False}
    sighted.api.put(NODES, node("n1"))
    assert await versions(sighted) == {"n1": True, "n2": False}


async def test_what_a_list_read_by_the_policy_before_is_told_anew_by_the_next_one(sighted: Sighted) -> None:
    sighted.api.put(NODES, node("n1"))
    await sighted.eyes.snapshot("node")
    under_way = asyncio.create_task(sighted.eyes.snapshot("node"))
    await asyncio.sleep(0)
    sighted.eyes.adopt(Reading())
    await under_way
    sighted.api.put(NODES, node("n1"))
    assert await versions(sighted) == {"n1": False}


async def test_nodes_are_told_anew_by_who_comes_new_since_others_may_have_read_them_otherwise(sighted: Sighted) -> None:
    sighted.api.put(NODES, node("n1"))
    assert await versions(sighted) == {"n1": False}
    sighted.api.put(NODES, node("n1"))
    assert await versions(sighted) == {"n1": True}


async def versions(sighted: Sighted) -> dict[str, bool]:
    """Whether each node of a list is told with its version."""
    found = await sighted.eyes.snapshot("node")
    return {one.name: bool(one.resource_version) for one in found if isinstance(one, Node)}
