"""The doors that lead into the Kubernetes cluster: the control object, retirement, preflight.

As with the other doors, what is heavy is imported on use, and nothing is done here but passing on and turning the
refusals of those rooms into the commands' own.
"""

# ruff: noqa: PLC0415 - that imports happen on use is what this file is for

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from rebalancer.cli.exits import Code, Refused
from rebalancer.settings import KubernetesSettings, Settings

if TYPE_CHECKING:
    from rebalancer.adapters.cluster.connection import Api
    from rebalancer.adapters.cluster.findings import Finding
    from rebalancer.adapters.cluster.permissions import Profile
    from rebalancer.adapters.cluster.retire import Ended, Retiring
    from rebalancer.core.facts import Control

T = TypeVar("T")


def change(settings: Settings, to: Callable[[Control], Control]) -> Control:
    """Change the control object; the brakes as they then stand."""
    from rebalancer.adapters.cluster.brakes import write_control

    return _at_cluster(settings, lambda api, at: write_control(api, at.namespace, to))


def brakes(settings: Settings) -> Control:
    """The brakes as they stand in the control object."""
    from rebalancer.adapters.cluster.brakes import read_control

    async def read(api: Api, at: KubernetesSettings) -> Control:
        return (await read_control(api, at.namespace))[0]

    return _at_cluster(settings, read)


def node_names(settings: Settings) -> frozenset[str]:
    """The names of the cluster's nodes; empty when we may not list them."""
    from rebalancer.adapters.cluster.listing import NotListed, listed
    from rebalancer.adapters.decode.objects import metadata, text

    async def names(api: Api, _: KubernetesSettings) -> frozenset[str]:
        try:
            return frozenset([text(metadata(raw).get("name")) async for raw in listed(api, "/api/v1/nodes")])
        except NotListed:
            return frozenset()

    return _at_cluster(settings, names)


def retire(settings: Settings, wanted: Retiring, tell: Callable[[str], None]) -> Ended:
    """Take the rebalancer out of the cluster; ``tell`` hears of progress."""
    from rebalancer.bootstrap.leaving import retirement

    return _at_cluster(settings, lambda api, _: retirement(api, settings, tell).run(wanted))


def preflight(settings: Settings, profile: Profile) -> list[Finding]:
    """What stands in the way of acting in the cluster."""
    from rebalancer.bootstrap.leaving import inspection

    return _at_cluster(settings, lambda api, _: inspection(api, settings).run(profile))


def _at_cluster(settings: Settings, ask: Callable[[Api, KubernetesSettings], Coroutine[Any, Any, T]]) -> T:
    """One conversation with the API server of the settings."""
    from rebalancer.adapters import logs
    from rebalancer.adapters.cluster.brakes import BrakesRefused
    from rebalancer.adapters.cluster.connection import connected
    from rebalancer.adapters.cluster.listing import NotListed

    at = settings.kubernetes
    if at is None:
        raise Refused("the settings name no cluster (kubernetes); nothing can be asked of it", Code.USAGE)

    logs.for_people()

    async def talk() -> T:
        async with connected(at) as api:
            return await ask(api, at)

    try:
        return asyncio.run(talk())
    except (BrakesRefused, NotListed) as refused:
        raise Refused(str(refused)) from None
