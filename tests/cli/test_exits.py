"""Exit codes as a shell sees them: 0 ok, 1 failure, 2 usage, 3 would change or not safe, 4 cannot reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rebalancer.adapters.policyfile import PolicyRefused
from rebalancer.adapters.streams.connection import Unreachable
from rebalancer.cli.exits import HELP, Code, Refused, code_of
from rebalancer.settings import NoCluster
from tests.cli import night
from tests.cli.conftest import Run
from tests.cli.test_policyfile import EXAMPLE


def shell(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rebalancer", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **variables},
    )


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens: a port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def test_0_when_it_went_well(folder: Path) -> None:
    told = shell("why", night.GANG, "--from", folder)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("research/llm-7 was evicted")


def test_1_when_a_policy_is_refused_with_path_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("pools:\n  a: {model: A100, owner: nobody}\n", encoding="utf-8")
    told = shell("policy", "check", file)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"{file}:2:20: pools.a.owner: 'nobody' is none of ")


def test_2_when_it_was_used_wrongly() -> None:
    told = shell("status", "--no-such-option")
    assert (told.returncode, told.stdout) == (2, "")
    assert "No such option" in told.stderr


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["status"], id="status"),
        pytest.param(["pools"], id="pools"),
        pytest.param(["decisions", "--follow"], id="decisions --follow"),
        pytest.param(["why", "a-1"], id="why"),
        pytest.param(["topics", "plan"], id="topics plan"),
        pytest.param(["topics", "apply"], id="topics apply"),
        pytest.param(["pause"], id="pause"),
        pytest.param(["recall", "--all"], id="recall"),
        pytest.param(["approve", "x"], id="approve"),
    ],
)
def test_4_when_the_broker_is_missing_and_the_address_is_said(run: Run, nobody: str, command: list[str]) -> None:
    told = run(*command, "--kafka", nobody)
    assert (told.exit_code, told.stdout) == (4, "")
    assert f"cannot reach Kafka, tried {nobody}" in told.stderr


def test_4_reaches_the_shell_with_one_line_and_no_traceback(nobody: str) -> None:
    told = shell("loans", GPU_REBALANCER_KAFKA__BOOTSTRAP=nobody)
    assert (told.returncode, told.stdout) == (4, "")
    assert told.stderr.count("\n") == 1
    assert f"tried {nobody}" in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["recall"], id="recall without a target"),
        pytest.param(["recall", "--all", "--pool", "a"], id="recall of two things"),
        pytest.param(["topics", "acl", "nobody"], id="permissions of a role that is none"),
        pytest.param(["run", "--roles", "nobody"], id="a role that is none"),
        pytest.param(["status", "--config", "/no/such/file"], id="settings that are not there"),
        pytest.param(["status", "--kafka", "nowhere"], id="a broker without port"),
        pytest.param(["run", "--config", "/dev/null"], id="run without a policy"),
    ],
)
def test_2_when_the_arguments_make_no_sense(run: Run, arguments: list[str]) -> None:
    told = run(*arguments)
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(Refused("no"), Code.FAILED, id="an answer that is no"),
        pytest.param(Refused("no", Code.UNSAFE), Code.UNSAFE, id="an answer that is not safe"),
        pytest.param(PolicyRefused("a", ()), Code.FAILED, id="a policy"),
        pytest.param(Unreachable("a:1", "refused"), Code.UNREACHABLE, id="a broker"),
        pytest.param(TimeoutError(), Code.UNREACHABLE, id="a time-out"),
        pytest.param(PermissionError("file"), Code.FAILED, id="a file"),
        pytest.param(NoCluster("none"), Code.USAGE, id="roles without a cluster"),
    ],
)
def test_each_error_has_its_code(error: Exception, code: Code) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize("command", ["status", "demo", "why", "recall", "topics", "run"])
def test_every_help_documents_the_codes(run: Run, command: str) -> None:
    told = run(command, "--help")
    assert told.exit_code == 0
    assert HELP in " ".join(told.stdout.split())


def test_version_is_data(run: Run) -> None:
    assert run("version").stdout.startswith("gpu-pool-rebalancer ")
    assert '"contract": "v1"' in run("version", "--json").stdout


def test_help_and_policy_check_load_no_stream_and_no_contract() -> None:
    code = (
        "import sys; from rebalancer.cli.app import app\n"
        f"try: app(['policy', 'check', {str(EXAMPLE)!r}])\n"
        "except SystemExit as ended: assert ended.code == 0\n"
        "heavy = ('faust', 'kubernetes', 'rebalancer.wire.v1', 'confluent_kafka')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == "[]\n"
