"""Text pages of every exporter generation, and what becomes of their rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.adapters.decode.counters import decode_counters
from rebalancer.adapters.decode.dcgm_rows import Field, field_of, usable
from rebalancer.adapters.decode.dcgm_text import decode_page
from rebalancer.adapters.decode.errors import DecodeError, SourceFailedError
from tests.decode import samples_here

TS = datetime(2025, 11, 29, 8, 0, 12, tzinfo=UTC)


def line(tail: str, labels: str = 'gpu="0",UUID="GPU-a",Hostname="n"') -> bytes:
    return f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {tail}\n".encode()


@pytest.mark.parametrize(
    ("sample", "rows", "rejected"),
    [
        pytest.param("01_exporter_2.x_hostname_is_podname.prom", 3, 0, id="an exporter of 2.x"),
        pytest.param("02_exporter_4.2_node_hostname.prom", 6, 0, id="an exporter of 4.2"),
        pytest.param("04_prometheus_federated_exported_pod.prom", 2, 0, id="a federated page"),
        pytest.param("05_old_namespace_1.x.prom", 3, 0, id="names of 1.x"),
        pytest.param("06_mig_a100_parent_and_instances.prom", 4, 0, id="MIG parent and instances"),
        pytest.param("08_timeslicing_vgpu_identical_rows.prom", 3, 0, id="copies per virtual GPU"),
        pytest.param("10_no_prof_metrics.prom", 1, 0, id="no profiling metrics"),
        pytest.param("11_sentinels_and_garbage.prom", 10, 0, id="blanks are rows still"),
        pytest.param("12_xid.prom", 4, 0, id="XID codes"),
        pytest.param("13_hpc_jobs.prom", 3, 0, id="copies per job"),
        pytest.param("14_dra.prom", 2, 0, id="copies per claim"),
        pytest.param("15_openmetrics.txt", 2, 0, id="OpenMetrics with an exemplar and an end mark"),
        pytest.param("16_crlf.prom", 2, 0, id="CRLF"),
        pytest.param("18_nvlink_nvswitch_cpu_rows.prom", 4, 0, id="links, switches and processors"),
        pytest.param("19_relabelled_node_labels.prom", 3, 0, id="relabelled nodes"),
        pytest.param("20_escapes_and_one_bad_line.prom", 2, 1, id="one bad line costs one line"),
    ],
)
def test_every_page_gives_its_rows(sample: str, rows: int, rejected: int) -> None:
    page = decode_page(samples_here.raw(f"dcgm/{sample}"))
    assert (len(page.rows), page.rejected_count) == (rows, rejected)


def test_the_bad_line_is_named_by_its_number_and_its_neighbours_survive() -> None:
    page = decode_page(samples_here.raw("dcgm/20_escapes_and_one_bad_line.prom"))
    assert [(bad.line, bad.why) for bad in page.rejected] == [(3, "label note is not closed")]
    assert [row.value for row in page.rows] == [10.0, 30.0]
    assert page.rows[0].labels["note"] == 'C:\\path "q" \n x'


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param(b"1 1764403212000", TS, id="milliseconds"),
        pytest.param(b"1 1764403212.0", TS, id="float seconds"),
        pytest.param(b"1 1764403212", TS, id="whole seconds"),
        pytest.param(b"1 1.764403212e9", TS, id="scientific seconds"),
        pytest.param(b"1 1764403212000000000", TS, id="nanoseconds"),
        pytest.param(b"1", None, id="none"),
        pytest.param(b'1 # {trace_id="x"} 1.0 17', None, id="an exemplar is no time"),
        pytest.param(b"1 NaN", None, id="a time that is not one"),
    ],
)  # fmt: skip
def test_times_are_understood_by_their_size(text: bytes, at: datetime | None) -> None:
    page = decode_page(line(text.decode()))
    assert [row.at for row in page.rows] == [at]


@pytest.mark.parametrize(
    ("labels", "key", "value"),
    [
        pytest.param('UUID="G",err_msg="says "no" loudly"', "err_msg", 'says "no" loudly', id="bare quotes"),
        pytest.param('UUID="G",path="C:\\temp\\new"', "path", "C:\\temp\new", id="what is an escape stays one"),
        pytest.param('path="C:\\",UUID="G"', "UUID", "G", id="a value that ends in a backslash"),
        pytest.param('UUID="G",note="a}b"', "note", "a}b", id="a brace inside"),
        pytest.param('UUID="G",note="a, b=\\"c\\""', "note", 'a, b="c"', id="commas and equals inside"),
        pytest.param(' UUID = "G" , note = "x" , ', "note", "x", id="blanks and a last comma"),
        pytest.param('UUID="G",note=""', "note", "", id="an empty value"),
        pytest.param('UUID="G","k8s.node.name"="n7"', "k8s.node.name", "n7", id="a quoted label name"),
        pytest.param('UUID="G",note="\u00fc \u2603"', "note", "\u00fc \u2603", id="letters beyond ASCII"),
    ],
)
def test_labels_are_read_escaped_or_not(labels: str, key: str, value: str) -> None:
    page = decode_page(line("5", labels))
    assert page.rejected == ()
    assert page.rows[0].labels[key] == value


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} x\n', "labels or value unreadable", id="a word for a value"),
        pytest.param(b'DCGM_FI_DEV_GPU_UTIL{gpu="0"}\n', "labels or value unreadable", id="no value"),
        pytest.param(b"DCGM_\xff{} 1\n", "not UTF-8", id="bytes that are no text"),
        pytest.param(b"404 page not found\n", "no metric name", id="a sentence"),
        pytest.param(b'DCGM_X{a="' + b"y" * 70_000 + b'"} 1\n', "longer than 65536 bytes", id="an endless line"),
        pytest.param(b'DCGM_X{a="b"} 1 2 3\n', "labels or value unreadable", id="too many numbers"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_rejected_alone(bad: bytes, why: str) -> None:
    page = decode_page(line("1") + bad + line("2"))
    assert [(item.line, item.why) for item in page.rejected] == [(2, why)]
    assert [row.value for row in page.rows] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(samples_here.raw("dcgm/17_http500_body.txt"), 500, id="a server error"),
        pytest.param(samples_here.raw("dcgm/17_http500_body.txt"), 200, id="an error body behind a 200"),
        pytest.param(b"", 200, id="nothing"),
        pytest.param(b"# HELP x\n# EOF\n", 200, id="comments only"),
        pytest.param(b"<html>\n<body>502</body></html>", 200, id="a proxy's page"),
        pytest.param(b"error 500\n", 200, id="a sentence that looks like a sample"),
        pytest.param(b"go_goroutines 11\n", 200, id="a process that reports no GPU"),
        pytest.param(b"\x1f\x8b\x08\x00", 200, id="a compressed page"),
        pytest.param(line("1"), 503, id="a page behind an error status"),
    ],
)
def test_an_error_is_a_failed_source_and_never_an_idle_one(body: bytes, status: int) -> None:
    with pytest.raises(SourceFailedError):
        decode_page(body, status)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        pytest.param("DCGM_FI_DEV_GPU_UTIL", Field.GPU_UTIL, id="modern"),
        pytest.param("dcgm_gpu_utilization", Field.GPU_UTIL, id="1.x"),
        pytest.param("DCGM_FI_PROF_GR_ENGINE_ACTIVE_ratio", Field.ENGINE_ACTIVE, id="with its unit"),
        pytest.param("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", Field.ENERGY, id="with the counter's suffix"),
        pytest.param("DCGM_FI_DEV_GPU_UTIL_ratio", None, id="another unit is another quantity"),
        pytest.param("DCGM_FI_DEV_MEM_COPY_UTIL", None, id="a metric of no use here"),
        pytest.param("", None, id="no name"),
    ],
)
def test_names_of_all_generations_fill_the_same_fields(name: str, field: Field | None) -> None:
    assert field_of(name) is field


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        pytest.param(Field.GPU_UTIL, 9223372036854775792, "blank", id="INT64 blank"),
        pytest.param(Field.GPU_UTIL, 9.223372036854776e18, "blank", id="INT64 blank rounded"),
        pytest.param(Field.GPU_UTIL, 9.2233720e18, "blank", id="INT64 blank of float32"),
        pytest.param(Field.MEMORY_USED, 2147483635, "blank", id="INT32 not permitted"),
        pytest.param(Field.MEMORY_USED, 2147483648.0, "blank", id="INT32 blank of float32"),
        pytest.param(Field.GPU_UTIL, 4294967295, "blank", id="unsigned blank"),
        pytest.param(Field.ENGINE_ACTIVE, 140737488355331.0, "blank", id="FP64 not permitted"),
        pytest.param(Field.ENGINE_ACTIVE, 14073748835532800, "blank", id="FP64 blank times a hundred"),
        pytest.param(Field.POWER, -math.inf, "blank", id="infinity"),
        pytest.param(Field.POWER, math.nan, "nan", id="NaN"),
        pytest.param(Field.GPU_UTIL, 2619, "range", id="a spike of a percentage"),
        pytest.param(Field.GPU_UTIL, -1, "range", id="below nothing"),
        pytest.param(Field.ENGINE_ACTIVE, 87.0, "range", id="a percentage where a ratio belongs"),
        pytest.param(Field.GPU_UTIL, 100, "", id="full"),
        pytest.param(Field.ENGINE_ACTIVE, 0.0, "", id="idle"),
        pytest.param(Field.ENERGY, 2147483633.0, "", id="a counter on its way past a blank"),
    ],
)
def test_what_is_no_load_is_no_value(field: Field, value: float, why: str) -> None:
    reading = usable(field, value)
    assert (reading.why, reading.value) == (why, None if why else value)


def test_the_counters_file_says_which_signals_to_expect() -> None:
    counters = decode_counters(samples_here.raw("dcgm/23_counters_default.csv").decode())
    assert [counter.name for counter in counters if counter.kind == "label"] == ["DCGM_FI_DRIVER_VERSION"]
    assert {counter.fills for counter in counters} >= {Field.GPU_UTIL, Field.ENGINE_ACTIVE, Field.XID}
    with pytest.raises(DecodeError, match="line 1"):
        decode_counters("DCGM_FI_DEV_GPU_UTIL, gouge, x")


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_bytes_raise_anything_but_a_failed_source(body: bytes) -> None:
    try:
        page = decode_page(body)
    except SourceFailedError:
        return
    assert page.rows


def test_labels_that_repeat_are_read_once_and_an_exemplars_braces_are_no_labels() -> None:
    exemplar = b'DCGM_FI_DEV_GPU_UTIL{UUID="G"} 7 # {UUID="G"} 1.0 17\n'
    page = decode_page(line("1") + line("2") + exemplar * 2 + line("9", 'UUID="G"} 7 # {UUID="G"'))
    assert [row.value for row in page.rows] == [1.0, 2.0, 7.0, 7.0, 7.0]
    assert [row.labels.get("UUID") for row in page.rows] == ["GPU-a", "GPU-a", "G", "G", "G"]


HOSTILE = st.text(alphabet='{}",=\\ \nab0#', max_size=60)


@given(HOSTILE)
def test_one_hostile_line_never_takes_its_neighbours_with_it(text: str) -> None:
    hostile = text.replace("\n", " ")
    page = decode_page(line("1") + b"DCGM_X" + hostile.encode() + b"\n" + line("2"))
    assert [row.value for row in page.rows if row.name == "DCGM_FI_DEV_GPU_UTIL"] == [1.0, 2.0]


@given(st.text(max_size=40).filter(lambda value: "\r" not in value and "\n" not in value))
def test_any_escaped_label_value_comes_back_as_it_was(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    page = decode_page(line("1", f'UUID="G",note="{escaped}"'))
    assert page.rows[0].labels["note"] == value
