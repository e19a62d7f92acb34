"""What act itself re-checks before it starts a plan, since whoever can write plans could otherwise evict.

Each check is one row of a table; none of them trusts the decider. What a plan then does is the runs' business.
"""

from __future__ import annotations

from rebalancer.core.facts import Control
from rebalancer.core.plan import LendNode, Method, Plan, RenewLoan, RestoreNode
from rebalancer.core.policy import Policy
from rebalancer.core.reasons import Because, Reason


def lends(plan: Plan) -> bool:
    """Whether all steps of the plan lend."""
    return bool(plan.steps) and all(isinstance(step, LendNode) for step in plan.steps)


def renews(plan: Plan) -> bool:
    """Whether all steps of the plan renew."""
    return bool(plan.steps) and all(isinstance(step, RenewLoan) for step in plan.steps)


def nodes(plan: Plan) -> frozenset[str]:
    """Uids of the nodes that the plan changes."""
    return frozenset(step.node for step in plan.steps if step.kind != "evict")


def paused(plan: Plan, control: Control, policy: Policy) -> Because | None:
    """Whether the brakes forbid the plan (DESIGN 5): what presses goes on unless the policy says otherwise."""
    gives = lends(plan) or renews(plan)
    if control.retired and gives:
        return Because(Reason.RETIRING)
    if not (control.paused or plan.pool in control.paused_pools):
        return None
    if plan.pressing and not gives and policy.pace.recall_while_paused:
        return None
    return Because(Reason.PAUSED, {"by": control.by or "an operator"})


def too_many(plan: Plan, policy: Policy) -> Because | None:
    """Whether the plan touches more nodes than a plan may; what presses is paced instead."""
    if plan.pressing or plan.method is Method.CANCEL or len(nodes(plan)) <= policy.pace.nodes_per_pool:
        return None
    return Because(Reason.CAP, {"cap": policy.pace.nodes_per_pool, "what": f"nodes of {plan.pool}"})


def mixed(plan: Plan) -> Because | None:
    """Whether the plan both gives and takes back, which no method makes."""
    if lends(plan) or renews(plan) or not any(isinstance(step, LendNode | RenewLoan) for step in plan.steps):
        return None
    return Because(Reason.CANNOT_SATISFY, {"target": "a plan that lends and takes back at once"})


def too_long(plan: Plan, policy: Policy) -> Because | None:
    """Whether the plan renews a loan for longer than a loan may last."""
    longest = policy.borrowing.max_loan
    if all(step.due - plan.made_at <= longest for step in plan.steps if isinstance(step, RenewLoan)):
        return None
    return Because(Reason.CAP, {"cap": int(longest.total_seconds()), "what": "seconds of a renewed loan"})


def foreign_taint(plan: Plan, policy: Policy) -> Because | None:
    """Whether the plan would put another taint on a node than its pool's own."""
    pool = policy.pools.get(plan.pool)
    own = pool.owner_taint if pool is not None else None
    for step in plan.steps:
        if isinstance(step, RestoreNode) and step.owner_taint not in (None, own):
            return Because(Reason.NODE_CHANGED, {"node": step.node_name, "why": f"{plan.pool} has another taint"})
    return None


def refusal(plan: Plan, control: Control, policy: Policy) -> Because | None:
    """The first reason why act does not start this plan, or None."""
    held = paused(plan, control, policy) or mixed(plan) or too_many(plan, policy)
    return held or too_long(plan, policy) or foreign_taint(plan, policy)
