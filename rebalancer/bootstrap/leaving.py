"""Before and after: what looks at a cluster before anything acts in it, and what takes everything out of it again.

Puts the rooms together for the commands `preflight` and `retire`; decides and words nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from rebalancer.adapters.cluster.connection import Api
from rebalancer.adapters.cluster.lease import process_name
from rebalancer.adapters.cluster.preflight import Inspection
from rebalancer.adapters.cluster.retire import Retirement
from rebalancer.adapters.decode.dialects import dialect
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.policyfile import load_policy
from rebalancer.core.policy import Policy
from rebalancer.settings import NoCluster, Settings


def retirement(api: Api, settings: Settings, tell: Callable[[str], None]) -> Retirement:
    """A retirement of this installation; without a policy file it restores what the nodes' own marks say.

    Raises PolicyRefused: there is a policy and it cannot be read.
    """
    at, policy = settings.kubernetes, _policy(settings)
    if at is None:
        raise NoCluster("the settings name no cluster (kubernetes)")
    identity = f"retire-{process_name()}"
    return Retirement(api, at.namespace, settings.lease, policy, Reading(dialect(policy)), identity, tell)


def inspection(api: Api, settings: Settings) -> Inspection:
    """A look at the cluster of this installation. Raises PolicyRefused: there is a policy and it cannot be read."""
    at, policy = settings.kubernetes, _policy(settings)
    if at is None:
        raise NoCluster("the settings name no cluster (kubernetes)")
    return Inspection(api, at.namespace, settings.lease.name, policy, Reading(dialect(policy)))


def _policy(settings: Settings) -> Policy:
    return load_policy(settings.policy) if settings.policy.is_file() else Policy({})
