"""Pod objects: what they hold, whose they are, which gang, and why they may never be evicted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rebalancer.adapters.decode.claims import Claim, decode_claim
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.owners import Owner, parse_reference, stem
from rebalancer.adapters.decode.pods import decode_pod
from rebalancer.core.facts import Pod, PodPhase, Requirement, Toleration
from rebalancer.core.units import OwnerClass
from tests.decode import samples_here

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "eval", "uid": "o", "controller": True}
P = "gpu-rebalancer.io/"


def pod(
    labels: dict[str, Any] | None = None,
    annotations: dict[str, Any] | None = None,
    owners: list[Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    meta = {"name": "p-0", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-03-02T14:00:00Z"}
    raw = {
        "metadata": {**meta, "labels": labels, "annotations": annotations, "ownerReferences": owners or []},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], **spec},
        "status": {"phase": "Running", **(status or {})},
    }
    return decode_pod(raw)


def sample(name: str, claims: dict[tuple[str, str], Claim] | None = None) -> Pod:
    return decode_pod(samples_here.parsed(f"k8s/{name}.json"), claims)


@pytest.mark.parametrize(
    ("name", "gpus", "held", "gang", "owner", "protected"),
    [
        ("pod_bare_no_owner", 1, 1, "7e570012-0000-4000-8000-000000000012", "unknown", "bare"),
        ("pod_daemonset_gpu", 1, 1, "7e570011-0000-4000-8000-000000000011", "unknown", "daemonset"),
        ("pod_do_not_disrupt", 4, 4, "ml-c/job/eval", "unknown", "do-not-disrupt"),
        ("pod_dra_claim", None, 0, "7e570015-0000-4000-8000-000000000015", "unknown", "bare resource-claims"),
        ("pod_dra_same_claim_second_pod", None, 0, "7e570016-0000-4000-8000-000000000016", "unknown",
         "bare resource-claims"),
        ("pod_dra_extended_resource_count_once", 2, 2, "7e570017-0000-4000-8000-000000000017", "unknown",
         "bare resource-claims"),
        ("pod_init_max_5_over_2", 5, 5, "7e570008-0000-4000-8000-000000000008", "unknown", "bare"),
        ("pod_jobset_worker", 8, 8, "ml-b/jobset/sft", "unknown", ""),
        ("pod_kserve_predictor", 1, 1, "serve-a/deployment/fraud-predictor", "inference", "inference"),
        ("pod_kubeflow_pytorch_worker", 4, 4, "ml-a/pytorchjob/resnet", "training", ""),
        ("pod_kueue_gated_pending", 8, 0, "ml-b/kueue/ft", "unknown", "bare"),
        ("pod_limits_only_podlevel_overhead_expect_3", 3, 3, "7e57000a-0000-4000-8000-00000000000a", "unknown", "bare"),
        ("pod_lws_leader_inference", 8, 8, "serve-b/leaderworkerset/9f8e7d", "inference", "inference"),
        ("pod_mig", 2, 2, "7e570013-0000-4000-8000-000000000013", "unknown", "bare"),
        ("pod_mirror_static", 1, 1, "7e570010-0000-4000-8000-000000000010", "unknown", "mirror"),
        ("pod_nominated_pending", 8, 0, "7e57000f-0000-4000-8000-00000000000f", "unknown", "bare"),
        ("pod_ray_worker", 2, 2, "serve-c/raycluster/rc", "unknown", ""),
        ("pod_shared", 1, 1, "7e570014-0000-4000-8000-000000000014", "unknown", "bare"),
        ("pod_sts_new_uid", 1, 1, "serve-b/statefulset/llm-chat", "unknown", ""),
        ("pod_sts_old_uid", 1, 1, "serve-b/statefulset/llm-chat", "unknown", ""),
        ("pod_succeeded_still_has_node", 4, 0, "7e57000b-0000-4000-8000-00000000000b", "unknown", "bare terminal"),
        ("pod_terminating_holds_gpus", 8, 8, "7e57000e-0000-4000-8000-00000000000e", "unknown", "bare"),
        ("pod_volcano_worker", 8, 8, "ml-a/podgroup/llm-pre-77aa", "training", ""),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("pod_") else "",
)  # fmt: skip
def test_every_recorded_pod_is_what_it_is(  # noqa: PLR0917 - a table's columns
    name: str, gpus: int | None, held: int, gang: str, owner: str, protected: str
) -> None:
    found = sample(name)
    assert (found.gpus, found.held, found.gang, found.owner.value) == (gpus, held, gang, owner)
    assert " ".join(found.protected) == protected


def test_every_recorded_pod_has_a_row_above() -> None:
    recorded = [name for name in samples_here.names("k8s") if "/pod_" in name]
    assert len(recorded) == 23


def test_a_terminating_pod_holds_and_releases_until_it_is_gone() -> None:
    found = sample("pod_terminating_holds_gpus")
    assert (found.held, found.releasing, found.grace_seconds) == (8, 8, 600)
    assert found.deleting_at == datetime(2026, 3, 3, 6, 10, tzinfo=UTC)


def test_a_nominated_pod_waits_and_occupies_nothing() -> None:
    found = sample("pod_nominated_pending")
    assert (found.pending, found.node, found.nominated_node) == (True, "", "gpu-a100-04")
    assert found.unschedulable_since == datetime(2026, 3, 2, 14, tzinfo=UTC)


def test_a_gated_pod_does_not_ask_yet() -> None:
    found = sample("pod_kueue_gated_pending")
    assert (found.gated, found.pending, found.gang_size, found.unschedulable_since) == (True, False, 4, None)


def test_a_shared_claim_is_charged_once_and_moves_to_the_next_holder() -> None:
    raw = samples_here.parsed("k8s/resourceclaim_shared.json")
    claim = decode_claim(raw)
    claims = {("ml-b", "team-gpu"): claim}
    assert [sample(name, claims).gpus for name in ("pod_dra_claim", "pod_dra_same_claim_second_pod")] == [1, 0]
    del raw["status"]["reservedFor"][0]
    later = {("ml-b", "team-gpu"): decode_claim(raw)}
    assert sample("pod_dra_same_claim_second_pod", later).gpus == 1


@pytest.mark.parametrize(
    ("request_", "gpus"),
    [
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}, 2),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com"}}, 1),
        ({"deviceClassName": "gpu.nvidia.com", "count": "3"}, 3),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}, None),
        ({"firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}]}, None),
        ({"exactly": {"deviceClassName": "rdma.example.com", "count": 4}}, 0),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}}, 0),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": "x"}}, None),
    ],
)
def test_a_claim_that_is_not_allocated_counts_what_it_asks_for(request_: dict[str, Any], gpus: int | None) -> None:
    meta = {"name": "c", "namespace": "ns", "uid": "u"}
    assert decode_claim({"metadata": meta, "spec": {"devices": {"requests": [request_]}}}).gpus == gpus


@pytest.mark.parametrize(
    ("containers", "why"),
    [
        ([{"resources": {"requests": {"nvidia.com/gpu": "all"}}}], "an amount that is none"),
        (None, "no containers at all"),
        ([{"resources": {"limits": {"aliyun.com/gpu-mem": "4"}}}], "gigabytes of a card"),
        ([{"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}}}], "a part of a card"),
    ],
)
def test_a_count_that_cannot_be_read_is_unknown_and_not_zero(containers: Any, why: str) -> None:
    assert pod(containers=containers).gpus is None, why


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


def test_a_fraction_by_annotation_is_no_count() -> None:
    marks, nothing = {"gpu-fraction": "0.5"}, [{"name": "c"}]
    assert pod(annotations=marks, containers=nothing).gpus is None
    assert pod(annotations=marks).gpus == 1
    assert pod(containers=nothing).gpus == 0


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


def test_our_own_marks_are_read() -> None:
    found = pod(
        {P + "reclaimable": True},
        {
            P + "notice-seconds": "120",
            P + "checkpointed-at": "2026-03-03T05:59:00+01:00",
            P + "checkpoint-in-progress": "true",
            P + "progress": "0.97",
            P + "finishes-at": "2026-03-03T06:04:00Z",
            P + "opt-out": "true",
        },
        [JOB],
    )
    assert (found.reclaimable, found.notice_seconds, found.checkpoint_in_progress, found.progress) == (
        True, 120, True, 0.97,
    )  # fmt: skip
    assert found.checkpointed_at == datetime(2026, 3, 3, 4, 59, tzinfo=UTC)
    assert found.finishes_at == datetime(2026, 3, 3, 6, 4, tzinfo=UTC)
    assert found.opted_out


def test_marks_that_cannot_be_read_are_absent() -> None:
    marks = {P + "notice-seconds": "-5", P + "checkpointed-at": "yesterday", P + "progress": "nan"}
    found = pod({P + "reclaimable": "maybe"}, marks)
    assert (found.reclaimable, found.notice_seconds, found.checkpointed_at, found.progress) == (False, 0, None, None)


def test_only_requirements_restrict_where_a_pod_may_run() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu-model", "operator": "In", "values": ["A100", "L20"]}]},
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                    {},
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "chat"}}},
                {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}},
                {"topologyKey": "kubernetes.io/hostname"},
            ]
        },
    }
    found = pod(affinity=affinity, nodeSelector={"zone": "a"}, tolerations=[{"key": "k", "operator": "Exists"}])
    zone = Requirement("zone", "In", ("a",))
    assert found.node_terms == (
        (zone, Requirement("gpu-model", "In", ("A100", "L20"))),
        (zone, Requirement("metadata.name", "In", ("n1",))),
    )
    assert found.anti_affinity == ((Requirement("app", "In", ("chat",)),),)
    assert found.tolerations == (Toleration("k", "Exists"),)


def test_an_affinity_that_matches_nothing_does_not_match_everything() -> None:
    empty: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    (term,) = pod(affinity=empty).node_terms
    assert term[0].values == ()
    assert pod().node_terms == ()


def test_a_restart_is_a_new_start() -> None:
    states = [{"state": {"running": {"startedAt": f"2026-03-03T0{hour}:00:00Z"}}} for hour in (1, 3)]
    found = pod(status={"startTime": "2026-03-02T14:00:05Z", "containerStatuses": states})
    assert found.started_at == datetime(2026, 3, 3, 3, tzinfo=UTC)
    assert pod(status={"startTime": "2026-03-02T14:00:05Z"}).started_at == datetime(2026, 3, 2, 14, 0, 5, tzinfo=UTC)


def test_an_unheard_of_phase_is_unknown() -> None:
    assert pod(status={"phase": "Dreaming"}).phase is PodPhase.UNKNOWN


@pytest.mark.parametrize("missing", ["uid", "name", "namespace"])
def test_a_pod_without_identity_is_refused(missing: str) -> None:
    meta = {"name": "p", "namespace": "ns", "uid": "u"}
    del meta[missing]
    with pytest.raises(DecodeError, match=missing):
        decode_pod({"metadata": meta})
