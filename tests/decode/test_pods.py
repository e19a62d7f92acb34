"""Pod objects: what they hold, where they may run, and what they say about themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rebalancer.adapters.decode.claims import decode_claim
from rebalancer.adapters.decode.errors import DecodeError
from rebalancer.adapters.decode.pods import decode_pod
from rebalancer.core.facts import PodPhase, Requirement, Toleration
from tests.decode import samples_here
from tests.decode.pods_here import JOB, P, pod, sample


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


def test_a_fraction_by_annotation_is_no_count() -> None:
    marks, nothing = {"gpu-fraction": "0.5"}, [{"name": "c"}]
    assert pod(annotations=marks, containers=nothing).gpus is None
    assert pod(annotations=marks).gpus == 1
    assert pod(containers=nothing).gpus == 0


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
