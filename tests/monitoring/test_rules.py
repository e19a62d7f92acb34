"""Rules, runbooks, dashboard: metrics they name exist, every alert has its runbook, promtool plays the rules."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.adapters.alerts import name_of
from rebalancer.adapters.cluster.watching import Watching
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.tallies import ALERTED
from tests.monitoring.generate import MONITORING, OPERATOR, RULES, operator_text, rules
from tests.servers.goparts import binary

pytestmark = pytest.mark.go_binaries("promtool")

PLAYED = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
DASHBOARD = MONITORING / "grafana-dashboard.json"
RUNBOOKS = MONITORING / "runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
OTHERS = {"kube_node_spec_taint"}
"""Metrics of kube-state-metrics that the rules look at."""
METRIC = re.compile(r"\b(?:gpu_rebalancer|kube)_[a-z0-9_]+")
MATCHED = re.compile(r"\b(gpu_rebalancer_[a-z0-9_]+)\{([^}]*)\}")
WORD = re.compile(r'([a-z_]+)(=~|!=|=)"([^"]*)"')


def samples() -> dict[str, list[dict[str, str]]]:
    """Every series of a process that runs all roles, by its name as it is queried."""
    metrics = Metrics()
    metrics.adopt(["infer-a100"])
    metrics.alertmanager("am-0:9093")
    metrics.leader.labels("act")
    Watching(metrics.registry)
    found: dict[str, list[dict[str, str]]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, []).append(dict(sample.labels))
    return found


SAMPLES = samples()


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("where", "told"), [pytest.param(*one, id=one[0]) for one in expressions()])
def test_expressions_name_metrics_and_labels_that_exist(where: str, told: str) -> None:
    named = set(METRIC.findall(told))
    assert named, where
    assert named - OTHERS <= SAMPLES.keys(), where
    for name, matchers in MATCHED.findall(told):
        for label, how, wanted in WORD.findall(matchers):
            values = {sample.get(label) for sample in SAMPLES[name]}
            assert values - {None}, (where, name, label)
            for value in wanted.split("|") if how != "!=" and not wanted.startswith("$") else []:
                assert value in values or label in ("result", "pool"), (where, name, label, value)


def test_the_object_for_the_operator_has_the_same_rules() -> None:
    assert OPERATOR.read_text(encoding="utf-8") == operator_text()
    held = yaml.safe_load(OPERATOR.read_text(encoding="utf-8"))
    assert (held["apiVersion"], held["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert held["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in rules()])
def test_every_rule_says_how_bad_it_is_what_it_means_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"runbooks/{rule['alert']}.md"


def test_rules_and_alerts_have_one_runbook_each_and_no_runbook_is_left_over() -> None:
    wanted = {rule["alert"] for rule in rules()} | {name_of(reason) for reason in ALERTED}
    assert {file.stem for file in RUNBOOKS.glob("*.md")} == wanted


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in sorted(RUNBOOKS.glob("*.md"))])
def test_a_runbook_has_its_four_parts(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0] == f"# {file.stem}"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == SECTIONS
    assert all(lines[index + 1] for index, line in enumerate(lines) if line.startswith("## "))


def test_what_decide_alerts_is_alerted_by_a_rule_of_the_same_name() -> None:
    named = {rule["alert"]: rule["expr"] for rule in rules()}
    for reason in ALERTED:
        assert name_of(reason) in named, reason
        if name_of(reason) != "GpuRebalancerLoanOverdue":  # reckoned from the due times themselves
            assert reason.value in named[name_of(reason)], reason


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("loan overdue", "LoanOverdue"), ("gang split", "GangSplit"), ("metric stale", "TelemetryUnknown"),
        ("flapping", "Flapping"), ("recovering too long", "Recovering"), ("budget blocked", "EvictionBlocked"),
        ("unknown label", "NodeLabelsUnclear"), ("contended", "NodeContended"), ("squatter", "Squatter"),
        ("stuck pod", "PodStuck"), ("policy refused", "PolicyRefused"),
        ("label and capacity disagree", "NodeCapacityMismatch"), ("product down", "Down"), ("no leader", "NoLeader"),
    ],
    ids=lambda one: one if " " in one else None,
)  # fmt: skip
def test_what_nobody_else_alerts_is_alerted(what: str, name: str) -> None:
    assert f"GpuRebalancer{name}" in {rule["alert"] for rule in rules()}, what


def test_every_alert_is_played() -> None:
    played = {
        told["alertname"]
        for file in PLAYED
        for test in yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]
        for told in test.get("alert_rule_test", [])
        if told.get("exp_alerts")
    }
    assert {rule["alert"] for rule in rules()} <= played


def promtool(*words: str | Path) -> tuple[int, str]:
    done = subprocess.run([binary("promtool"), *map(str, words)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_promtool_takes_the_rules() -> None:
    code, told = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert code == 0, told


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in PLAYED])
def test_the_rules_fire_when_they_must_and_only_then(file: Path) -> None:
    code, told = promtool("test", "rules", file)
    assert code == 0, told


def test_panels_of_the_dashboard_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
