"""The commands at a cluster: what they write into the control object, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rebalancer.cli.app import app
from tests.control.fakeapi import FakeApi, refusal
from tests.control.things import lent, node

HERE = "gpu-rebalancer"
CONTROL = f"/api/v1/namespaces/{HERE}/configmaps/gpu-rebalancer-control"
POLICY = """
pools:
  infer-a100: {model: A100, owner: inference, lends_to: [training], owner_taint: "workload=inference:NoSchedule",
               windows: [always]}
"""
Beside = tuple[FakeApi, Path]


def run(beside: Beside, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--config", str(beside[1])])


def data(beside: Beside) -> dict[str, str]:
    held: dict[str, str] = beside[0].objects[CONTROL]["data"]
    return held


COMMANDS = {
    "pause": (["pause", "--why", "firmware"], {"paused": "true", "why": "firmware", "by": "grace"}),
    "pause a pool": (["pause", "--pool", "infer-a100"], {"paused": "false", "paused-pools": "infer-a100"}),
    "recall a node": (["recall", "--node", "n1"], {"recall-nodes": "n1"}),
    "recall a node directly": (["recall", "--node", "n1", "--direct"], {"recall-nodes": "n1"}),
    "recall a pool": (["recall", "--pool", "infer-a100"], {"recall-pools": "infer-a100"}),
    "recall all": (["recall", "--all"], {"recall-all": "true"}),
    "a pool's mode": (["mode", "infer-a100", "act"], {"modes": "infer-a100=act"}),
    "a limit": (["limit", "3"], {"max-loans": "3"}),
}


@pytest.mark.parametrize(("arguments", "holds"), COMMANDS.values(), ids=COMMANDS)
def test_a_brake_is_written_into_the_cluster_without_any_broker(
    beside: Beside, arguments: list[str], holds: dict[str, str]
) -> None:
    beside[0].place("/api/v1/nodes/n1", **node("n1"))
    told = run(beside, *arguments, "--by", "grace")
    assert (told.exit_code, told.stdout) == (0, "")
    assert data(beside).items() >= holds.items()
    assert f"{HERE}/gpu-rebalancer-control" in told.stderr


STOOD = {
    "paused": "true", "paused-pools": "infer-a100,infer-l20", "recall-nodes": "n1,n2",
    "recall-pools": "infer-l20", "modes": "infer-a100=act", "max-loans": "3", "retired": "false",
}  # fmt: skip
RESUMES = {
    "everything": ({}, [], {"paused": "false", "paused-pools": "", "recall-nodes": "", "recall-pools": ""}, 0),
    "modes and limits are no brakes": ({}, [], {"modes": "infer-a100=act", "max-loans": "3"}, 0),
    "one node": ({}, ["--node", "n1"], {"recall-nodes": "n2", "paused": "true"}, 0),
    "one pool": (
        {"paused": "false"}, ["--pool", "infer-l20"], {"recall-pools": "", "paused-pools": "infer-a100"}, 0,
    ),
    "one pool while everything is paused": ({}, ["--pool", "infer-l20"], {"recall-pools": "infer-l20"}, 3),
    "one node while everything is recalled": ({"recall-all": "true"}, ["--node", "n1"], {"recall-nodes": "n1,n2"}, 3),
    "a retirement is not ended by the way": ({"retired": "true"}, [], {"retired": "true", "paused": "true"}, 3),
    "a retirement is ended by all": ({"retired": "true"}, ["--all"], {"retired": "false", "paused": "false"}, 0),
    "two things at once": ({}, ["--node", "n1", "--all"], {"paused": "true"}, 2),
}  # fmt: skip


@pytest.mark.parametrize(("before", "options", "holds", "code"), RESUMES.values(), ids=RESUMES)
def test_what_resume_ends(
    beside: Beside, before: dict[str, str], options: list[str], holds: dict[str, str], code: int
) -> None:
    beside[0].place(CONTROL, data={**STOOD, **before})
    assert run(beside, "resume", *options).exit_code == code
    assert data(beside).items() >= holds.items()


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        pytest.param(["recall", "--node", "n3"], "no node is called 'n3'", 1, id="a node misspelt"),
        pytest.param(["pause", "--pool", "infer"], "did you mean infer-a100", 1, id="a pool misspelt"),
        pytest.param(["mode", "infer-a100", "fast"], "say shadow, act or policy", 2, id="no mode"),
        pytest.param(["limit", "many"], "say a number, or none", 2, id="no number"),
        pytest.param(["recall"], "exactly one", 2, id="nothing to recall"),
        pytest.param(["retire"], "say --yes", 2, id="nobody to ask"),
        pytest.param(["preflight", "--profile", "root"], "--profile is one of", 2, id="no profile"),
    ],
)
def test_what_is_refused_changes_nothing(beside: Beside, arguments: list[str], says: str, code: int) -> None:
    beside[1].with_name("policy.yaml").write_text(POLICY)
    beside[0].place("/api/v1/nodes/n1", **node("n1"))
    told = run(beside, *arguments)
    assert (told.exit_code, CONTROL in beside[0].objects) == (code, False)
    assert says in " ".join(told.stderr.replace("│", " ").split())


def test_who_may_not_list_nodes_may_still_recall_one(beside: Beside) -> None:
    beside[0].hook = lambda _, __, path: refusal(403, "no") if path == "/api/v1/nodes" else None
    assert run(beside, "recall", "--node", "n1").exit_code == 0


def test_an_approval_is_written_though_no_broker_can_say_whether_it_is_awaited(beside: Beside) -> None:
    told = run(beside, "approve", "abc123", "--by", "grace")
    assert told.exit_code == 0
    assert "not checked whether abc123 waits" in told.stderr
    assert data(beside)["approved"] == "abc123"


def test_the_answer_can_be_json(beside: Beside) -> None:
    told = json.loads(run(beside, "pause", "--json", "--by", "grace").stdout)
    assert (told["object"], told["cluster"], told["control"]["paused"]) == (
        f"{HERE}/gpu-rebalancer-control", "berlin", True,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["pause", "preflight", "retire"])
def test_a_server_that_cannot_be_reached_is_named(beside: Beside, command: str, tmp_path: Path) -> None:
    at = tmp_path / "kubeconfig"
    at.write_text(at.read_text().replace(beside[0].url, "http://127.0.0.1:1"))
    told = run(beside, command, *(["--yes"] if command == "retire" else []))
    assert told.exit_code == 4
    assert "http://127.0.0.1:1" in told.stderr


def test_without_a_cluster_in_the_settings_the_commands_that_need_one_say_so(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("cluster: berlin\n")
    for arguments in (["retire", "--yes"], ["preflight"], ["recall", "--all", "--direct"]):
        told = CliRunner().invoke(app, [*arguments, "--config", str(settings)])
        assert (told.exit_code, "kubernetes" in told.stderr) == (2, True)


def test_preflight_ends_with_3_where_something_stops_and_0_where_nothing_does(beside: Beside) -> None:
    server, settings = beside
    settings.with_name("policy.yaml").write_text(POLICY)
    server.place("/api/v1/nodes/n1", **node("n1"))
    good = run(beside, "preflight", "--json")
    assert (good.exit_code, json.loads(good.stdout)) == (0, {"safe": True, "findings": []})
    policy = "kind: DeschedulerPolicy\nprofiles: [{plugins: {x: {enabled: [RemovePodsViolatingNodeTaints]}}}]"
    server.place("/api/v1/namespaces/kube-system/configmaps/descheduler", data={"policy.yaml": policy})
    bad = run(beside, "preflight")
    assert bad.exit_code == 3
    assert "descheduler-evicts" in bad.stdout
    assert "topics plan" in bad.stderr


def test_retire_ends_with_3_and_what_to_do_while_something_is_lent(beside: Beside) -> None:
    server, settings = beside
    settings.with_name("policy.yaml").write_text(POLICY)
    server.place("/api/v1/nodes/n1", **lent("n1"))
    told = run(beside, "retire", "--yes", "--timeout", "1", "--json")
    assert told.exit_code == 3
    assert json.loads(told.stdout)["left"] == ["n1"]


def test_retire_ends_with_0_when_nothing_is_left_and_again(beside: Beside) -> None:
    server, _ = beside
    server.place("/api/v1/nodes/n1", **node("n1"))
    server.place(CONTROL, data={"paused": "true"})
    told = run(beside, "retire", "--yes", "--timeout", "5")
    assert (told.exit_code, list(server.objects)) == (0, ["/api/v1/nodes/n1"])
    assert run(beside, "retire", "--yes").exit_code == 0
