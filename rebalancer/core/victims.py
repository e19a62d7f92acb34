"""Which lent nodes come home, and which whole gangs have to go for it.

Greedy by the cost of one more GPU at home: lost work in GPU-seconds plus a fixed cost per gang, gangs that are
blocked or deserve patience last. Only whole gangs are chosen (an elastic gang may shrink to its minimum). The
exact solver will stand behind :func:`choose` with the same signature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rebalancer.core.budgets import blocked_now
from rebalancer.core.facts import Node, Pod
from rebalancer.core.loans import Loan
from rebalancer.core.optout import opted_out
from rebalancer.core.plan import Alternative, EvictGang, Member
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.units import GangId, Number, seconds


@dataclass(frozen=True, slots=True)
class Casualty:
    """One gang as it would have to go: its members (all, or the surplus of an elastic gang) and the price."""

    gang: GangId
    members: tuple[Pod, ...]
    whole: bool
    lost_gpu_seconds: float
    patience: Because | None
    """Why others are preferred, None if nothing speaks for waiting."""


@dataclass(frozen=True, slots=True)
class Homecoming:
    """A lent node that can come home and the gangs that stand in its way."""

    loan: Loan
    node: Node
    casualties: tuple[Casualty, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen and what was not."""

    homecomings: tuple[Homecoming, ...]
    rejected: tuple[Alternative, ...]


def lost_work(pods: Sequence[Pod], now: datetime) -> float:
    """GPU-seconds since the later of start and last checkpoint; a pod that never started loses nothing."""
    total = 0.0
    for pod in pods:
        if pod.started_at is None or not pod.node:
            continue
        since = max(pod.started_at, pod.checkpointed_at or pod.started_at)
        total += (pod.gpus or 0) * max(0.0, seconds(now - since))
    return total


def immovable(state: State, pod: Pod, *, pressing: bool = False) -> Because | None:
    """Why a pod on a lent node can never be evicted by us, or None.

    Whoever opted out goes only for what is ``pressing`` (the node is due, or inference waits), as while paused.
    """
    name = f"{pod.namespace}/{pod.name}"
    if pod.gpus is None:
        return Because(Reason.GPU_COUNT_UNKNOWN, {"pod": name})
    if not pod.reclaimable:
        return Because(Reason.SQUATTER, {"pod": name, "node": pod.node})
    if pod.protected or pod.namespace in state.policy.protected_namespaces:
        return Because(Reason.PROTECTED, {"target": name, "why": pod.protected[0] if pod.protected else pod.namespace})
    if opted_out(state.inventory, pod) and not (pressing and state.policy.pace.recall_while_paused):
        return Because(Reason.OPTED_OUT, {"target": name})
    return None


def _patience(state: State, gang: GangId, members: Sequence[Pod], now: datetime) -> Because | None:
    policy = state.policy.borrowing
    if any(pod.checkpoint_in_progress for pod in members):
        return Because(Reason.CHECKPOINTING, {"gang": gang})
    ends = [pod.finishes_at for pod in members if pod.finishes_at is not None]
    if len(ends) == len(members) and now < max(ends) <= now + state.policy.acting.retry_deadline:
        return Because(Reason.FINISHING, {"gang": gang, "left_seconds": seconds(max(ends) - now)})
    starts = [pod.started_at for pod in members if pod.started_at is not None]
    if starts and now - max(starts) < policy.min_runtime:
        numbers: dict[str, Number] = {
            "gang": gang,
            "run_seconds": seconds(now - max(starts)),
            "min_seconds": seconds(policy.min_runtime),
        }
        return Because(Reason.MIN_RUNTIME, numbers)
    record = state.workloads.get(members[0].workload)
    if record is not None and record.protected_until is not None and record.protected_until > now:
        until = record.protected_until.isoformat(timespec="minutes")
        numbers_often: dict[str, Number] = {
            "workload": record.workload,
            "preemptions": len(record.evictions),
            "until": until,
        }
        return Because(Reason.PREEMPTED_TOO_OFTEN, numbers_often)
    if record is not None and record.cooldown_until is not None and record.cooldown_until > now:
        until = record.cooldown_until.isoformat(timespec="minutes")
        return Because(Reason.COOLDOWN, {"workload": record.workload, "until": until})
    return None


def casualty(state: State, gang: GangId, node_name: str, now: datetime) -> Casualty:
    """The gang as it would have to go for this node: only its surplus on it if it is elastic and that suffices."""
    pods = [pod for pod in state.inventory.gang_pods(gang) if not pod.terminal]
    live = [pod for pod in pods if pod.deleting_at is None and pod.node]
    here = [pod for pod in live if pod.node == node_name]
    keep = state.least_members(gang, pods)
    shrink = 0 < len(here) < len(live) and len(live) - len(here) >= keep
    members = tuple(here if shrink and keep < pods[0].gang_size else live)
    return Casualty(
        gang, members, len(members) == len(live), lost_work(members, now), _patience(state, gang, live, now)
    )


def homecoming(state: State, loan: Loan, now: datetime, *, pressing: bool = False) -> Homecoming | Because:
    """How a lent node could come home, or why it cannot now. ``pressing``: as for :func:`immovable`."""
    node = state.inventory.nodes.get(loan.node)
    if node is None:
        return Because(Reason.NODE_GONE, {"node": loan.node_name})
    found: list[Casualty] = []
    leaving = state.leaving()
    staying = [pod for pod in state.lent_pods(node) if pod.uid not in leaving and pod.deleting_at is None]
    for gang in dict.fromkeys(pod.gang for pod in staying):
        if gang in state.busy_gangs:
            return Because(Reason.IN_TRANSIT, {"node": gang})
        victim = casualty(state, gang, node.name, now)
        for pod in victim.members:
            why = immovable(state, pod, pressing=pressing)
            if why is not None:
                return why
        if victim.members:
            found.append(victim)
    return Homecoming(loan, node, tuple(found))


