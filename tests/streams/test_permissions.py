"""Least privilege by role, and connection arguments, without a broker."""

from pathlib import Path
from typing import Any

import faust
import pytest
import trustme
from faust.types.auth import AuthProtocol
from pydantic import ValidationError

from rebalancer.adapters.streams.acl import NEEDS, Acl, Role, acl
from rebalancer.adapters.streams.connection import FileToken, KafkaSettings
from rebalancer.wire import v1
from rebalancer.wire.topics import topics

ROLES = sorted(NEEDS)


def who(operation: str, topic: str) -> set[str]:
    return {role for role in ROLES for each in acl(role) if each.name == topic and operation in each.operations}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_given_listed_topics_only_by_their_full_names(role: Role) -> None:
    given = [each for each in acl(role) if each.resource == "topic"]
    assert {each.name for each in given} <= {topic.name for topic in topics()}
    assert {each.pattern for each in given} == {"literal"}
    assert all("Describe" in each.operations for each in given)


def test_plans_are_the_deciders_and_what_act_planned_alone_and_only_act_writes_outcomes() -> None:
    assert who("Write", v1.PLAN) == {"decide", "act"}
    assert who("Write", v1.OUTCOME) == {"act"}
    assert who("Read", v1.PLAN) >= {"act", "subscriber"}


def test_an_auditor_reads_the_facts_too_and_writes_nothing() -> None:
    assert {name for each in acl("auditor") for name in each.operations} == {"Read", "Describe"}
    assert "auditor" in who("Read", v1.FACT_TOPICS["pod"])


def test_a_subscriber_writes_nothing_and_sees_no_journal_and_no_facts() -> None:
    assert {name for each in acl("subscriber") for name in each.operations} == {"Read", "Describe"}
    assert "subscriber" not in who("Read", v1.JOURNAL)
    assert "subscriber" not in who("Read", v1.FACT_TOPICS["pod"])


def test_every_topic_has_someone_who_writes_it() -> None:
    unwritten = {topic.name for topic in topics() if not who("Write", topic.name) and not topic.dead_letters_of}
    assert unwritten == set()


def test_who_reads_may_put_aside_what_cannot_be_read() -> None:
    assert who("Write", f"{v1.SAMPLE_DEVICE}.dlq") == {"telemetry"}
    assert "decide" in who("Write", f"{v1.OUTCOME}.dlq")


def test_a_line_is_what_kafkas_own_tool_takes() -> None:
    lines = [each.line for each in acl("act", "User:bob", sources=("team.metrics",))]
    assert (
        "kafka-acls $KAFKA --add --allow-principal User:bob --operation Read --operation Describe"
        " --resource-pattern-type literal --topic gpu.fact.control.v1"
    ) in lines
    assert any(line.endswith("--topic team.metrics") for line in lines)
    assert lines[-1].endswith("--operation Read --resource-pattern-type prefixed --group gpu-rebalancer-act")


def test_a_reader_of_foreign_topics_writes_none_of_them_and_puts_aside_beside_ours() -> None:
    granted = {
        (one.name, operation) for one in acl("collect", sources=("team.metrics",)) for operation in one.operations
    }
    assert {operation for name, operation in granted if name == "team.metrics"} == {"Read", "Describe"}
    assert not any(name.startswith("team.metrics.") for name, _ in granted)
    assert {(f"{v1.SAMPLE_DEVICE}.dlq", "Write"), (v1.FACT_TOPICS["node"], "Read"), (v1.CONTROL, "Write")} <= granted
    alone = {(one.name, operation) for one in acl("collect") for operation in one.operations}
    assert (v1.CONTROL, "Write") not in alone


def test_as_json_it_is_plain_data() -> None:
    assert Acl("User:a", "topic", "t", "literal", ("Read",)).as_json() == {
        "principal": "User:a",
        "resource": "topic",
        "name": "t",
        "pattern": "literal",
        "operations": ["Read"],
    }


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def test_plain_text_has_nothing_to_prove() -> None:
    kafka = KafkaSettings(bootstrap="a:1,b:2")
    assert kafka.client_arguments()["bootstrap_servers"] == ["a:1", "b:2"]
    assert kafka.faust_arguments() == {"broker": "kafka://a:1;kafka://b:2"}


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [("SASL_PLAINTEXT", AuthProtocol.SASL_PLAINTEXT), ("SASL_SSL", AuthProtocol.SASL_SSL)],
)
def test_faust_and_aiokafka_prove_the_same(authority: Path, protocol: Any, expected: AuthProtocol) -> None:
    kafka = KafkaSettings(protocol=protocol, username="u", password="p", mechanism="SCRAM-SHA-256", ca_file=authority)
    app = faust.App("t", **kafka.faust_arguments())
    credentials: Any = app.conf.broker_credentials
    arguments = kafka.client_arguments()
    assert credentials.protocol is expected
    assert (credentials.username, credentials.password) == ("u", "p")
    assert credentials.mechanism.value == arguments["sasl_mechanism"] == "SCRAM-SHA-256"
    assert (credentials.ssl_context is None) == (arguments["ssl_context"] is None) == (protocol == "SASL_PLAINTEXT")


def test_encryption_alone_is_credentials_enough(authority: Path) -> None:
    given = KafkaSettings(protocol="SSL", ca_file=authority).faust_arguments()
    assert given["broker_credentials"].protocol is AuthProtocol.SSL


async def test_a_token_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    kafka = KafkaSettings(protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER", token_file=file)
    provider = kafka.client_arguments()["sasl_oauth_token_provider"]
    assert isinstance(provider, FileToken)
    assert await provider.token() == "one"
    file.write_text("two\n")
    assert await provider.token() == "two"
    assert await kafka.faust_arguments()["broker_credentials"].oauth_cb.token() == "two"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"protocol": "SASL_SSL"}, "needs username"),
        ({"protocol": "SASL_SSL", "username": "u"}, "password"),
        ({"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER"}, "token_file"),
        ({"bootstrap": "no port"}, "bootstrap"),
        ({"bootstraps": "a:1"}, "bootstraps"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        KafkaSettings(**given)


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("hidden\n")
    kafka = KafkaSettings(protocol="SASL_PLAINTEXT", username="u", password_file=file)
    assert kafka.client_arguments()["sasl_plain_password"] == "hidden"
    shown = KafkaSettings(protocol="SASL_PLAINTEXT", username="u", password="hidden")
    assert "hidden" not in repr(shown) + str(shown)
