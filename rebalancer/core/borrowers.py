"""Who may borrow: whole waiting gangs that may run on a node and could be taken back from it.

Being refused here costs a gang a loan, never its place in the scheduler's queue. Every refusal has a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rebalancer.core.budgets import never_evictable
from rebalancer.core.facts import Node, Pod, Taint
from rebalancer.core.fit import selects, tolerates, untolerated
from rebalancer.core.gangs import Borrower
from rebalancer.core.optout import opted_out
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.units import ON_LOAN, GangId, Number, OwnerClass, seconds

MODEL_KEYS = ("gpu-model", "accelerator", "nvidia.com/gpu.product")
NETWORK_KEYS = ("network",)
DAY = timedelta(days=1)


def waiting_gangs(state: State, classes: tuple[OwnerClass, ...]) -> tuple[Borrower, ...]:
    """Gangs all of whose members wait, highest priority and oldest first; asked again when one of them changed."""
    counts = (*(state.inventory.waits[cls] for cls in classes), state.inventory.others)
    known = state.gangs.get(classes)
    if known is None or known[0] != counts:
        known = state.gangs[classes] = (counts, _waiting(state, classes))
    return known[1]


def _waiting(state: State, classes: tuple[OwnerClass, ...]) -> tuple[Borrower, ...]:
    gangs: dict[GangId, None] = {}
    for cls in classes:
        for uid in state.inventory.pending[cls]:
            gangs[state.inventory.pods[uid].gang] = None
    found = [whole for gang in gangs if (whole := _whole(state, gang)) is not None]
    return tuple(sorted(found, key=lambda item: (-item.pods[0].priority, item.pods[0].created_at, item.gang)))


def _whole(state: State, gang: GangId) -> Borrower | None:
    pods = [pod for pod in state.inventory.gang_pods(gang) if not pod.terminal]
    if not pods or len(pods) < state.least_members(gang, pods) or not all(pod.pending for pod in pods):
        return None
    shapes = {(pod.node_terms, pod.tolerations): pod for pod in reversed(pods)}
    return Borrower(gang, tuple(pods), tuple(reversed(shapes.values())))


def on_loan_taint(borrower: OwnerClass) -> Taint:
    """The taint that takes the owner taint's place on a lent node."""
    return Taint(ON_LOAN, borrower.value)


def refused(state: State, who: Borrower, now: datetime) -> Because | None:
    """Why a gang may borrow nothing at present, whatever the node; None if it may."""
    first = who.pods[0]
    policy = state.policy.borrowing
    if who.gang in state.busy_gangs:
        return Because(Reason.IN_TRANSIT, {"node": who.gang})
    for pod in who.pods:
        why = _unfit(state, who.gang, pod)
        if why is not None:
            return why
    leave = seconds(who.leave)
    if leave > seconds(policy.lead_time) or max(pod.grace_seconds for pod in who.pods) > seconds(policy.max_grace):
        numbers: dict[str, Number] = {
            "gang": who.gang,
            "needed_seconds": leave,
            "lead_seconds": seconds(policy.lead_time),
        }
        return Because(Reason.GRACE_TOO_LONG, numbers)
    never = never_evictable(state.inventory, who.gang, who.pods)
    if never is not None:
        return Because(Reason.BORROWER_NOT_EVICTABLE, {"gang": who.gang, "why": never.reason.value, **never.numbers})
    return _too_young(state, who, now) or _cooling(state, first, now)


def complete_at(state: State, who: Borrower) -> datetime:
    """When the last of the members that a gang needs to live was created; surplus that comes later does not count."""
    created = sorted(pod.created_at for pod in who.pods)
    return created[min(len(created), state.least_members(who.gang, who.pods)) - 1]


def _too_young(state: State, who: Borrower, now: datetime) -> Because | None:
    age, least = now - complete_at(state, who), state.policy.borrowing.min_age
    if age >= least:
        return None
    numbers: dict[str, Number] = {
        "gang": who.gang,
        "age_seconds": max(0.0, seconds(age)),
        "min_seconds": seconds(least),
    }
    return Because(Reason.MIN_AGE, numbers)


def _unfit(state: State, gang: GangId, pod: Pod) -> Because | None:
    name = f"{pod.namespace}/{pod.name}"
    if pod.gpus is None:
        return Because(Reason.GPU_COUNT_UNKNOWN, {"pod": name})
    if not pod.reclaimable:
        return Because(Reason.NOT_RECLAIMABLE, {"gang": gang})
    if pod.protected:
        return Because(Reason.PROTECTED, {"target": name, "why": pod.protected[0]})
    if opted_out(state.inventory, pod) or pod.namespace in state.policy.protected_namespaces:
        return Because(Reason.OPTED_OUT, {"target": name})
    if not tolerates(pod.tolerations, on_loan_taint(pod.owner)):
        return Because(Reason.NOT_TOLERATED, {"gang": gang})
    return None


def _cooling(state: State, pod: Pod, now: datetime) -> Because | None:
    record = state.workloads.get(pod.workload)
    if record is not None and record.protected_until is not None and record.protected_until > now:
        recent = [moment for moment in record.evictions if now - moment < DAY]
        until = record.protected_until.isoformat(timespec="minutes")
        numbers: dict[str, Number] = {"workload": record.workload, "preemptions": len(recent), "until": until}
        return Because(Reason.PREEMPTED_TOO_OFTEN, numbers)
    if record is not None and record.cooldown_until is not None and record.cooldown_until > now:
        until = record.cooldown_until.isoformat(timespec="minutes")
        return Because(Reason.COOLDOWN, {"workload": record.workload, "until": until})
    today = [moment for moment in state.namespace_evictions.get(pod.namespace, ()) if now - moment < DAY]
    if len(today) >= state.policy.borrowing.namespace_preemptions_per_day:
        return Because(Reason.NAMESPACE_CAP, {"namespace": pod.namespace, "preemptions": len(today)})
    return None


def mismatch(who: Borrower, node: Node, taints: Sequence[Taint]) -> Because | None:
    """Why no member of the gang may run on this node once it is lent, or None. Certainty beats utilisation."""
    for pod in who.shapes or who.pods:
        if not selects(pod.node_terms, node.labels):
            return _which_term(who.gang, pod, node)
        if untolerated(pod, taints) is not None:
            return Because(Reason.NOT_TOLERATED, {"gang": who.gang})
        if node.model in ("", "unknown") or not _declares(pod, node):
            return Because(Reason.MODEL_MISMATCH, {"gang": who.gang, "model": node.model})
    return None


def _keyed(pod: Pod, keys: tuple[str, ...]) -> bool:
    named = [any(item.key in keys and item.operator == "In" for item in term) for term in pod.node_terms]
    return bool(named) and all(named)


def _declares(pod: Pod, node: Node) -> bool:
    """The pod's affinity names the node's model: without a declaration there is no overflow (F52)."""
    return _keyed(pod, MODEL_KEYS) and selects(pod.node_terms, node.labels)


def _which_term(gang: GangId, pod: Pod, node: Node) -> Because:
    for keys, reason, name, value in (
        (MODEL_KEYS, Reason.MODEL_MISMATCH, "model", node.model),
        (NETWORK_KEYS, Reason.NETWORK_MISMATCH, "network", node.network),
    ):
        reduced = tuple(tuple(item for item in term if item.key in keys) for term in pod.node_terms)
        if not selects(reduced, node.labels):
            return Because(reason, {"gang": gang, name: value})
    return Because(Reason.SELECTOR_MISMATCH, {"gang": gang})
