"""The descheduler's snippet: our taints are no reason to evict, and who opted in to recalls is no candidate."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.adapters.decode.pods import RECLAIMABLE
from rebalancer.core.units import CLOSING, ON_LOAN
from tests.deploy.manifests import DEPLOY

FOLDER = DEPLOY / "descheduler"


def profiles(path: Path) -> list[dict[str, Any]]:
    """Of the chart's values, or of a policy file."""
    held = yaml.safe_load(path.read_text())
    found: list[dict[str, Any]] = held.get("deschedulerPolicy", held)["profiles"]
    return found


@pytest.mark.parametrize("name", ["values.yaml", "policy.yaml"])
def test_every_profile_leaves_our_taints_and_gangs_alone(name: str) -> None:
    """In the values for the descheduler's chart and in the policy file alike."""
    for profile in profiles(FOLDER / name):
        told = {one["name"]: one.get("args", {}) for one in profile["pluginConfig"]}
        assert told["RemovePodsViolatingNodeTaints"]["excludedTaints"] == [CLOSING, ON_LOAN]
        assert told["DefaultEvictor"]["labelSelector"] == {
            "matchExpressions": [{"key": RECLAIMABLE, "operator": "NotIn", "values": ["true"]}]
        }


def test_values_and_policy_file_say_the_same() -> None:
    """One is the other in the chart's wrapping."""
    assert profiles(FOLDER / "values.yaml") == profiles(FOLDER / "policy.yaml")


def test_the_example_job_opts_in_whole_and_survives_recalls() -> None:
    """Label, toleration, grace, and the rule by which an eviction does not count against backoffLimit."""
    job = yaml.safe_load((DEPLOY / "examples/job.yaml").read_text())
    template = job["spec"]["template"]
    assert template["metadata"]["labels"][RECLAIMABLE] == "true"
    assert ON_LOAN in {one["key"] for one in template["spec"]["tolerations"]}
    assert template["spec"]["terminationGracePeriodSeconds"] <= 900
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget"}])
    assert template["spec"]["restartPolicy"] == "Never"  # podFailurePolicy needs it
