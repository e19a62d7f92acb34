"""The invariants, asserted after every step in tests and on demand anywhere.

They only read. What they assert is said in the messages.
"""

from __future__ import annotations

from rebalancer.core.plan import EvictGang, LendNode
from rebalancer.core.state import State
from rebalancer.core.supply import Totals
from rebalancer.core.underway import OpenPlan


class InvariantBroken(AssertionError):  # noqa: N818 - says what happened
    """The state contradicts itself."""


def _hold(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantBroken(message)


def check(state: State) -> None:
    """Raise :class:`InvariantBroken` if any invariant does not hold."""
    _totals(state)
    _loans(state)
    for open_plan in state.plans.values():
        _plan(state, open_plan)


def _totals(state: State) -> None:
    inventory = state.inventory
    for pool, members in inventory.members.items():
        fresh = Totals()
        for uid in members:
            node = inventory.nodes[uid]
            fresh.nodes += 1
            fresh.owned += node.gpus
            fresh.held += sum(pod.held for pod in inventory.guests(node.name))
        kept = inventory.totals(pool)
        for name in ("nodes", "owned", "held"):
            have, want = getattr(kept, name), getattr(fresh, name)
            _hold(have == want, f"{pool}: {name} is kept as {have}, counted as {want}")
        parts = kept.usable + kept.away + kept.unusable
        _hold(parts == kept.owned, f"{pool}: usable + away + unusable = {parts}, owned = {kept.owned}")


def _loans(state: State) -> None:
    for node, loan_id in state.loan_of.items():
        loan = state.loans.get(loan_id)
        _hold(
            loan is not None and loan.open and loan.node == node,
            f"node {node} points at a loan that is not open",
        )
    for loan in state.loans.values():
        if loan.open:
            _hold(bool(loan.lender), f"loan {loan.id} has no lender")
            _hold(state.loan_of.get(loan.node) == loan.id, f"two open loans on node {loan.node_name}")
            _hold(loan.opened_at < loan.due, f"loan {loan.id} is due before it opened")


def _plan(state: State, open_plan: OpenPlan) -> None:
    plan = open_plan.plan
    seen: set[str] = set()
    for step in plan.steps:
        if isinstance(step, EvictGang):
            _hold(step.gang not in seen, f"plan {plan.id} evicts gang {step.gang} twice")
            seen.add(step.gang)
            _evict(state, step)
        if isinstance(step, LendNode):
            _hold(step.lender == plan.pool, f"plan {plan.id} lends a node of another pool")


def _evict(state: State, step: EvictGang) -> None:
    chosen = {member.uid for member in step.members}
    for uid in chosen:
        pod = state.inventory.pods.get(uid)
        _hold(pod is None or pod.reclaimable, f"{step.gang}: {uid} is not reclaimable")
    if not step.whole:
        left = [pod for pod in state.inventory.gang_pods(step.gang) if pod.node and pod.uid not in chosen]
        _hold(bool(left), f"{step.gang} is chosen in part, and nothing of it would be left")
