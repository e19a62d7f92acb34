"""Alerts as an Alertmanager gets them: identity in labels, ends that run out, bounded; and read from their topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rebalancer.adapters.alerts import MOST, RESOLVED_FOR, Alertmanagers, Board, labels_of, name_of
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams.alerting import Alerting
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.loader import Came
from rebalancer.adapters.tallies import ALERTED
from rebalancer.adapters.translate import encode_alert, encode_instruction
from rebalancer.core.instructions import ClearAlert, ForgetAlert, RaiseAlert
from rebalancer.core.reasons import Because, Reason
from rebalancer.settings import AlertSettings
from rebalancer.wire.envelope import Record
from tests.monitoring.generate import MONITORING

NOW = datetime(2026, 3, 2, 22, tzinfo=UTC)
CLUSTER = "berlin"
TOLD = AlertSettings(link="https://rebalancer.example.org/", runbooks="https://runbooks.example.org", resend=60)


def alert(reason: Reason = Reason.OVERDUE, target: str = "n1", key: str = "a", pool: str = "infer-a100") -> RaiseAlert:
    numbers = {"node": "n1", "overdue_seconds": 1, "gang": "ml/a"}
    severity = "critical" if reason is Reason.OVERDUE else "warning"
    return RaiseAlert(key, severity, target, pool, Because(reason, numbers), NOW)  # type: ignore[arg-type]  # literals


def board(settings: AlertSettings = TOLD) -> Board:
    return Board(CLUSTER, settings, Metrics())


COMMON = {"cluster": CLUSTER, "source": "gpu-rebalancer"}


@pytest.mark.parametrize(
    ("raised", "labels"),
    [
        pytest.param(
            alert(),
            {"alertname": "GpuRebalancerLoanOverdue", "severity": "critical", "reason": "overdue",
             "pool": "infer-a100", "node": "n1"}, id="a node",
        ),
        pytest.param(
            alert(Reason.GANG_SPLIT, "ml/a"),
            {"alertname": "GpuRebalancerGangSplit", "severity": "warning", "reason": "gang-split",
             "pool": "infer-a100", "gang": "ml/a"}, id="a gang",
        ),
        pytest.param(
            alert(Reason.SQUATTER, "ml/a-0"),
            {"alertname": "GpuRebalancerSquatter", "severity": "warning", "reason": "squatter",
             "pool": "infer-a100", "pod": "ml/a-0"}, id="a pod",
        ),
        pytest.param(
            alert(Reason.TELEMETRY_SILENT, "infer-a100"),
            {"alertname": "GpuRebalancerTelemetryUnknown", "severity": "warning", "reason": "telemetry-silent",
             "pool": "infer-a100"}, id="a pool",
        ),
        pytest.param(
            alert(Reason.INVALID_POLICY, CLUSTER, pool=""),
            {"alertname": "GpuRebalancerPolicyRefused", "severity": "warning", "reason": "invalid-policy"},
            id="the whole cluster",
        ),
        pytest.param(
            alert(Reason.UNREACHABLE, "ml/a"),
            {"alertname": "GpuRebalancerActTroubled", "severity": "warning", "reason": "unreachable",
             "pool": "infer-a100", "gang": "ml/a"}, id="what has no name of its own",
        ),
    ],
)  # fmt: skip
def test_labels_identify(raised: RaiseAlert, labels: dict[str, str]) -> None:
    assert labels_of(raised, CLUSTER) == labels | COMMON


def test_numbers_that_change_do_not_change_the_labels() -> None:
    later = RaiseAlert("a", "critical", "n1", "infer-a100", Because(Reason.OVERDUE, {"overdue_seconds": 900}), NOW)
    assert labels_of(later, CLUSTER) == labels_of(alert(), CLUSTER)


def test_annotations_tell() -> None:
    held = board()
    held.raised(alert())
    (told,) = held.payload(NOW)
    assert told["annotations"] == {
        "summary": "n1 is 1 s past its due time",
        "description": "N1 is 1 s past its due time (first seen 2026-03-02 22:00Z).",
        "id": "a", "n_node": "n1", "n_overdue_seconds": "1", "n_gang": "ml/a",
        "runbook_url": "https://runbooks.example.org/GpuRebalancerLoanOverdue.md",
    }  # fmt: skip
    assert told["generatorURL"] == "https://rebalancer.example.org/why/a"


def test_without_addresses_of_pages_no_link_is_made_up() -> None:
    held = board(AlertSettings())
    held.raised(alert())
    (told,) = held.payload(NOW)
    assert "generatorURL" not in told
    assert "runbook_url" not in told["annotations"]


@pytest.mark.parametrize("reason", ALERTED, ids=lambda one: one.value)
def test_every_alert_has_a_runbook(reason: Reason) -> None:
    assert (MONITORING / "runbooks" / f"{name_of(reason)}.md").is_file()


def test_what_stands_ends_some_resends_from_now_and_what_is_over_when_it_ended() -> None:
    held = board()
    held.raised(alert())
    held.raised(alert(Reason.GANG_SPLIT, "ml/a", "b"))
    ended = NOW + timedelta(minutes=5)
    held.cleared("b", ended)
    later = NOW + timedelta(minutes=10)
    ends = {one["labels"]["reason"]: one["endsAt"] for one in held.payload(later)}
    assert ends == {"gang-split": ended.isoformat(), "overdue": (later + timedelta(seconds=240)).isoformat()}
    assert {one["startsAt"] for one in held.payload(later)} == {NOW.isoformat()}


@pytest.mark.parametrize(
    ("after", "told"),
    [
        pytest.param(RESOLVED_FOR, 1, id="for a while"),
        pytest.param(RESOLVED_FOR + timedelta(seconds=1), 0, id="and no longer"),
    ],
)
def test_the_end_is_told_again(after: timedelta, told: int) -> None:
    held = board()
    held.raised(alert())
    held.cleared("a", NOW)
    assert len(held.payload(NOW + after)) == told


def test_an_alert_never_ends_before_it_began() -> None:
    held = board()
    held.raised(alert())
    held.cleared("a", NOW - timedelta(hours=1))
    assert held.payload(NOW)[0]["endsAt"] == NOW.isoformat()


def test_what_comes_back_stands_again_and_only_once() -> None:
    held = board()
    held.raised(alert())
    held.cleared("a", NOW)
    held.raised(alert())
    assert [one["endsAt"] for one in held.payload(NOW)] == [(NOW + timedelta(seconds=240)).isoformat()]


def test_the_end_of_what_was_never_seen_standing_is_nothing_to_tell() -> None:
    held = board()
    held.cleared("a", NOW)
    assert held.payload(NOW) == []


def test_memory_is_bounded_and_what_is_left_out_is_counted() -> None:
    metrics = Metrics()
    held = Board(CLUSTER, TOLD, metrics)
    for number in range(MOST + 3):
        held.raised(alert(target=f"n{number}", key=str(number)))
    assert len(held.payload(NOW)) == MOST
    assert metrics.registry.get_sample_value("gpu_rebalancer_alerts_dropped_total") == 3


# -- the topic -----------------------------------------------------------------------------------------------------


def came(record: Record, offset: int = 0) -> Came:
    return Came(record.topic, 0, offset, record.key, record.value, tuple(record.headers))


@pytest.fixture
def held() -> Board:
    return board()


@pytest.fixture
def reader(held: Board) -> Alerting:
    return Alerting(KafkaSettings(), CLUSTER, 0, held, Alertmanagers(held, TOLD, Metrics()))


def test_what_decide_publishes_stands_and_ends(reader: Alerting, held: Board) -> None:
    assert reader.take(came(encode_alert(alert(), CLUSTER)))
    assert [one["labels"]["node"] for one in held.payload(NOW)] == ["n1"]
    ended = NOW + timedelta(minutes=2)
    assert reader.take(came(encode_alert(ClearAlert("a", ended), CLUSTER)))
    assert [one["endsAt"] for one in held.payload(ended)] == [ended.isoformat()]


def test_a_record_that_was_deleted_ends_what_stood(reader: Alerting, held: Board) -> None:
    reader.take(came(encode_alert(alert(), CLUSTER)))
    reader.take(came(encode_instruction(ForgetAlert("a"), CLUSTER, NOW)))
    now = datetime.now(UTC)
    assert [datetime.fromisoformat(one["endsAt"]) <= now for one in held.payload(now)] == [True]


def test_alerts_of_another_cluster_are_not_ours(reader: Alerting, held: Board) -> None:
    assert not reader.take(came(encode_alert(alert(), "paris")))
    assert held.payload(NOW) == []


def test_what_cannot_be_read_changes_nothing(reader: Alerting, held: Board) -> None:
    record = encode_alert(alert(), CLUSTER)
    assert not reader.take(came(record._replace(value=b"{")))
    assert held.payload(NOW) == []
