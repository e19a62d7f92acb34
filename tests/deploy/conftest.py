"""The admission policies on a real API server, for the files that test them."""

from collections.abc import Iterator

import pytest

from tests.deploy.asked import EFFECTIVE_WITHIN, HOME, ON_LOAN, labelled, pod, refused, refused_pod
from tests.deploy.manifests import CHART, hook
from tests.deploy.rendering import render
from tests.servers.controlplane import ControlPlane

VALUES = {"profile": "act", "admission": {"enabled": True, "addToleration": {"enabled": True}}}
POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
RIGHTS = ("ClusterRole", "Role")
KINDS = {"ServiceAccount", *POLICIES, *RIGHTS, *(f"{kind}Binding" for kind in (*POLICIES, *RIGHTS))}


@pytest.fixture(scope="module")
def governed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with policies, rights and accounts of profile act; all of them gone afterwards."""
    api = control_plane.api
    objects = [one for one in render(CHART, VALUES) if one["kind"] in KINDS and not hook(one)]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
    api.apply([namespace, *objects], namespace=HOME)
    try:
        api.wait(lambda: refused(api, labelled(tier="true")), EFFECTIVE_WITHIN, "the label policy")
        api.wait(lambda: refused_pod(api, pod(tolerations=[ON_LOAN])), EFFECTIVE_WITHIN, "the toleration policy")
        yield control_plane
    finally:
        for one in objects:
            api.request("DELETE", api.path_of(one, HOME))
        api.request("DELETE", f"/api/v1/namespaces/{HOME}")
