"""Preflight's judgement of pods: who could land on a lent node and never leave, who could never borrow, and why. Pure.

The questions are the core's own, asked of everybody who holds or waits for GPUs; nothing of its rules stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from rebalancer.adapters.cluster.findings import Code, Finding, Severity, some
from rebalancer.core.borrowers import mismatch, on_loan_taint, refused
from rebalancer.core.facts import Node, Pod, Taint
from rebalancer.core.fit import tolerates
from rebalancer.core.gangs import Borrower
from rebalancer.core.policy import Policy, PoolPolicy
from rebalancer.core.protocol.guard import OURS
from rebalancer.core.reasons import Because, Reason, sentence
from rebalancer.core.state import State
from rebalancer.core.stimuli import Fact
from rebalancer.core.units import GangId, OwnerClass
from rebalancer.core.victims import immovable

STAYERS = ("daemonset", "mirror")
"""Pods that belong to the node: they are on every one and hinder nobody."""
PASSING = frozenset(
    {Reason.COOLDOWN, Reason.PREEMPTED_TOO_OFTEN, Reason.NAMESPACE_CAP, Reason.IN_TRANSIT, Reason.MIN_AGE}
)
"""Refusals that time ends."""
STEPS = {
    Reason.NOT_RECLAIMABLE: "label its pods gpu-rebalancer.io/reclaimable=true if they may be evicted",
    Reason.NOT_TOLERATED: "let its pods tolerate gpu-rebalancer.io/on-loan",
    Reason.BORROWER_NOT_EVICTABLE: "use a budget with minAvailable below the gang's size, one for each pod",
    Reason.GRACE_TOO_LONG: "shorten grace and notice, or raise lead_time and max_grace in the policy",
    Reason.MODEL_MISMATCH: "declare the models that it runs on: required node affinity gpu-model In [...]",
    Reason.SELECTOR_MISMATCH: "select gpu-model and not node-pool, which a loan does not change",
    Reason.NETWORK_MISMATCH: "drop the network from its terms if it runs on others as well",
    Reason.GPU_COUNT_UNKNOWN: "ask for whole GPUs by resource name, or let us read its resource claims",
}
OTHERWISE = "nothing, if that is meant"


def state_of(facts: Iterable[Fact], policy: Policy, now: datetime) -> State:
    """The core's memory as these objects make it, with no history."""
    state = State("preflight", policy)
    for fact in facts:
        state.inventory.observe(fact, now)
    return state


def stuck(state: State) -> Iterator[Finding]:
    """Pods that may land on a lent node for tolerating our taint, and that we may never evict."""
    classes = {borrower for pool in state.policy.pools.values() for borrower in pool.lends_to}
    found: dict[str, list[str]] = {}
    for pod in state.inventory.pods.values():
        if pod.terminal or pod.gpus == 0 or any(why in STAYERS for why in pod.protected):
            continue
        if any(tolerates(pod.tolerations, on_loan_taint(cls)) for cls in classes):
            because = immovable(state, pod)
            if because is not None:
                found.setdefault(_kind(because), []).append(f"{pod.namespace}/{pod.name}")
    for why, names in sorted(found.items()):
        said = f"they tolerate our on-loan taint, could land on a lent node and would never leave it: {why}"
        step = "take the toleration away, or opt in: label reclaimable=true, an owner, no protection"
        yield Finding(Code.NEVER_EVICTED, Severity.WARNS, some(sorted(names)), said, step)


def _kind(because: Because) -> str:
    if because.reason is Reason.SQUATTER:
        return "not labelled reclaimable"
    return f"{because.reason.value} ({because.numbers['why']})" if "why" in because.numbers else because.reason.value


def cannot_borrow(state: State, now: datetime) -> Iterator[Finding]:
    """Gangs of borrower classes that could never borrow as they are, and why; each gang once."""
    classes = {borrower for pool in state.policy.pools.values() for borrower in pool.lends_to}
    for gang in sorted(state.inventory.gangs):
        pods = [pod for pod in state.inventory.gang_pods(gang) if not pod.terminal and pod.gpus != 0]
        if not pods or any(pod.owner not in classes for pod in pods):
            continue
        because = _never(state, gang, pods, now)
        if because is not None:
            step = STEPS.get(because.reason, OTHERWISE)
            yield Finding(Code.NEVER_BORROWS, Severity.WARNS, gang, sentence(because), step)


def _never(state: State, gang: GangId, pods: list[Pod], now: datetime) -> Because | None:
    who = Borrower(gang, tuple(pods))
    because = refused(state, who, now)
    if because is not None and because.reason not in PASSING:
        return because
    answers = [mismatch(who, node, as_lent(node, pool, pods[0].owner)) for node, pool in _lenders(state, pods[0].owner)]
    return answers[0] if answers and None not in answers else None


def _lenders(state: State, borrower: OwnerClass) -> Iterator[tuple[Node, PoolPolicy]]:
    for node in state.inventory.nodes.values():
        pool = state.policy.pools.get(node.pool)
        if pool is not None and borrower in pool.lends_to and not node.quarantine:
            yield node, pool


def as_lent(node: Node, pool: PoolPolicy, borrower: OwnerClass) -> tuple[Taint, ...]:
    """The node's taints while it is lent."""
    return (*(one for one in node.taints if one != pool.owner_taint and one.key not in OURS), on_loan_taint(borrower))
