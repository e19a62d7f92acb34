"""The engine: stimuli in, instructions out. :meth:`Engine.handle` is the only mutator.

Facts, verdicts and outcomes are applied at once, at a cost that does not grow with the fleet; plans are made when
time passes, for the pools that something happened to. Methods run in priority order: protect, reclaim, return,
lend. The engine never reads a clock, never does I/O and never forgets why.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile

from rebalancer.core import applying, demand, ledger, marks, picture
from rebalancer.core.checks import check
from rebalancer.core.instructions import (
    ClearAlert,
    ForgetAlert,
    ForgetLoan,
    Instruction,
    PublishPlan,
    RaiseAlert,
    RecordForecast,
    RecordPool,
    RecordUsage,
)
from rebalancer.core.look import Look, look
from rebalancer.core.methods import lend, protect, reclaim, renew, repair, return_
from rebalancer.core.plan import EvictGang, LendNode, Method, Plan, stable_id
from rebalancer.core.policy import Policy
from rebalancer.core.reasons import Reason
from rebalancer.core.state import State
from rebalancer.core.stimuli import Stimulus, TimePassed, happened
from rebalancer.core.story import Entry, keys_of, told
from rebalancer.core.underway import Draft
from rebalancer.core.units import Mode, PoolName

MethodOf = Callable[[State, Look, datetime], Iterator[Draft]]
METHODS: tuple[MethodOf, ...] = (
    reclaim.propose,
    renew.propose,
    return_.propose,
    repair.propose,
    lend.propose,
)
LOOK_EVERY = timedelta(seconds=1)
PICTURE_EVERY = timedelta(seconds=60)
FORECAST_EVERY = timedelta(minutes=10)
LEARNT = 0.01
"""Rise of the headroom, as a share of the pool, that is told at once: a restart must not lend into a fresh spike.

