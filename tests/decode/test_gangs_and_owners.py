"""Whose a pod is: its gang, its class, its owner over resubmissions, and why it may never be evicted."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.adapters.decode.owners import Owner, parse_reference, stem
from rebalancer.core.units import OwnerClass
from tests.decode.pods_here import JOB, pod


@pytest.mark.parametrize(
    ("labels", "annotations", "gang", "size", "least"),
    [
        pytest.param({}, {"scheduling.volcano.sh/group-name": "g"}, "ns/podgroup/g", 1, 1, id="Volcano's newer key"),
        pytest.param({}, {"pod-group-name": "g"}, "ns/podgroup/g", 1, 1, id="KAI"),
        pytest.param({"scheduling.x-k8s.io/pod-group": "g"}, {}, "ns/podgroup/g", 1, 1, id="coscheduling"),
        pytest.param(
            {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "3"},
            {"pod-group.scheduling.sigs.k8s.io/total": "4"},
            "ns/podgroup/g",
            4,
            3,
            id="coscheduling's older keys",
        ),
        pytest.param(
            {"training.kubeflow.org/job-name": "j"}, {"scheduling.k8s.io/group-name": "g"}, "ns/podgroup/g", 1, 1,
            id="a PodGroup before the framework",
        ),
        pytest.param({}, {"jobset.sigs.k8s.io/jobset-name": "s"}, "ns/jobset/s", 1, 1, id="JobSet by annotation"),
        pytest.param({"training.kubeflow.org/job-name": "j"}, {}, "ns/job/j", 1, 1, id="Kubeflow by owner kind"),
        pytest.param(
            {}, {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/total-number": "2"},
            "ns/podgroup/g", 2, 2, id="Koordinator",
        ),
        pytest.param({"yunikorn.apache.org/app-id": "a"}, {}, "ns/yunikorn/a", 1, 1, id="YuniKorn"),
        pytest.param({"ray.io/cluster": "r"}, {}, "ns/raycluster/r", 1, 1, id="Ray"),
        pytest.param(
            {"leaderworkerset.sigs.k8s.io/group-key": "k"}, {"leaderworkerset.sigs.k8s.io/size": "2"},
            "ns/leaderworkerset/k", 2, 2, id="LWS",
        ),
        pytest.param(
            {"kueue.x-k8s.io/pod-group-name": "q"}, {"kueue.x-k8s.io/pod-group-total-count": "x"}, "ns/kueue/q", 1, 1,
            id="a size that is none",
        ),
        pytest.param({}, {}, "ns/job/eval", 1, 1, id="the top owner as one gang"),
    ],
)  # fmt: skip
def test_the_gang_is_found_by_every_frameworks_mark(
    labels: dict[str, str], annotations: dict[str, str], gang: str, size: int, least: int
) -> None:
    found = pod(labels, annotations, [JOB])
    assert (found.gang, found.gang_size, found.gang_min) == (gang, size, least)


@pytest.mark.parametrize(
    ("spec", "gang"),
    [
        ({"schedulingGroup": {"podGroupName": "g"}}, "ns/podgroup/g"),
        ({"workloadRef": {"name": "w", "podGroup": "workers"}}, "ns/podgroup/w/workers"),
        ({"workloadRef": {"podGroup": "workers"}}, "u"),
    ],
)
def test_the_schedulers_own_groups_are_gangs(spec: dict[str, Any], gang: str) -> None:
    assert pod(**spec).gang == gang


@pytest.mark.parametrize(
    ("marks", "protected"),
    [
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": False}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "False"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, False),
        ({"karpenter.sh/do-not-evict": True}, True),
        ({"karpenter.sh/do-not-evict": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "2h"}, True),
        ({"karpenter.sh/do-not-disrupt": "false"}, False),
        ({"volcano.sh/preemptable": "false"}, True),
        ({"volcano.sh/preemptable": "true"}, False),
        ({"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}, True),
        ({"descheduler.alpha.kubernetes.io/evict": "true"}, False),
    ],
)
def test_leave_it_alone_is_understood_in_every_spelling(marks: dict[str, Any], protected: bool) -> None:
    assert ("do-not-disrupt" in pod(annotations=marks, owners=[JOB]).protected) is protected
    assert ("do-not-disrupt" in pod(labels=marks, owners=[JOB]).protected) is protected


@pytest.mark.parametrize(
    ("spec", "critical"),
    [
        ({"priority": 2_000_000_000}, True),
        ({"priorityClassName": "system-node-critical"}, True),
        ({"priority": 1_999_999_999}, False),
    ],
)
def test_what_the_system_needs_is_protected(spec: dict[str, Any], critical: bool) -> None:
    assert ("system-critical" in pod(owners=[JOB], **spec).protected) is critical


WORKLOAD = {"key": "workload", "value": "inference", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("labels", "spec", "owner"),
    [
        pytest.param({"workload-type": "inference"}, {}, "inference", id="the label"),
        pytest.param({"workload-type": "batch"}, {}, "batch", id="another label"),
        pytest.param({"tier": "train"}, {}, "training", id="a legacy label"),
        pytest.param({"serving.knative.dev/service": "x"}, {}, "inference", id="a serving framework"),
        pytest.param({"ray.io/originated-from-crd": "RayService"}, {}, "inference", id="Ray that serves"),
        pytest.param(
            {"workload-type": "training", "serving.kserve.io/inferenceservice": "f"}, {}, "inference",
            id="in doubt inference",
        ),
        pytest.param({"trainer.kubeflow.org/trainjob-ancestor-step": "t"}, {}, "training", id="a training framework"),
        pytest.param({}, {"tolerations": [WORKLOAD]}, "inference", id="the owner's taint tolerated"),
        pytest.param({}, {"tolerations": [{"operator": "Exists"}]}, "unknown", id="every taint tolerated"),
        pytest.param(
            {}, {"tolerations": [WORKLOAD, {**WORKLOAD, "value": "training"}]}, "unknown", id="two taints tolerated"
        ),
        pytest.param({}, {"nodeSelector": {"workload-type": "training"}}, "training", id="the selector"),
        pytest.param({}, {"priorityClassName": "inference-high"}, "inference", id="the priority class"),
        pytest.param({}, {"priorityClassName": "gold"}, "unknown", id="a class that says nothing"),
    ],
)  # fmt: skip
def test_the_class_is_taken_from_the_strongest_sign(labels: dict[str, str], spec: dict[str, Any], owner: str) -> None:
    found = pod(labels, owners=[JOB], **spec)
    assert found.owner is OwnerClass(owner)
    assert ("inference" in found.protected) is (owner == "inference")


@pytest.mark.parametrize(
    ("name", "stable"),
    [
        ("bert", "bert"),
        ("llm-pre", "llm-pre"),
        ("bert-small", "bert-small"),
        ("llama-70b", "llama-70b"),
        ("train-run-17", "train"),
        ("sft-x7k2p", "sft"),
        ("nightly-28391040", "nightly"),
        ("exp-2026-03-01", "exp"),
        ("exp-3fa85f64-5717-4562-b3fc-2c963f66afa6", "exp"),
        ("tune-9f8e7d", "tune"),
        ("tune-v2", "tune"),
        ("a-raycluster-bq7xz-2", "a-raycluster"),
        ("17", "17"),
        ("", ""),
        ("-", "-"),
        ("a" + "-1" * 50_000, "a"),
    ],
)
def test_generated_endings_come_off(name: str, stable: str) -> None:
    assert stem(name) == stable


def test_resubmitting_keeps_the_identity() -> None:
    queue = {"kueue.x-k8s.io/queue-name": "team-b"}
    first, second = ({**JOB, "name": f"sft-{end}"} for end in ("x7k2p", "20260301"))
    assert pod(queue, owners=[first]).workload == pod(queue, owners=[second]).workload == "ns/team-b/sft"


def test_a_deployments_pods_share_an_owner_over_rollouts() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-6c9d7f", "controller": True}]
    found = pod({"pod-template-hash": "6c9d7f"}, owners=owners)
    assert (found.top_owner, found.controller_kind) == ("Deployment.v1.apps/chat", "ReplicaSet")


@pytest.mark.parametrize(
    "owner",
    [Owner("batch/v1", "Job", "a"), Owner("v1", "Node", "n.x/y"), Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "s")],
)
def test_an_owner_reference_reads_back(owner: Owner) -> None:
    assert parse_reference(owner.reference) == owner


@pytest.mark.parametrize("text", ["", "Job", "Job/a", "/", "Job.v1.batch/"])
def test_what_is_no_owner_reference_is_no_owner(text: str) -> None:
    assert parse_reference(text) == Owner()
