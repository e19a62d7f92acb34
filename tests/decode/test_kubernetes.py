"""Budgets, gang objects, namespaces, brakes and watch events."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.adapters.decode.budgets import decode_budget
from rebalancer.adapters.decode.control import CONTROL_NAME, control_from_configmap, control_to_configmap
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.gangs import decode_gang
from rebalancer.adapters.decode.kubernetes import Reading, decode_object, fact_kind, singular
from rebalancer.adapters.decode.watch import Changed, Gone, Hint, Marked, SourceStale, decode_watch
from rebalancer.core.facts import Control, Namespace, Pod, Requirement
from rebalancer.core.units import Mode
from tests.decode import samples_here

META: dict[str, Any] = {"name": "x", "namespace": "ns", "uid": "u"}


def budget(spec: dict[str, Any], status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {**META, **meta}, "spec": spec,
            "status": status}  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, None, id="no selector matches nothing"),
        pytest.param({}, (), id="an empty selector matches all"),
        pytest.param({"matchLabels": {"a": "1"}}, (Requirement("a", "In", ("1",)),), id="labels"),
        pytest.param(
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, (Requirement("a", "Exists"),), id="expressions"
        ),
    ],
)
def test_a_budgets_selector_is_none_or_empty_or_says_something(selector: Any, expected: Any) -> None:
    assert decode_budget(budget({"selector": selector})).selector == expected


def test_an_empty_selector_matched_nothing_in_the_beta() -> None:
    raw = {**budget({"selector": {}}), "apiVersion": "policy/v1beta1"}
    assert decode_budget(raw).selector is None


@pytest.mark.parametrize(
    ("generation", "status", "current"),
    [
        pytest.param(2, {"observedGeneration": 2}, True, id="seen"),
        pytest.param(3, {"observedGeneration": 2}, False, id="an older spec was seen"),
        pytest.param(1, {}, False, id="no status yet"),
        pytest.param(None, {"disruptionsAllowed": 1}, True, id="a bridge that drops generations"),
    ],
)
def test_a_status_that_lags_its_spec_is_marked(generation: Any, status: dict[str, Any], current: bool) -> None:
    assert decode_budget(budget({}, status, generation=generation)).current is current


def test_thresholds_are_numbers_or_shares_and_allowed_is_never_negative() -> None:
    found = decode_budget(budget({"minAvailable": "50%", "maxUnavailable": 1}, {"disruptionsAllowed": -1}))
    assert (found.min_available, found.max_unavailable, found.allowed) == ("50%", 1, 0)


def gang(kind: str, api_version: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": api_version, "metadata": {**META, **meta}, "spec": spec}


@pytest.mark.parametrize(
    ("raw", "key", "size", "least"),
    [
        pytest.param(
            gang("PodGroup", "scheduling.volcano.sh/v1beta1", {"minMember": 4}), "podgroup", 4, 4, id="Volcano",
        ),
        pytest.param(
            gang("PodGroup", "scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 8}}}),
            "podgroup", 8, 8, id="native",
        ),
        pytest.param(gang("PodGroup", "scheduling.run.ai/v2alpha2", {}), "podgroup", 1, 1, id="one that says nothing"),
        pytest.param(
            gang("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [
                {"replicas": 2, "template": {"spec": {"parallelism": 3}}}, {"template": {}},
            ]}), "jobset", 7, 7, id="JobSet",
        ),
        pytest.param(
            gang("PyTorchJob", "kubeflow.org/v1", {
                "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}},
                "elasticPolicy": {"minReplicas": 2},
            }), "pytorchjob", 8, 2, id="Kubeflow, elastic",
        ),
        pytest.param(
            gang("RayCluster", "ray.io/v1", {"workerGroupSpecs": [{"replicas": 4, "minReplicas": 2, "numOfHosts": 2}]}),
            "raycluster", 9, 5, id="Ray",
        ),
        pytest.param(gang("Job", "batch/v1", {"parallelism": 3}), "job", 3, 3, id="a plain Job"),
        pytest.param(gang("Job", "batch/v1", {"parallelism": 10**12}), "job", 100_000, 100_000, id="a bounded size"),
    ],
)  # fmt: skip
def test_gang_objects_say_what_their_pods_do_not(raw: dict[str, Any], key: str, size: int, least: int) -> None:
    found = decode_gang(raw)
    assert (found.gang, found.size, found.min_member) == (f"ns/{key}/x", size, least)


def test_a_pod_group_is_owned_by_what_was_submitted() -> None:
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm", "controller": True}
    raw = gang("PodGroup", "scheduling.volcano.sh/v1beta1", {"queue": "q"}, ownerReferences=[owner])
    found = decode_gang(raw)
    assert (found.top_owner, found.queue) == ("Job.v1alpha1.batch.volcano.sh/llm", "q")


@pytest.mark.parametrize(
    ("kind", "api_version", "of"),
    [
        ("Pod", "v1", "pod"), ("Node", "v1", "node"), ("PodDisruptionBudget", "policy/v1", "budget"),
        ("Job", "batch/v1", "group"), ("Job", "batch.volcano.sh/v1alpha1", None),
        ("PodGroup", "scheduling.run.ai/v2alpha2", "group"), ("PodGroup", "other.example/v1", None),
        ("Secret", "v1", None), ("ConfigMap", "v1", "control"), ("JobSet", "jobset.x-k8s.io/v1alpha2", "group"),
    ],
)  # fmt: skip
def test_only_kinds_that_a_decision_needs_are_facts(kind: str, api_version: str, of: str | None) -> None:
    assert fact_kind(kind, api_version) == of


@pytest.mark.parametrize(("resource", "kind"), [("pods", "Pod"), ("Pod", "Pod"), ("secrets", ""), ("", "")])
def test_plural_names_are_kinds(resource: str, kind: str) -> None:
    assert singular(resource) == kind


CONTROL = Control(
    paused=True, paused_pools=("a", "b"), recall_all=True, recall_nodes=("n1",), recall_pools=("p",), retired=True,
    max_loans=3, modes={"infer-l20": Mode.ACT}, approved=("plan-1",), by="ops", why="a drill, announced",
)  # fmt: skip


@pytest.mark.parametrize("control", [CONTROL, Control()])
def test_the_brakes_survive_their_config_map(control: Control) -> None:
    raw = {"kind": "ConfigMap", "metadata": {"name": CONTROL_NAME}, "data": control_to_configmap(control)}
    assert decode_object(raw, Reading()) == control


def test_brakes_set_by_hand_are_understood() -> None:
    data = {"paused": "Yes", "paused-pools": "a, b\n c", "max-loans": 2, "modes": "x=act y=shadow"}
    found = control_from_configmap({"data": data})
    assert (found.paused, found.paused_pools, found.max_loans) == (True, ("a", "b", "c"), 2)
    assert found.modes == {"x": Mode.ACT, "y": Mode.SHADOW}


@pytest.mark.parametrize(
    "data", [{"paused": "tru"}, {"max-loans": "many"}, {"max-loans": "-1"}, {"modes": "x=on"}, {"modes": "=act"}]
)
def test_a_brake_that_cannot_be_read_is_an_error_and_not_off(data: dict[str, str]) -> None:
    with pytest.raises(DecodeError):
        control_from_configmap({"data": data})


def test_another_config_map_is_nobodys_brake() -> None:
    assert decode_object({"kind": "ConfigMap", "metadata": {"name": "other", "uid": "u"}}, Reading()) is None


def test_a_namespace_can_opt_out() -> None:
    raw = {"kind": "Namespace", "metadata": {**META, "annotations": {"gpu-rebalancer.io/opt-out": "true"}}}
    assert decode_object(raw, Reading()) == Namespace("u", "x", opted_out=True)


def test_a_bookmark_changes_nothing() -> None:
    assert decode_watch(samples_here.parsed("k8s/watch_bookmark.json"), Reading()) == (Marked("891234"),)


def test_an_expired_watch_makes_the_source_stale() -> None:
    (seen,) = decode_watch(samples_here.parsed("k8s/watch_error_410.json"), Reading())
    assert seen == SourceStale(410, "too old resource version: 880100 (891300)")


def test_a_late_delete_names_the_old_uid_only() -> None:
    (old,) = decode_watch(samples_here.parsed("k8s/watch_deleted_minimal.json"), Reading())
    new = decode_object(samples_here.parsed("k8s/pod_sts_new_uid.json"), Reading())
    assert isinstance(old, Gone)
    assert isinstance(new, Pod)
    assert (old.name, old.namespace) == (new.name, new.namespace)
    assert old.uid != new.uid


@pytest.mark.parametrize(
    ("event", "seen"),
    [
        pytest.param(
            {"type": "DELETED", "object": {"kind": "Pod", "metadata": {"name": "a", "namespace": "b"}}},
            (Hint("pod", "b", "a", "deleted, but no uid was given"),),
            id="a delete without a uid",
        ),
        pytest.param(
            {"type": "ADDED", "object": {"kind": "Pod", "metadata": META}},
            (Hint("pod", "ns", "x", "the object came without its body"),),
            id="a pod without its body holds no nothing",
        ),
        pytest.param(
            {"type": "MODIFIED", "object": {"kind": "Node", "metadata": META, "status": None}},
            (Hint("node", "ns", "x", "the object came without its body"),),
            id="a node without its status",
        ),
        pytest.param({"type": "ADDED", "object": {"kind": "Secret", "metadata": META}}, (), id="a kind of no use"),
        pytest.param({"type": "DELETED", "object": {"kind": "ConfigMap", "metadata": META}}, (), id="any config map"),
        pytest.param({"type": "ERROR", "object": None}, (SourceStale(0, ""),), id="an error that says nothing"),
    ],
)
def test_events_that_are_no_plain_change(event: dict[str, Any], seen: Any) -> None:
    assert decode_watch(event, Reading()) == seen


@pytest.mark.parametrize("event", [{}, {"type": "MAYBE", "object": {}}, {"type": "ADDED"}, {"type": "DELETED"}])
def test_what_is_no_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode_watch(event, Reading())


def test_a_relist_gives_equal_facts() -> None:
    event = {"type": "ADDED", "object": samples_here.parsed("k8s/pod_volcano_worker.json")}
    assert decode_watch(event, Reading()) == decode_watch(event, Reading())
    assert isinstance(decode_watch(event, Reading())[0], Changed)
