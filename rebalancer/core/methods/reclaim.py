"""Reclaim: bring nodes home because inference needs them, before it has to wait.

Two triggers: pods that wait without room (at once; the first eviction only after a short debounce), and demand
plus headroom above what stands ready (after the debounce of load-driven signals). A plan whose need has gone
before its first eviction is called off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rebalancer.core.books import HEADROOM
from rebalancer.core.facts import Pod
from rebalancer.core.fit import settle
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.look import Look, empty_room
from rebalancer.core.methods import guards, takeback
from rebalancer.core.plan import Alternative, Method
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import usable
from rebalancer.core.underway import Draft
from rebalancer.core.units import Number, OwnerClass
from rebalancer.core.victims import Homecoming, choose

SAMPLE_SPACING = timedelta(seconds=15)
"""Two signals count as two samples only this far apart (a usual scrape interval)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Nodes to come home, when that was decided, and before when nobody is evicted."""

    comings: tuple[Homecoming, ...]
    now: datetime
    not_before: datetime


def propose(state: State, look: Look, now: datetime) -> Iterator[Draft]:
    """Drafts that bring nodes of this pool home, or call such a plan off."""
    if look.policy.owner is not OwnerClass.INFERENCE:
        return
    state.watches[look.pool].paced = None
    deficit = look.demand.gpus + reserve(state, look) - look.ready
    rising = _rising(state, look, deficit, now)
    yield from _cancels(state, look, deficit, rising=rising)
    missing = deficit - look.returning
    candidates = _candidates(state, look) if look.unmet or (rising and missing > 0) else []
    if look.unmet and candidates and guards.stops_pending_reclaim(state, look, now) is None:
        draft = _for_pending(state, look, candidates, now)
        if draft is not None:
            yield draft
            return
    waits = any(state.plans[uid].plan.awaits_approval for uid in state.books(look.pool).plans)
    if rising and missing > 0 and candidates and not waits and guards.stops_load_reclaim(state, look, now) is None:
        draft = _for_rise(state, look, candidates, missing, now)
        if draft is not None:
            yield draft


def reserve(state: State, look: Look) -> float:
    """GPUs of headroom that reclaim defends: what the newest loan was made under, if less than today's.

    What is learnt after a loan stops new loans at once, but evicts nobody: only demand that rises does. Otherwise a
    spike that came and went would cost gangs for the rise it taught (F29).
    """
    made_under = state.books(look.pool).reserve
    return look.demand.headroom if made_under is None else min(look.demand.headroom, made_under)


def _candidates(state: State, look: Look) -> list[Loan]:
    """Loans that may be called home: nobody is evicted for a node that would be no supply (C11)."""
    free = [loan for loan in state.open_loans(look.pool) if loan.node not in state.busy_nodes]
    return [loan for loan in free if loan.phase is LoanPhase.ON_LOAN and _supply(state, loan)]


def _supply(state: State, loan: Loan) -> bool:
    node = state.inventory.nodes.get(loan.node)
    return node is not None and usable(node)


def _rising(state: State, look: Look, deficit: float, now: datetime) -> bool:
    """Whether the deficit has lasted for the debounce: long enough, or enough samples."""
    watch, signals = state.watches[look.pool], state.policy.signals
    if deficit <= 0:
        watch.rising_since, watch.rising_samples = None, 0
        return False
    if watch.rising_since is None:
        watch.rising_since, watch.rising_samples, watch.rising_at = now, 1, now
    elif now - watch.rising_at >= SAMPLE_SPACING:
        watch.rising_samples, watch.rising_at = watch.rising_samples + 1, now
    return now - watch.rising_since >= signals.debounce or watch.rising_samples >= signals.debounce_samples


def _for_pending(state: State, look: Look, candidates: Sequence[Loan], now: datetime) -> Draft | None:
    wanted = _satisfiable(state, look.unmet, candidates)
    if not wanted:
        return None

    needed = sum(pod.gpus or 0 for pod in wanted)

    def enough(chosen: Sequence[Homecoming]) -> bool:
        rooms = [empty_room(item.node, item.loan.owner_taint) for item in chosen]
        return sum(room.free for room in rooms) >= needed and not settle(wanted, rooms)

    choice = choose(state, candidates, enough, now, partial=True)
    if not choice.homecomings:  # those who opted out go only where nobody else can
        choice = choose(state, candidates, enough, now, partial=True, pressing=True)
    paced = choice.homecomings[: _pace(state, look, len(choice.homecomings), now)]
    if not paced:
        return None
    because = Because(
        Reason.INFERENCE_PENDING,
        {"pool": look.pool, "pods": len(wanted), "needed_gpus": needed, "ready_gpus": look.ready},
    )
    first = min(pod.unschedulable_since or pod.created_at for pod in wanted)
    not_before = max(now, first + state.policy.signals.pending_debounce)
    return _draft(state, look, because, Wanted(paced, now, not_before), choice.rejected)


def _pace(state: State, look: Look, wanted: int, now: datetime) -> int:
    """How many nodes come home at once for waiting pods: what the caps leave, and never none: caps pace here."""
    most = max(1, min(state.policy.pace.nodes_per_pool, state.room_in_caps(look.pool, now)))
    if wanted > most:
        numbers: dict[str, Number] = {"cap": state.policy.pace.nodes_per_pool, "what": f"nodes of {look.pool}"}
        state.watches[look.pool].paced = Because(Reason.CAP, numbers)
    return most


def _satisfiable(state: State, unmet: Sequence[Pod], candidates: Sequence[Loan]) -> list[Pod]:
    """Those waiting pods that some lent node could house once home: for the rest nobody is evicted."""
    nodes = [(state.inventory.nodes.get(loan.node), loan.owner_taint) for loan in candidates]
    rooms = [empty_room(node, taint) for node, taint in nodes if node is not None]
    left = {pod.uid for pod in settle(unmet, rooms)}
    return [pod for pod in unmet if pod.uid not in left]


def _for_rise(state: State, look: Look, candidates: Sequence[Loan], missing: float, now: datetime) -> Draft | None:
    choice = choose(
        state, candidates, lambda found: sum(item.loan.gpus for item in found) >= missing, now, partial=True
    )
    paced = choice.homecomings[: state.room_in_caps(look.pool, now)]
    if not paced:
        return None
    because = Because(
        Reason.INFERENCE_RISING,
        {
            "pool": look.pool,
            "demand_gpus": round(look.demand.gpus, 2),
            HEADROOM: round(reserve(state, look), 2),
            "ready_gpus": look.ready,
        },
    )
    nodes = max(1, state.inventory.totals(look.pool).nodes)
    open_circuit = len(paced) / nodes > state.policy.pace.circuit_share
    draft = _draft(state, look, because, Wanted(paced, now, now), choice.rejected)
    if not open_circuit:
        return draft
    share = {
        "share_percent": round(100 * len(paced) / nodes),
        "limit_percent": round(100 * state.policy.pace.circuit_share),
    }
    note = Alternative(look.pool, Because(Reason.CIRCUIT_OPEN, {"pool": look.pool, **share}))
    return Draft(draft.pool, draft.method, because, draft.steps, (note, *draft.alternatives), awaits_approval=True)


def _draft(state: State, look: Look, because: Because, found: Wanted, rejected: tuple[Alternative, ...]) -> Draft:
    deadline = found.not_before + state.policy.acting.retry_deadline
    steps = takeback.steps(state, found.comings, because, now=found.now, not_before=found.not_before, deadline=deadline)
    pressing = because.reason is Reason.INFERENCE_PENDING
    return Draft(look.pool, Method.RECLAIM, because, steps, rejected, pressing=pressing)


def _cancels(state: State, look: Look, deficit: float, *, rising: bool) -> Iterator[Draft]:
    """Call off reclaims that have evicted nobody when what they were made for is over.

    Waiting pods: none waits any more, and the deficit has not lasted for the debounce. Rising load: no deficit is left.
    """
    if look.unmet_now:
        return
    for plan_id in state.books(look.pool).plans:
        found = state.plans[plan_id]
        plan = found.plan
        if plan.method is not Method.RECLAIM or found.evicting or found.called_off:
            continue
        wanted = rising if plan.pressing else deficit > 0
        if not wanted:
            because = Because(Reason.DEMAND_GONE, {"pool": look.pool})
            yield Draft(look.pool, Method.CANCEL, because, (), pressing=plan.pressing, cancels=plan_id)
