"""Settings: variables come before the file, the command line before both; unknown and inconsistent ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from rebalancer.adapters.decode.foreign import FORMATS
from rebalancer.settings import Role, Settings, load_settings


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_anything_all_roles_run_against_a_local_broker() -> None:
    held = load_settings()
    assert held.roles == frozenset(Role)
    assert held.kafka.bootstrap == "localhost:9092"
    assert (held.lease.duration, held.lease.renew, held.lease.retry) == (15, 10, 2)


def test_variables_come_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "cluster: from-file\nkafka: {bootstrap: 'file:9092', timeout: 3}\nroles: [act]\n")
    monkeypatch.setenv("GPU_REBALANCER_KAFKA__BOOTSTRAP", "variable:9092")
    monkeypatch.setenv("GPU_REBALANCER_ROLES", "telemetry, decide")
    held = load_settings(file)
    assert (held.cluster, held.kafka.bootstrap, held.kafka.timeout) == ("from-file", "variable:9092", 3)
    assert held.roles == {Role.TELEMETRY, Role.DECIDE}


def test_arguments_come_before_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_REBALANCER_CLUSTER", "variable")
    file = written(tmp_path, "kafka: {bootstrap: 'file:9092', timeout: 3}\n")
    held = load_settings(file, kafka="here:1,there:2", cluster="berlin", roles="act")
    assert (held.cluster, held.kafka.bootstrap, held.kafka.timeout) == ("berlin", "here:1,there:2", 3)
    assert held.roles == {Role.ACT}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("clustre: a\n", "clustre", id="an unknown name"),
        pytest.param("kafka: {bootstraps: 'a:1'}\n", "bootstraps", id="an unknown name further down"),
        pytest.param("kafka: {bootstrap: nowhere}\n", "bootstrap", id="a broker without port"),
        pytest.param("kafka: {protocol: SASL_SSL}\n", "needs username", id="SASL without a name"),
        pytest.param("kafka: {protocol: SASL_SSL, mechanism: OAUTHBEARER}\n", "token_file", id="no token"),
        pytest.param("roles: [decider]\n", "roles", id="a role that is none"),
        pytest.param("roles: []\n", "at least one", id="no role"),
        pytest.param("placed: {berlin: 4}\n", "not below 4", id="a partition that is not there"),
        pytest.param("lease: {renew: 20}\n", "duration must exceed renew", id="a lease that ends before it is renewed"),
        pytest.param("http: {port: 70000}\n", "port", id="a port that no machine has"),
        pytest.param("sources: [{topic: t, format: csv}]\n", "is no format", id="a format that nobody decodes"),
        pytest.param("sources: [{topic: t}]\n", "format", id="a source without a format"),
        pytest.param(
            "sources: [{topic: gpu.fact.pod.v1, format: knative}]\n", "topic of ours", id="our own topic as a source"
        ),
        pytest.param(
            "sources: [{topic: t, format: knative}, {topic: t, format: argo-events}]\n",
            "named twice",
            id="one topic twice",
        ),
        pytest.param("log: {format: xml}\n", "format", id="a log format that is none"),
    ],
)
def test_it_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        load_settings(written(tmp_path, text))


def test_the_shipped_example_is_accepted_and_names_every_setting() -> None:
    file = Path(__file__).parents[2] / "deploy" / "settings.example.yaml"
    held = load_settings(file)
    assert held.cluster == "berlin"
    text = file.read_text(encoding="utf-8")
    assert [name for name in Settings.model_fields if f"\n{name}:" not in text and name != "simulate"] == []
    assert [one for one in FORMATS if one not in text] == []


def test_sources_come_from_the_file_or_from_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "sources: [{topic: gpu-metrics, format: telegraf-json, cluster: paris}]\n")
    (source,) = load_settings(file).sources
    assert (source.topic, source.format, source.cluster) == ("gpu-metrics", "telegraf-json", "paris")
    monkeypatch.setenv("GPU_REBALANCER_SOURCES", '[{"topic": "objects", "format": "knative"}]')
    assert [one.topic for one in load_settings(file).sources] == ["objects"]


@pytest.mark.parametrize(("text", "says"), [("- 1\n", "must be a mapping, is a list"), ("a: [\n", "is no YAML")])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        load_settings(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no file"):
        load_settings(tmp_path / "none.yaml")


def test_a_cluster_goes_where_it_was_placed() -> None:
    assert Settings(cluster="berlin", placed={"berlin": 2}).partition == 2
    assert Settings(cluster="berlin").partition == Settings(cluster="berlin").partition


def test_secrets_do_not_show() -> None:
    held = Settings(kafka={"protocol": "SASL_SSL", "username": "rebalancer", "password": "top-secret"})
    assert "top-secret" not in repr(held)
    assert held.kafka.secret() == "top-secret"


def test_a_password_file_is_read_anew(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("one\n", encoding="utf-8")
    kafka = Settings(kafka={"protocol": "SASL_SSL", "username": "a", "password_file": secret}).kafka
    assert kafka.secret() == "one"
    secret.write_text("two\n", encoding="utf-8")
    arguments = kafka.client_arguments()
    assert (arguments["sasl_plain_password"], arguments["security_protocol"]) == ("two", "SASL_SSL")
