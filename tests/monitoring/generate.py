"""Writes deploy/monitoring/prometheus-rules.yaml from rules.yaml: `python -m tests.monitoring.generate`.

The Prometheus operator wants the groups inside an object of its own; a test fails when the two files differ.
"""

from pathlib import Path
from typing import Any

import yaml

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
RULES = MONITORING / "rules.yaml"
OPERATOR = MONITORING / "prometheus-rules.yaml"
HEAD = """# Generated from rules.yaml by `python -m tests.monitoring.generate`: for the Prometheus operator.
"""


def groups() -> list[dict[str, Any]]:
    """The rule groups."""
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return found


def rules() -> list[dict[str, Any]]:
    """All rules, in order."""
    return [rule for group in groups() for rule in group["rules"]]


def operator_text() -> str:
    """The object that the operator takes, as text."""
    lines = RULES.read_text(encoding="utf-8").splitlines()
    body = lines[lines.index("groups:") :]
    head = [
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        "  name: gpu-rebalancer",
        "  labels: {app.kubernetes.io/name: gpu-rebalancer}",
        "spec:",
    ]
    return HEAD + "\n".join([*head, *(f"  {line}" if line else "" for line in body)]) + "\n"


if __name__ == "__main__":
    OPERATOR.write_text(operator_text(), encoding="utf-8")