Measured return times are told at once too: a restart must not start home by the lead time again."""
STORY_KEPT = 20_000


class Engine:
    """One engine decides for one cluster."""

    def __init__(self, cluster: str, policy: Policy, *, methods: Sequence[MethodOf] = METHODS) -> None:
        """Begin with an empty picture; nothing is planned before the term and a complete picture are known."""
        self.state = State(cluster, policy)
        self.methods = tuple(methods)
        self._homes = demand.Homes()
        self._dirty: dict[PoolName, None] = {}
        self._all_dirty = True
        self._looked: OrderedDict[PoolName, datetime] = OrderedDict()
        self._story: deque[Entry] = deque(maxlen=STORY_KEPT)
        applying.sync_pools(self.state)

    @property
    def dirty(self) -> bool:
        """Whether something happened since plans were last made."""
        return self._all_dirty or bool(self._dirty)

    def handle(self, stimulus: Stimulus, now: datetime) -> list[Instruction]:
        """Take a stimulus in and answer with what is to be done, in order."""
        state = self.state
        state.usage.clock(now, happened(stimulus, now))
        if isinstance(stimulus, TimePassed):
            state.usage.settle(state.verdicts)
            instructions = self._plan(now)
        else:
            touched, instructions = applying.apply(state, stimulus, self._homes, now)
            if touched is None:
                self._all_dirty = True
            else:
                self._dirty.update(dict.fromkeys(touched))
        state.usage.take(state.inventory)
        for entry in told(stimulus, instructions, now):
            self._story.append(entry)
        return instructions

    def check(self) -> None:
        """Assert the invariants; raises :class:`rebalancer.core.checks.InvariantBroken`."""
        check(self.state)

    def story(self, key: str) -> list[Entry]:
        """What happened to a node, pod, gang, loan or plan, oldest first (bounded memory)."""
        names = keys_of(self.state, key)
        return [entry for entry in self._story if names & entry.keys]

    def fork(self) -> Engine:
        """An independent copy for what-if questions: the same code on other memory."""
        return copy.deepcopy(self)

    # -- planning --------------------------------------------------------------------------------------------

    def _plan(self, now: datetime) -> list[Instruction]:
        state = self.state
        instructions: list[Instruction] = [*ledger.expire(state, now), *marks.settle_unmarked(state, now)]
        instructions += [*ledger.close_virtual(state, now), *_forgotten(state, now)]
        pools = self._pools_to_look_at(now)
        for pool in pools:
            seen = look(state, pool, self._homes.waiting(pool, state.inventory, state.policy), now)
            if seen is None:
                continue
            picture.account(state, seen, now)
            instructions += self._decide(seen, now)
            instructions += self._tell(seen, now)
        instructions += self._sound(protect.policy_alert(state, now), "", now)
        self._dirty.clear()
        self._all_dirty = False
        return instructions

    def _pools_to_look_at(self, now: datetime) -> list[PoolName]:
        """Pools that something happened to, and those not looked at for a while; ``_looked`` is in order of time."""
        known = self.state.policy.pools
        if self._all_dirty:
            self._looked.clear()
            chosen = set(known)
        else:
            overdue = takewhile(lambda item: now - item[1] >= LOOK_EVERY, self._looked.items())
            chosen = {pool for pool, _ in overdue} | {pool for pool in self._dirty if pool in known}
        ordered = sorted(chosen)
        for pool in ordered:
            self._looked[pool] = self.state.watches[pool].last_look = now
            self._looked.move_to_end(pool)
        return ordered

    def _decide(self, seen: Look, now: datetime) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self.state.term < 0:
            return instructions
        for method in self.methods:
            for draft in method(self.state, seen, now):
                instructions += [
                    one for mode, part in _by_mode(self.state, draft) for one in self._adopt(part, mode, now)
                ]
        return instructions

    def _adopt(self, draft: Draft, mode: Mode, now: datetime) -> list[Instruction]:
        state = self.state
        plan = Plan(
            id=_plan_id(state.cluster, draft, now),
            pool=draft.pool,
            method=draft.method,
            mode=mode,
            because=draft.because,
            steps=draft.steps,
            made_at=now,
            valid_until=_valid_until(draft, now, state.policy.acting.plan_validity),
            alternatives=draft.alternatives,
            cancels=draft.cancels,
            awaits_approval=draft.awaits_approval,
            pressing=draft.pressing,
            term=state.term,
        )
        state.touch(plan)
        records = ledger.adopt(state, plan, now)
        if draft.cancels:
            ledger.called_off(state, draft.cancels)
        return [*records, PublishPlan(plan)]

    # -- telling ---------------------------------------------------------------------------------------------

    def _tell(self, seen: Look, now: datetime) -> list[Instruction]:
        state, watch = self.state, self.state.watches[seen.pool]
        instructions = self._sound(protect.alerts(state, seen, now), seen.pool, now)
        charges, worth = state.usage.tell(seen.pool, seen.policy.model, behind=state.behind)
        instructions += map(RecordUsage, charges)
        if watch.last_published is None or now - watch.last_published >= PICTURE_EVERY:
            instructions.append(RecordPool(picture.picture(state, seen, now)))
            watch.last_published = now
        learnt = seen.demand.headroom - watch.told_headroom >= max(1.0, LEARNT * watch.headroom.capacity)
        returns = tuple(state.returns.get(seen.pool, ()))
        learnt = learnt or returns != watch.told_returns or watch.rising_since != watch.told_rising
        if watch.last_forecast is None or learnt or worth or now - watch.last_forecast >= FORECAST_EVERY:
            instructions.append(RecordForecast(picture.memory(state, seen.pool, now)))
            watch.last_forecast, watch.told_headroom, watch.told_returns = now, seen.demand.headroom, returns
            watch.told_rising = watch.rising_since
        return instructions

    def _sound(self, standing: Sequence[RaiseAlert], pool: PoolName, now: datetime) -> list[Instruction]:
        """Raise what is new or says something else, clear what is over, for one pool ("": the whole cluster)."""
        alerts = self.state.alerts
        wanted = {alert.id: alert for alert in standing}
        over = [key for key, alert in alerts.items() if alert.pool == pool and key not in wanted]
        raised: list[Instruction] = []
        for key, alert in wanted.items():
            before = alerts.get(key)
            if before is None or before.because.reason is not alert.because.reason:
                raised.append(alert)
                self.state.keeping.alert_raised(key)
            alerts[key] = alert
        for key in over:
            del alerts[key]
            self.state.keeping.alert_cleared(key, now)
        return [*raised, *(ClearAlert(key, now) for key in over)]


def _forgotten(state: State, now: datetime) -> list[Instruction]:
    """Loans and alerts that have been over for long enough: first out of memory, then off the topics."""
    gone: list[Instruction] = []
    for entry in state.keeping.due(now):
        if entry.what == "loan-memory":
            state.loans.pop(entry.key, None)
            state.lost.pop(entry.key, None)
        else:
            gone.append(ForgetLoan(entry.key) if entry.what == "loan" else ForgetAlert(entry.key))
    return gone


def _by_mode(state: State, draft: Draft) -> Iterator[tuple[Mode, Draft]]:
    """A draft in the mode in which it is meant. Shadow begins nothing, yet what is really out comes home for real."""
    mode = state.mode(draft.pool)
    if draft.method is Method.CANCEL:  # only what act carries out can be called off
        yield Mode.ACT, draft
        return
    held = [state.loans.get(step.loan) for step in draft.steps if not isinstance(step, EvictGang)]
    real = {loan.id for loan in held if loan is not None and not loan.virtual}
    if mode is Mode.ACT or not real:
        yield mode, draft
        return
    home = tuple(step for step in draft.steps if isinstance(step, EvictGang) or step.loan in real)
    yield Mode.ACT, replace(draft, steps=home)
    rest = tuple(step for step in draft.steps if step not in home)
    if rest:
        yield Mode.SHADOW, replace(draft, steps=rest)


def _plan_id(cluster: str, draft: Draft, now: datetime) -> str:
    targets = [step.gang if step.kind == "evict" else step.node for step in draft.steps]
    return stable_id(cluster, draft.pool, draft.method, draft.cancels, now.isoformat(), *targets)


def _valid_until(draft: Draft, now: datetime, validity: timedelta) -> datetime:
    """Lends go stale soon, renewals before the way home would be late.

    A way home stays valid past its last deadline, so that a new actor finishes it.
    """
    if draft.awaits_approval or any(isinstance(step, LendNode) for step in draft.steps):
        return now + validity
    if draft.method is Method.RENEW:
        return now + min(validity, return_.MARGIN)
    deadlines = [step.deadline for step in draft.steps if step.kind == "evict"]
    falls_due = draft.because.reason is Reason.LOAN_DUE
    dues = [step.due for step in draft.steps if step.kind == "restore"] if falls_due else []
    return max([now, *deadlines, *dues]) + validity
