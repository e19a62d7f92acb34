"""The chart's values: their schema, their documentation, and that the examples beside them are accepted."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rebalancer.adapters.policyfile import parse_policy
from rebalancer.settings import LeaseSettings, load_settings
from tests.deploy.manifests import CHART, DEPLOY

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_default_values_satisfy_the_schema() -> None:
    """And the schema is a schema."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(VALUES)] == []


def test_the_schema_knows_exactly_the_values_that_there_are() -> None:
    """At every level that the schema closes."""
    assert _unlike(VALUES, SCHEMA, "") == []


def _unlike(values: dict[str, Any], schema: dict[str, Any], path: str) -> list[str]:
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is not False:
        return []
    found = [f"{path}{key}" for key in sorted(set(values) ^ (set(known) - {"global"}))]
    for key, value in values.items():
        if isinstance(value, dict) and key in known:
            found += _unlike(value, known[key], f"{path}{key}.")
    return found


@pytest.mark.parametrize("key", sorted(VALUES))
def test_every_value_is_documented(key: str) -> None:
    """By a comment above it, above the block of its neighbours, or on its first lines."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    at = lines.index(next(line for line in lines if line.startswith(f"{key}:")))
    begin = next(index for index in range(at, -1, -1) if index == 0 or lines[index - 1] == "")
    assert any(line.lstrip().startswith("#") for line in [*lines[begin:at], *lines[at + 1 : at + 3]])


def test_lease_defaults_are_those_of_the_settings() -> None:
    """One source of 15/10/2 would be better; two that agree will do."""
    told, known = VALUES["leaderElection"], LeaseSettings()
    assert (told["leaseDuration"], told["renewDeadline"], told["retryPeriod"]) == (
        known.duration, known.renew, known.retry
    )  # fmt: skip
    assert told["resourceName"] == known.name


def test_the_default_policy_is_legal_and_only_watches() -> None:
    """No pool of it acts."""
    policy = parse_policy(yaml.safe_dump(VALUES["policy"]))
    assert {pool.mode.value for pool in policy.pools.values()} == {"shadow"}


@pytest.mark.parametrize("path", [DEPLOY / "settings.example.yaml", DEPLOY / "compose/settings.yaml"], ids=str)
def test_shipped_settings_are_accepted(path: Path) -> None:
    """Whole and by name."""
    assert load_settings(path).cluster


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"profile": "observe"}, "profile"),
        ({"roles": ["collect", "serve"]}, "roles"),
        ({"kafka": {**VALUES["kafka"], "bootstrap": "kafka"}}, "bootstrap"),
        ({"unknown": 1}, "unknown"),
        ({"policy": {"pools": {}}}, "pools"),
        ({"image": {"repository": "x", "digest": "latest"}}, "digest"),
    ],
    ids=[
        "a profile that does not exist",
        "a role that does not exist",
        "a broker without a port",
        "a value that nobody reads",
        "a policy without pools",
        "a digest that is none",
    ],
)
def test_the_schema_refuses(values: dict[str, Any], where: str) -> None:
    """And the refusal names the place."""
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate({**VALUES, **values}, SCHEMA)
    assert where in str(refused.value)
