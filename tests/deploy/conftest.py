"""The admission policies on a real API server, for the files that test them."""

from collections.abc import Iterator

import pytest

from tests.deploy.asked import EFFECTIVE_WITHIN, ON_LOAN, labelled, pod, refused, refused_pod
from tests.deploy.manifests import CHART, hook
from tests.deploy.rendering import render
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane

VALUES = {"profile": "act", "admission": {"enabled": True, "addToleration": {"enabled": True}}}
POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
RIGHTS = ("ClusterRole", "Role")
KINDS = {"ServiceAccount", *POLICIES, *RIGHTS, *(f"{kind}Binding" for kind in (*POLICIES, *RIGHTS))}


@pytest.fixture(scope="module")
def home(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace for the release; nodes and namespaces of the fleet are gone afterwards."""
    yield fleet.namespace(control_plane, "home")
    fleet.clean(control_plane)


@pytest.fixture(scope="module")
def governed(control_plane: ControlPlane, home: str) -> Iterator[ControlPlane]:
    """The control plane with policies, rights and accounts of profile act; all of them gone afterwards."""
    api = control_plane.api
    objects = [one for one in render(CHART, VALUES, namespace=home) if one["kind"] in KINDS and not hook(one)]
    api.apply(objects, namespace=home)
    try:
        api.wait(lambda: refused(api, labelled(tier="true")), EFFECTIVE_WITHIN, "the label policy")
        api.wait(lambda: refused_pod(api, pod(tolerations=[ON_LOAN])), EFFECTIVE_WITHIN, "the toleration policy")
        yield control_plane
    finally:
        for one in objects:
            api.request("DELETE", api.path_of(one, home))
