"""The chart's RBAC equals the calls that the program makes: the list of each profile, neither more nor less."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rebalancer.adapters.cluster.permissions import PERMISSIONS, Profile, Right, needed
from tests.deploy.manifests import CHART, hook
from tests.deploy.rendering import only, render

pytestmark = pytest.mark.go_binaries("helm")

Objects = list[dict[str, Any]]
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.mark.parametrize("profile", ["shadow", "act"])
def test_rights_equal_the_calls_of_the_profile(profile: Profile) -> None:
    """Exactly: neither one more nor one less, at both scopes and with names."""
    objects = [one for one in render(CHART, {"profile": profile}) if not hook(one)]
    mine = [one for one in objects if not one["metadata"]["name"].endswith("-operator")]
    assert granted(mine) == spelled(needed(profile))


@pytest.mark.parametrize("profile", ["shadow", "act"])
def test_the_retire_hook_may_do_what_retiring_needs_whatever_the_profile(profile: Profile) -> None:
    """Its rights come and go with it, so that shadow can clean up what act left behind."""
    hooks = [one for one in render(CHART, {"profile": profile}) if hook(one)]
    assert granted(hooks) == spelled(PERMISSIONS["retire"])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        pytest.param({}, ("gpu-rebalancer",), id="one Deployment"),
        pytest.param({"fullnameOverride": "lender"}, ("lender",), id="called otherwise"),
        pytest.param(
            {"split": {"eyes": {"roles": ["collect", "act"]}, "brain": {"roles": ["decide"]}}},
            ("gpu-rebalancer-brain", "gpu-rebalancer-eyes"),
            id="split",
        ),
    ],
)
def test_the_retire_hook_may_scale_and_stops_the_charts_own_deployments_only(
    values: dict[str, Any], names: tuple[str, ...]
) -> None:
    """Others may live in our namespace. By RBAC and, whoever holds the token, by the API server's policy."""
    objects = render(CHART, {"profile": "act", "admission": {"enabled": True}, **values})
    assert names == tuple(sorted(one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"))
    hooks = [one for one in objects if hook(one)]
    assert granted(hooks) == spelled(needed("retire", deployments=names))
    command = only(hooks, "Job")["spec"]["template"]["spec"]["containers"][0]["command"]
    assert [command[at + 1] for at, word in enumerate(command) if word == "--stop"] == list(names)
    limits = only(objects, "ValidatingAdmissionPolicy", "own-limits")["spec"]
    assert any("deployments/scale" in one["resources"] for one in limits["matchConstraints"]["resourceRules"])
    (scaling,) = [one["expression"] for one in limits["validations"] if "scaled ||" in one["expression"]]
    assert json.dumps(names, separators=(",", ":")) in scaling


def test_operators_rights_are_bound_to_nobody() -> None:
    """People who brake get a Role, and nobody has it by installing."""
    objects = render(CHART)
    assert granted([one for one in objects if one["metadata"]["name"].endswith("-operator")]) == spelled(
        PERMISSIONS["operator"]
    )
    bound = {one["roleRef"]["name"] for one in objects if one["kind"].endswith("Binding")}
    assert not any(name.endswith("-operator") for name in bound)


def test_shadow_can_write_nothing_but_leases() -> None:
    """Every rule with a write verb is about Leases in the namespace."""
    mine = [one for one in render(CHART) if not hook(one) and not one["metadata"]["name"].endswith("-operator")]
    assert {(what[1], scope) for scope, what in written(mine)} == {("leases", "Role")}


def test_leases_called_otherwise_are_granted_by_that_name() -> None:
    """The names in the rights follow the settings."""
    mine = [one for one in render(CHART, {"leaderElection": {"resourceName": "other"}}) if not hook(one)]
    mine = [one for one in mine if not one["metadata"]["name"].endswith("-operator")]
    assert granted(mine) == spelled(needed("shadow", "other"))


def granted(objects: Objects) -> set[tuple[str, str, str, str, tuple[str, ...]]]:
    """(scope, group, resource, verb, names) of all Roles and ClusterRoles."""
    return {
        ("cluster" if one["kind"] == "ClusterRole" else "namespace", group, resource, verb, names)
        for one in objects
        if one["kind"] in {"ClusterRole", "Role"}
        for rule in one["rules"]
        for names in [tuple(sorted(rule.get("resourceNames", ())))]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def spelled(rights: tuple[Right, ...]) -> set[tuple[str, str, str, str, tuple[str, ...]]]:
    """The program's list in the same words."""
    return {
        (
            right.scope,
            right.group,
            f"{right.resource}/{right.subresource}" if right.subresource else right.resource,
            right.verb,
            tuple(sorted(right.names)),
        )
        for right in rights
    }


def written(objects: Objects) -> Iterator[tuple[str, tuple[str, str, str, tuple[str, ...]]]]:
    """Kind of role, and what may be written by it."""
    for scope, group, resource, verb, names in granted(objects):
        if verb in WRITES:
            yield ("ClusterRole" if scope == "cluster" else "Role"), (group, resource, verb, names)
