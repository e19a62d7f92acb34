"""From rows to node samples: identity, copies, attribution, MIG, and whose node it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.adapters.decode.dcgm_devices import assemble
from rebalancer.adapters.decode.dcgm_nodes import (
    Directory,
    NodeEntry,
    PodEntry,
    directory,
    node_entry,
    pod_entry,
    resolve_node,
    without_port,
)
from rebalancer.adapters.decode.dcgm_rows import Row
from rebalancer.adapters.decode.dcgm_text import decode_page
from rebalancer.core.telemetry import DeviceReading, NodeSample
from tests.decode import samples_here

NOW = datetime(2026, 3, 3, 6, 0, tzinfo=UTC)
G1, G2, G3 = (
    "GPU-11111111-aaaa-4b4b-8c8c-000000000001",
    "GPU-11111111-aaaa-4b4b-8c8c-000000000002",
    "GPU-22222222-bbbb-4b4b-8c8c-000000000001",
)
NODES = [
    "gpu-t4-01", "gpu-h100-07", "gpu-h100-08", "gpu-h100-09", "gpu-b200-02", "gpu-v100-03", "gpu-a100-01",
    "gpu-t4-05", "ws-11", "gpu-x-01", "slurm-a100-01", "gpu-h200-03", "win-relay-01", "gpu-e-01",
]  # fmt: skip


def known(*pods: PodEntry) -> Directory:
    entries = [NodeEntry(f"uid-{name}", name, 8, (f"10.0.0.{index}",)) for index, name in enumerate(NODES, 1)]
    return directory(entries, pods)


def read(sample: str, where: Directory | None = None) -> tuple[list[NodeSample], dict[str, int]]:
    page = decode_page(samples_here.raw(f"dcgm/{sample}"))
    done = assemble(page.rows, where or known(), NOW)
    return list(done.samples), dict(done.dropped)


def only(sample: str, where: Directory | None = None) -> dict[str, DeviceReading]:
    (found,) = read(sample, where)[0]
    return {f"{item.uuid}/{item.instance}".removesuffix("/"): item for item in found.devices}


EXPORTER = PodEntry("gpu-operator", "dcgm-exporter-q7x2m", "gpu-t4-01", 0, ("10.244.1.9",))


def test_a_hostname_that_is_a_pod_leads_to_the_pods_node() -> None:
    (sample,), dropped = read("01_exporter_2.x_hostname_is_podname.prom", known(EXPORTER))
    assert (sample.node, sample.node_name, sample.expected) == ("uid-gpu-t4-01", "gpu-t4-01", 8)
    assert [(item.gpu_util, item.pod) for item in sample.devices] == [
        (61, "serve-a/ranker-6f9c7d5b4-x2v8k"),
        (0, ""),
    ]
    assert dropped == {"unused-metric": 1}


def test_an_unknown_hostname_is_counted_and_makes_no_node() -> None:
    samples, dropped = read("01_exporter_2.x_hostname_is_podname.prom")
    assert samples == []
    assert dropped["unknown-node"] == 2


def test_a_modern_page_gives_every_signal_of_every_gpu() -> None:
    devices = only("02_exporter_4.2_node_hostname.prom")
    assert devices[G1] == DeviceReading(G1, 0.871204, 93, memory_used=72311, pod="serve-b/llm-chat-0")
    assert devices[G2] == DeviceReading(G2, 0.0, 0, memory_used=4)


def test_exported_pod_wins_and_the_exporters_own_pod_is_nobody() -> None:
    (sample,), _ = read("04_prometheus_federated_exported_pod.prom")
    assert [item.pod for item in sample.devices] == ["serve-c/qa-sglang-5d8f7c6b9-7k2lp", ""]
    assert sample.at == datetime(2025, 11, 29, 8, 0, 12, tzinfo=UTC)


def test_a_pod_label_of_a_pod_without_gpus_is_nobody() -> None:
    labels = {"UUID": "G", "Hostname": "ws-11", "pod": "exporter-1", "namespace": "ops"}
    done = assemble([Row("DCGM_FI_DEV_GPU_UTIL", labels, 3.0)], known(PodEntry("ops", "exporter-1", "ws-11", 0)), NOW)
    assert done.samples[0].devices[0].pod == ""


def test_clusters_with_and_without_exported_labels_can_come_together() -> None:
    base = {"pod": "p", "namespace": "a"}
    rows = [
        Row("DCGM_FI_DEV_GPU_UTIL", {**base, "UUID": "G1", "node": "ws-11", "job": "x", "exported_pod": "q"}, 1.0),
        Row("DCGM_FI_DEV_GPU_UTIL", {**base, "UUID": "G2", "node": "ws-11", "job": "x"}, 1.0),
        Row("DCGM_FI_DEV_GPU_UTIL", {**base, "UUID": "G3", "node": "ws-11", "job": "y"}, 1.0),
    ]
    (sample,) = assemble(rows, known(), NOW).samples
    assert [item.pod for item in sample.devices] == ["/q", "", "a/p"]


def test_names_of_1x_give_the_same_record() -> None:
    devices = only("05_old_namespace_1.x.prom")
    assert devices[G1] == DeviceReading(G1, 0.96211, 97, pod="ml-a/bert-worker-0")
    assert devices[G2] == DeviceReading(G2, None, 0)


def test_mig_instances_count_and_their_parent_does_not() -> None:
    devices = only("06_mig_a100_parent_and_instances.prom")
    assert {key: item.engine_active for key, item in devices.items()} == {f"{G1}/1": 0.998004, f"{G1}/2": 0.0}
    assert [item.pod for item in devices.values()] == ["serve-a/triton-0", ""]


def test_a_hardware_error_of_a_divided_card_reaches_every_instance() -> None:
    base = {"UUID": "G", "Hostname": "ws-11"}
    rows = [
        Row("DCGM_FI_DEV_XID_ERRORS", base, 79.0),
        Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {**base, "GPU_I_ID": "3"}, 0.0),
        Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {**base, "GPU_I_ID": "4"}, 0.5),
    ]
    (sample,) = assemble(rows, known(), NOW).samples
    assert [(item.instance, item.xid) for item in sample.devices] == [("3", 79), ("4", 79)]


@pytest.mark.parametrize(
    ("sample", "loads", "pods"),
    [
        pytest.param(
            "08_timeslicing_vgpu_identical_rows.prom",
            {G1: 71},
            {G1: "dev/nb-1,dev/nb-2,dev/nb-3"},
            id="virtual GPUs",
        ),
        pytest.param("13_hpc_jobs.prom", {G1: 88, G2: 12}, {G1: "", G2: ""}, id="jobs"),
        pytest.param("14_dra.prom", {G1: 40}, {G1: "ml-b/exp-a,ml-b/exp-b"}, id="claims"),
        pytest.param("16_crlf.prom", {G1: 37, G2: 0}, {G1: "", G2: ""}, id="none, but CRLF"),
    ],
)
def test_copies_of_a_gpu_are_one_gpu(sample: str, loads: dict[str, float], pods: dict[str, str]) -> None:
    devices = only(sample)
    assert {key: item.gpu_util for key, item in devices.items()} == loads
    assert {key: item.pod for key, item in devices.items()} == pods


def test_of_differing_copies_the_busier_counts() -> None:
    labels = {"UUID": "G", "Hostname": "ws-11"}
    rows = [Row("DCGM_FI_DEV_GPU_UTIL", {**labels, "pid": str(pid)}, load) for pid, load in ((1, 0.0), (2, 64.0))]
    (sample,) = assemble(rows, known(), NOW).samples
    assert [item.gpu_util for item in sample.devices] == [64.0]


def test_without_profiling_the_older_signal_remains() -> None:
    devices = only("10_no_prof_metrics.prom")
    assert [(item.engine_active, item.gpu_util) for item in devices.values()] == [(None, 100)]


def test_blanks_and_garbage_are_dropped_counted_and_never_a_load() -> None:
    samples, dropped = read("11_sentinels_and_garbage.prom")
    assert samples == []
    assert dropped == {"blank": 7, "nan": 1, "range": 2}


def test_xids_are_the_last_codes_and_zero_is_none() -> None:
    devices = only("12_xid.prom")
    assert {key: item.xid for key, item in devices.items()} == {G1: 31, G2: 79, G3: 0}


def test_openmetrics_gives_load_and_energy_at_the_pages_own_time() -> None:
    (sample,), _ = read("15_openmetrics.txt")
    assert sample.devices == (DeviceReading(G1, gpu_util=93, energy=5.549167e10, pod="serve-b/llm-chat-0"),)
    assert sample.at == datetime(2025, 11, 29, 8, 0, 12, 513000, tzinfo=UTC)


def test_links_switches_and_processors_make_no_gpu() -> None:
    samples, dropped = read("18_nvlink_nvswitch_cpu_rows.prom")
    assert (samples, dropped) == ([], {"no-gpu": 4})


def test_relabelled_node_labels_win_over_hostname() -> None:
    samples, _ = read("19_relabelled_node_labels.prom", known(PodEntry("ops", "dcgm-exporter-zz9k1", "ws-11", 0)))
    loads = {sample.node_name: sample.devices[0].gpu_util for sample in samples}
    assert loads == {"gpu-h100-07": 12, "gpu-h100-08": 13, "gpu-h100-09": 14}


def test_flickering_attribution_moves_no_gpu() -> None:
    where = known()
    labels = {"UUID": "G", "Hostname": "ws-11"}
    uuids = set()
    for step, pod in enumerate(["p", "", "p"]):
        row = Row("DCGM_FI_DEV_GPU_UTIL", {**labels, "pod": pod, "namespace": "a"}, 5.0)
        (sample,) = assemble([row], where, NOW + timedelta(seconds=30 * step)).samples
        uuids |= {item.uuid for item in sample.devices}
    assert uuids == {"G"}


def test_rows_of_series_that_ended_are_left_out() -> None:
    labels = {"UUID": "G", "Hostname": "ws-11"}
    rows = [
        Row("DCGM_FI_DEV_GPU_UTIL", labels, 90.0, NOW),
        Row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, 0.0, NOW - timedelta(minutes=8)),
    ]
    done = assemble(rows, known(), NOW)
    assert done.samples[0].devices == (DeviceReading("G", gpu_util=90.0),)
    assert done.dropped == {"stale": 1}


TWINS = directory(
    [
        NodeEntry("u1", "gpu-1.site-a", 8, ("10.0.0.1",)),
        NodeEntry("u2", "gpu-1.site-b", 8, ("10.0.0.2", "fd00::2")),
    ],
    [
        PodEntry("a", "exporter-x", "gpu-1.site-a", 0, ("10.244.0.1",)),
        PodEntry("b", "exporter-x", "gpu-1.site-b", 0, ("10.244.0.2",)),
        PodEntry("b", "exporter-y", "gpu-1.site-b", 0),
    ],
    {"GPU-old": "u2", "GPU-gone": "u9"},
)
PLAIN = directory([NodeEntry("u3", "gpu-3", 8, ("gpu-3.internal", "10.0.0.3"))])


@pytest.mark.parametrize(
    ("where", "labels", "uuid", "uid"),
    [
        pytest.param(TWINS, {"node": "gpu-1.site-b", "Hostname": "gpu-1.site-a"}, "", "u2", id="explicit label first"),
        pytest.param(TWINS, {"node": "no-such", "Hostname": "gpu-1.site-a"}, "", "u1", id="a useless label is passed"),
        pytest.param(TWINS, {"Hostname": "gpu-1"}, "", None, id="a short name that two nodes share is none"),
        pytest.param(TWINS, {"Hostname": "exporter-x"}, "", None, id="a pod name that two nodes share is none"),
        pytest.param(TWINS, {"Hostname": "exporter-y"}, "", "u2", id="a pod's name"),
        pytest.param(TWINS, {"Hostname": "exporter-x", "instance": "10.244.0.1:9400"}, "", "u1", id="a pod's address"),
        pytest.param(TWINS, {"instance": "10.0.0.2:9400"}, "", "u2", id="a node's address"),
        pytest.param(TWINS, {"instance": "[fd00::2]:9400"}, "", "u2", id="a node's other address"),
        pytest.param(TWINS, {"namespace": "a", "pod": "exporter-x"}, "", "u1", id="the exporter's own pod label"),
        pytest.param(TWINS, {"Hostname": "x"}, "GPU-old", "u2", id="what the GPU taught before"),
        pytest.param(TWINS, {"Hostname": "x"}, "GPU-gone", None, id="a lesson about a node that is gone"),
        pytest.param(TWINS, {"Hostname": "gpu-1.site-c"}, "", None, id="another site's namesake is none"),
        pytest.param(PLAIN, {"hostname": "GPU-3"}, "", "u3", id="lower case and upper case"),
        pytest.param(PLAIN, {"Hostname": "gpu-3.internal"}, "", "u3", id="the full domain name"),
        pytest.param(PLAIN, {"Hostname": "gpu-3.rack.example"}, "", "u3", id="a domain that the node does not know"),
        pytest.param(PLAIN, {"host": "gpu-3", "url": "http://10.0.0.3"}, "", None, id="the collector's host is none"),
    ],
)
def test_the_node_is_found_in_the_order_of_belief(
    where: Directory, labels: dict[str, str], uuid: str, uid: str | None
) -> None:
    found = resolve_node(labels, uuid, where)
    assert (found.uid if found else None) == uid


def test_lessons_about_nodes_that_are_gone_are_forgotten() -> None:
    where = directory([NodeEntry("u1", "n", 8)], learnt={"G1": "u1", "G2": "u9"})
    where.forget_strangers()
    assert where.learnt == {"G1": "u1"}


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:9400", "10.0.0.1"), ("[::1]:9400", "::1"), ("fd00::2", "fd00::2"), ("n", "n"), ("", "")],
)
def test_ports_come_off(address: str, host: str) -> None:
    assert without_port(address) == host


def test_a_pod_object_brings_its_node_and_address() -> None:
    raw = {"metadata": {"name": "e", "namespace": "ops"}, "spec": {"nodeName": "n"}, "status": {"podIP": "10.2.0.1"}}
    assert pod_entry(raw, 0) == PodEntry("ops", "e", "n", 0, ("10.2.0.1",))
    assert pod_entry({"spec": 3}, None) == PodEntry("", "", "", None)


def test_a_node_object_brings_its_addresses() -> None:
    raw = {
        "metadata": {"labels": {"kubernetes.io/hostname": "h7"}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.1.1.1"}, "garbled"]},
    }
    assert node_entry(raw, "u", "n", 4).aliases == ("10.1.1.1", "h7")
    assert node_entry({"status": 3}, "u", "n", 4).aliases == ()
