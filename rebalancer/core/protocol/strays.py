"""What a crash left on nodes while Kafka is silent: our taint without a mark of the node's own, undone after a while.

With Kafka the decider repairs them (methods.repair); alone, act remembers itself since when it has seen each. Nobody
is evicted for it, and a node that somebody else uses is left as it is. Nothing is performed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rebalancer.core.facts import Control, Node, Pod, Taint
from rebalancer.core.plan import Method, Plan, RestoreNode, stable_id
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.fallback import ALONE
from rebalancer.core.protocol.homeward import holds
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Mode, NodeUid


class Strays:
    """Strays seen by an act that is alone; one entry a node, dropped once it is none any more."""

    def __init__(self) -> None:
        self._since: dict[NodeUid, datetime] = {}

    def forget(self) -> None:
        """Kafka is back: they are the decider's again."""
        self._since.clear()

    def ripe(self, nodes: Iterable[Node], policy: Policy, now: datetime, control: Control | None = None) -> list[Node]:
        """Those whose quarantine is over, by name; nodes of pools that are not in mode `act` are not ours to touch."""
        stray = {node.uid: node for node in nodes if node.stray and _acts(policy, control, node)}
        self._since = {uid: self._since.get(uid, now) for uid in stray}
        over = [node for uid, node in stray.items() if now - self._since[uid] >= policy.acting.quarantine_ttl]
        return sorted(over, key=lambda node: node.name)

    def plans(self, ripe: Sequence[Node], pods: Iterable[Pod], policy: Policy, now: datetime, term: int) -> list[Plan]:
        """One plan a node that only its owner uses; a repair that failed is planned anew once its retries are over."""
        here = [pod for pod in pods if holds(pod)]
        used = {node.name for node in ripe for pod in here if pod.node == node.name and pod.owner is not node.owner}
        return [self._plan(node, policy, now).in_term(term) for node in ripe if node.name not in used]

    def _plan(self, node: Node, policy: Policy, now: datetime) -> Plan:
        patience = max(policy.acting.retry_deadline, policy.acting.plan_validity)
        attempt = (now - self._since[node.uid]) // patience
        because = Because(Reason.NODE_QUARANTINED, {"node": node.name, "why": "no mark of its own and Kafka is silent"})
        return Plan(
            id=ALONE + stable_id("stray", str(attempt), node.uid), pool=node.pool, method=Method.RETURN, mode=Mode.ACT,
            because=because, steps=(RestoreNode("", node.uid, node.name, now, _lacking(policy, node)),), made_at=now,
            valid_until=now + policy.acting.plan_validity,
        )  # fmt: skip


def _acts(policy: Policy, control: Control | None, node: Node) -> bool:
    """The mode that a person set goes before the policy's, as with the decider."""
    pool = policy.pools.get(node.pool)
    override = control.modes.get(node.pool) if control is not None else None
    return pool is not None and (override or pool.mode) is Mode.ACT


def _lacking(policy: Policy, node: Node) -> Taint | None:
    taint = policy.pools[node.pool].owner_taint
    known = {(item.key, item.effect) for item in node.taints}
    return None if taint is None or (taint.key, taint.effect) in known else taint
