"""What falls due or is called home while Kafka is silent, read from nodes' marks and the brakes alone.

The plans use the same steps as everybody else's, so the actor's checks hold for them too; their ids come from the
loans, so that asking again makes no second one. Nothing is lent here, and nothing is taken back before its time
unless a person said so. Who opted out is read from the pods alone: whoever lists them marks those whose namespace or
gang object says so (:func:`~rebalancer.core.optout.marked`), since act's own check sees nothing but pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rebalancer.core.facts import Budget, Control, LoanMark, Node, Pod
from rebalancer.core.fit import matches
from rebalancer.core.methods.return_ import MARGIN, called_home
from rebalancer.core.plan import CloseNode, EvictGang, Member, Method, Plan, RestoreNode, Step, stable_id
from rebalancer.core.policy import Policy
from rebalancer.core.protocol.members import named
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import GangId, Mode, Number
from rebalancer.core.victims import lost_work

ALONE = "alone-"
"""How ids of plans begin that no decider made: they follow from no journal."""


FOR_LONG = timedelta.max
"""A silence beyond every bound."""


class Due(NamedTuple):
    """A lent node that comes home now; ``call`` is what a person said, None where its time has come."""

    node: Node
    mark: LoanMark
    call: Because | None


def due_returns(  # noqa: PLR0917 - the picture of a cluster in the order in which it is always named
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    budgets: Iterable[Budget],
    policy: Policy,
    now: datetime,
    term: int = 0,
    silent: timedelta = FOR_LONG,
    control: Control | None = None,
) -> list[Plan]:
    """Plans for all loans whose recall time has come, one for each set of nodes that share gangs.

    With a ``control`` what it calls home (a node, a pool, all, or retirement) is due now, once Kafka has been silent
    for the policy's bound: until then the decider is the one to plan it.

    As with the decider, a return begins its margin early. While Kafka has been ``silent`` for less than the policy's
    bound, only loans that could not wait for the bound to pass are planned: those whose gangs would then leave too
    late. Where the policy spares who opted out, their nodes stay (:func:`stayers`). ``term`` is the highest one the
    actor has seen: no decider speaks while Kafka is silent. A return that could not be finished is planned anew once
    its retries are over, under a new id.
    """
    gangs: dict[GangId, list[Pod]] = {}
    leave: dict[str, int] = {}
    pods = list(pods)
    kept = stayers(pods, policy)
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)):
        if not pod.terminal and pod.deleting_at is None:
            gangs.setdefault(pod.gang, []).append(pod)
            leave[pod.node] = max(leave.get(pod.node, 0), pod.grace_seconds + pod.notice_seconds)
    bound = policy.acting.kafka_silent
    due: dict[str, Due] = {}
    for node in nodes:
        longest = bound + MARGIN + timedelta(seconds=leave.get(node.name, 0))
        found = _due(node, now, longest) if silent < bound else _due(node, now, FOR_LONG, control)
        if found is not None and node.name not in kept:
            due[node.name] = found
    gangs = {gang: members for gang, members in gangs.items() if _to_go(members, due)}
    listed = list(budgets)
    plans = [_plan([due[name] for name in group], gangs, listed, policy, now) for group in _groups(due, gangs)]
    return [plan.in_term(term) for plan in plans]


def _due(node: Node, now: datetime, longest: timedelta, control: Control | None = None) -> Due | None:
    """The node if it comes home now: its time has come and no more than ``longest`` is left, or it is called."""
    if node.mark is None:
        return None
    if falls_due(node, now) and node.mark.due - now <= longest:
        return Due(node, node.mark, None)
    call = called(node, control)
    return None if call is None else Due(node, node.mark, call)


def stayers(pods: Iterable[Pod], policy: Policy) -> dict[str, Because]:
    """Nodes that no return may empty since a gang there opted out, each with who did; none where the policy takes them.

    The rule of a scheduled return (DESIGN 5): opted out stops it unless ``recallWhilePaused``.
    """
    if policy.pace.recall_while_paused:
        return {}
    there = [pod for pod in pods if not pod.terminal and pod.deleting_at is None]
    out = {pod.gang: pod for pod in sorted(there, key=named, reverse=True) if pod.opted_out}
    found = sorted((pod.node, named(out[pod.gang])) for pod in there if pod.gang in out and _borrows(pod))
    return {node: Because(Reason.OPTED_OUT, {"target": who}) for node, who in reversed(found)}


def falls_due(node: Node, now: datetime) -> bool:
    """Whether the way home of a lent node begins by its own mark."""
    return node.mark is not None and now >= node.mark.recall_at - MARGIN


def called(node: Node, control: Control | None) -> Because | None:
    """What the brakes say that brings this node home, or None: nothing, or it is not lent."""
    if control is None or node.mark is None:
        return None
    return called_home(control, node.mark.lender, node.name)


def _to_go(members: Sequence[Pod], due: Mapping[str, object]) -> bool:
    return any(pod.node in due and _borrows(pod) for pod in members)


def _borrows(pod: Pod) -> bool:
    return bool(pod.node) and pod.gpus != 0 and pod.reclaimable


def _groups(due: Mapping[str, object], gangs: Mapping[GangId, Sequence[Pod]]) -> list[list[str]]:
    """Node names, grouped so that no gang lies in two groups."""
    group = {name: name for name in due}
    for _, members in sorted(gangs.items()):
        touched = sorted({group[pod.node] for pod in members if pod.node in due})
        group = {name: touched[0] if root in touched else root for name, root in group.items()}
    found: dict[str, list[str]] = {}
    for name in sorted(group):
        found.setdefault(group[name], []).append(name)
    return [found[root] for root in sorted(found)]


def _plan(
    lent: Sequence[Due],
    gangs: Mapping[GangId, Sequence[Pod]],
    budgets: Sequence[Budget],
    policy: Policy,
    now: datetime,
) -> Plan:
    names = {item.node.name for item in lent}
    here = {gang: pods for gang, pods in sorted(gangs.items()) if any(pod.node in names for pod in pods)}
    because = _because(lent)
    by_time = [item.mark.due for item in lent if item.call is None]
    deadline = max(min(by_time), now + policy.acting.retry_deadline) if by_time else now + policy.acting.retry_deadline
    patience = max(policy.acting.retry_deadline, policy.acting.plan_validity)
    attempt = (now - min(item.mark.recall_at - MARGIN for item in lent)) // patience
    identity = ALONE + stable_id("kafka-silent", str(attempt), *(item.mark.loan for item in lent))
    steps: list[Step] = [CloseNode(item.mark.loan, item.node.uid, item.node.name) for item in lent]
    steps += [_evict(pods, budgets, because, now, deadline) for pods in here.values()]
    steps += [RestoreNode(item.mark.loan, item.node.uid, item.node.name, item.mark.due) for item in lent]
    return Plan(
        id=identity, pool=lent[0].mark.lender, method=Method.RETURN, mode=Mode.ACT, because=because,
        steps=tuple(steps), made_at=now,
        valid_until=now + policy.acting.plan_validity, pressing=True,
    )  # fmt: skip


def _because(lent: Sequence[Due]) -> Because:
    """The time that has come, if it has for one of them; else what a person said."""
    timely = [item for item in lent if item.call is None]
    if not timely and lent[0].call is not None:
        return lent[0].call
    due = min(item.mark.due for item in timely)
    lead = max((item.mark.due - item.mark.recall_at).total_seconds() for item in timely)
    what = lent[0].node.name if len(lent) == 1 else f"{len(lent)} nodes"
    told: dict[str, Number] = {"node": what, "due": due.isoformat(timespec="minutes"), "return_seconds": lead}
    return Because(Reason.LOAN_DUE, told)


def _evict(
    pods: Sequence[Pod], budgets: Sequence[Budget], because: Because, now: datetime, deadline: datetime
) -> EvictGang:
    first = pods[0]
    return EvictGang(
        gang=first.gang, workload=first.workload, namespace=first.namespace, top_owner=first.top_owner,
        members=tuple(_member(pod, budgets) for pod in pods), whole=True, not_before=now, deadline=deadline,
        notice_seconds=max(pod.notice_seconds for pod in pods), grace_seconds=max(pod.grace_seconds for pod in pods),
        lost_gpu_seconds=lost_work(pods, now), because=because,
    )  # fmt: skip


def _member(pod: Pod, budgets: Sequence[Budget]) -> Member:
    near = [item for item in budgets if item.namespace == pod.namespace and item.selector is not None]
    names = sorted(item.name for item in near if item.selector is not None and matches(item.selector, pod.labels))
    return Member(pod.uid, pod.namespace, pod.name, pod.node, pod.gpus or 0, tuple(names))