def obstacle(state: State, coming: Homecoming, now: datetime, in_flight: dict[str, int]) -> Because | None:
    """Why the gangs on a node cannot be evicted at this moment (budgets, an earlier refusal), or None."""
    for victim in coming.casualties:
        refused = state.blocked_gangs.get(victim.gang)
        if refused is not None and refused[0] > now:
            return refused[1]
        why = blocked_now(state.inventory, victim.gang, victim.members, in_flight)
        if why is not None:
            return why
    return None


def choose(
    state: State,
    loans: Sequence[Loan],
    enough: Callable[[Sequence[Homecoming]], bool],
    now: datetime,
    *,
    partial: bool = False,
    pressing: bool = False,
) -> Choice:
    """Fewest and cheapest gangs whose going brings home a set of nodes that is ``enough``.

    Each round adds the node with the least (patience, marginal cost); gangs already chosen cost nothing more.
    If no set is enough, nothing is chosen: evicting uselessly is worse than waiting (E18, F33) - unless a
    ``partial`` answer helps as far as it goes, as for a deficit in GPUs.
    """
    in_flight = state.in_flight()
    open_to_us: list[Homecoming] = []
    rejected: list[Alternative] = []
    for loan in loans:
        found = homecoming(state, loan, now, pressing=pressing)
        why = found if isinstance(found, Because) else obstacle(state, found, now, in_flight)
        if why is not None:
            rejected.append(Alternative(loan.node_name, why))
        elif isinstance(found, Homecoming):
            open_to_us.append(found)
    chosen = _greedy(state, open_to_us, enough, partial=partial)
    taken = {coming.loan.id for coming in chosen}
    left = [coming for coming in open_to_us if coming.loan.id not in taken]
    rejected += [Alternative(coming.node.name, _passed_over(coming)) for coming in left]
    return Choice(tuple(chosen), tuple(rejected))


def _passed_over(coming: Homecoming) -> Because:
    for victim in coming.casualties:
        if victim.patience is not None:
            return victim.patience
    if not coming.casualties:
        return Because(Reason.NOT_NEEDED)
    dearest = max(coming.casualties, key=lambda victim: (victim.lost_gpu_seconds, victim.gang))
    return Because(Reason.COSTS_MORE, {"gang": dearest.gang, "lost_gpu_seconds": round(dearest.lost_gpu_seconds)})


def _greedy(
    state: State,
    candidates: Sequence[Homecoming],
    enough: Callable[[Sequence[Homecoming]], bool],
    *,
    partial: bool,
) -> list[Homecoming]:
    chosen: list[Homecoming] = []
    gone: set[GangId] = set()
    left = list(candidates)
    while not enough(chosen):
        if not left:
            return chosen if partial else []
        best = min(left, key=lambda coming: _price(state, coming, gone))
        left.remove(best)
        chosen.append(best)
        gone |= {victim.gang for victim in best.casualties}
    freed = [coming for coming in left if coming.casualties and not _fresh(coming, gone)]
    return _trimmed(state, [*chosen, *freed], enough)


def _fresh(coming: Homecoming, gone: set[GangId]) -> list[Casualty]:
    """Whom this node costs beyond the gangs that go as a whole anyway."""
    return [victim for victim in coming.casualties if not (victim.whole and victim.gang in gone)]


def _price(state: State, coming: Homecoming, gone: set[GangId]) -> tuple[int, float, float, str]:
    fresh = _fresh(coming, gone)
    patience = sum(victim.patience is not None for victim in fresh)
    fixed = state.policy.borrowing.gang_cost_gpu_seconds
    cost = sum(victim.lost_gpu_seconds + fixed for victim in fresh)
    return (
        patience,
        cost / max(1, coming.loan.gpus),
        seconds(coming.loan.due - coming.loan.opened_at),
        coming.node.name,
    )


def _trimmed(
    state: State, chosen: list[Homecoming], enough: Callable[[Sequence[Homecoming]], bool]
) -> list[Homecoming]:
    """Drop nodes that the others make needless, first those that spare the most work."""
    nodes = Counter(victim.gang for coming in chosen for victim in coming.casualties)
    fixed = state.policy.borrowing.gang_cost_gpu_seconds

    def spared(coming: Homecoming) -> tuple[float, str]:
        alone = [victim for victim in coming.casualties if not victim.whole or nodes[victim.gang] == 1]
        return sum(victim.lost_gpu_seconds + fixed for victim in alone), coming.node.name

    for coming in sorted(chosen, key=spared, reverse=True):
        rest = [item for item in chosen if item is not coming]
        if coming.casualties and enough(rest):
            chosen = rest
    return chosen


def eviction(state: State, victim: Casualty, not_before: datetime, deadline: datetime, because: Because) -> EvictGang:
    """The plan step that makes a casualty go."""
    first = victim.members[0]
    members = tuple(_member(state, pod) for pod in victim.members)
    return EvictGang(
        gang=victim.gang,
        workload=first.workload,
        namespace=first.namespace,
        top_owner=first.top_owner,
        members=members,
        whole=victim.whole,
        not_before=not_before,
        deadline=deadline,
        notice_seconds=max(pod.notice_seconds for pod in victim.members),
        grace_seconds=max(pod.grace_seconds for pod in victim.members),
        lost_gpu_seconds=victim.lost_gpu_seconds,
        because=because,
    )


def _member(state: State, pod: Pod) -> Member:
    budgets = tuple(item.name for item in state.inventory.budgets.over(pod))
    return Member(pod.uid, pod.namespace, pod.name, pod.node, pod.gpus or 0, budgets)
