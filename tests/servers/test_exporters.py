"""The played exporters say what the product reads from real ones."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from rebalancer.adapters.decode.dcgm_text import decode_page
from tests.servers.exporters import Exporters

UTIL, ENERGY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    fleet = {"infer-01": (8, "A100"), "infer-02": (4, "L20")}

    def holders(node: str) -> list[tuple[str, str] | None]:
        return [("team", f"{node}-pod"), *[None] * 7]

    with Exporters(fleet, {"infer-01": 80.0}, holders) as server:
        yield server


def ask(exporters: Exporters, query: str) -> list[dict[str, Any]]:
    asked = f"{exporters.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(asked, timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def values(exporters: Exporters, query: str) -> set[float]:
    return {float(row["value"][1]) for row in ask(exporters, query)}


def test_a_query_by_name_gets_a_row_for_every_gpu_with_the_labels_of_a_scraped_exporter(exporters: Exporters) -> None:
    rows = ask(exporters, UTIL)
    assert len(rows) == 12
    assert rows[0]["metric"] | {"UUID": ""} == {
        "__name__": UTIL, "gpu": "0", "UUID": "", "pci_bus_id": "00000000:10:00.0", "device": "nvidia0",
        "modelName": "NVIDIA A100-SXM4-80GB", "Hostname": "infer-01", "exported_container": "main",
        "exported_namespace": "team", "exported_pod": "infer-01-pod", "job": "nvidia-dcgm-exporter",
        "instance": "infer-01:9400", "namespace": "gpu-operator", "node": "infer-01", "endpoint": "gpu-metrics",
        "pod": "nvidia-dcgm-exporter-infer-01", "container": "nvidia-dcgm-exporter",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(f'{UTIL}{{Hostname="infer-01"}}', {80.0}, id="equal"),
        pytest.param(f'{UTIL}{{Hostname!="infer-01"}}', {0.0}, id="not equal"),
        pytest.param(f'{UTIL}{{Hostname=~"infer-01|other"}}', {80.0}, id="one of"),
        pytest.param(f'{{__name__=~"{UTIL}|x", gpu="0"}}', {80.0, 0.0}, id="the name as a matcher"),
        pytest.param("up", set(), id="a series that is not there"),
    ],
)
def test_label_matchers_choose_rows(exporters: Exporters, query: str, expected: set[float]) -> None:
    assert values(exporters, query) == expected
    assert exporters.queries == [query]


def test_energy_moves_with_the_load_and_stands_still_when_frozen(exporters: Exporters) -> None:
    query = f'{ENERGY}{{gpu="0", Hostname="infer-01"}}'
    first = values(exporters, query)
    deadline = time.monotonic() + 5
    while (later := values(exporters, query)) == first:
        assert time.monotonic() < deadline
    exporters.set_mode("frozen", "infer-01")
    assert max(later) > max(first)
    assert values(exporters, query) == values(exporters, query)


def test_a_silent_node_has_no_rows_and_the_others_have(exporters: Exporters) -> None:
    exporters.set_mode("silent", "infer-01")
    assert {row["metric"]["Hostname"] for row in ask(exporters, UTIL)} == {"infer-02"}


def test_the_page_of_a_node_is_at_an_address_of_its_own_and_is_readable(exporters: Exporters) -> None:
    with urllib.request.urlopen(f"http://{exporters.address('infer-02')}:{exporters.port}/metrics", timeout=5) as page:
        read = decode_page(page.read())
    assert not read.rejected
    assert {row.labels["modelName"] for row in read.rows} == {"NVIDIA L20"}


def test_a_failing_exporter_answers_500(exporters: Exporters) -> None:
    exporters.set_mode("failing")
    with pytest.raises(urllib.error.HTTPError, match="500") as failed:
        ask(exporters, UTIL)
    failed.value.close()
