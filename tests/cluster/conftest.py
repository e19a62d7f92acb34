"""Fixtures that several files of this room share; those of the product as a whole are its stage's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rebalancer.adapters.cluster.connection import Api, connected
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.settings import KubernetesSettings
from tests.cluster.granting import granted, in_force
from tests.hands.things import hands
from tests.servers import fleet
from tests.servers.controlplane import ControlPlane


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """This process's control plane, emptied of what the test made."""
    yield control_plane
    fleet.clean(control_plane)


@pytest.fixture
def space(plane: ControlPlane) -> str:
    return fleet.namespace(plane)


@pytest.fixture
def ours(plane: ControlPlane) -> str:
    """The namespace that the product is installed in."""
    return fleet.namespace(plane, "ours")


@pytest.fixture
async def api(plane: ControlPlane, ours: str) -> AsyncIterator[Api]:
    """With the rights of the act profile and no others: whatever passes here passes in an installation."""
    kubeconfig = granted(plane, ours, "act", "act")
    in_force(plane, kubeconfig)
    async with connected(KubernetesSettings(kubeconfig=kubeconfig)) as found:
        yield found


@pytest.fixture
def by(api: Api) -> ClusterHands:
    """Hands that hold a lease, under those rights."""
    return hands(api, seconds=10.0)


@pytest.fixture
def node(plane: ControlPlane) -> str:
    """One inference node with eight GPUs."""
    return fleet.gpu_nodes(plane, "infer-a100", "A100", 1, name_prefix="hand")[0]
