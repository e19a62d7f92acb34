"""How each stimulus changes the state: one small handler a kind, at a cost that does not grow with the fleet.

Handlers answer with the pools that deserve a new look (None: all of them) and the instructions that follow at
once. They decide nothing. Objects seen, gone and listed are `observing`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rebalancer.core import ledger, observing, outcomes
from rebalancer.core.demand import Homes, PoolWatch
from rebalancer.core.headroom import Headroom
from rebalancer.core.instructions import PoolMemory
from rebalancer.core.observing import Effect
from rebalancer.core.plan import Method
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import RETURNS_KEPT, State
from rebalancer.core.stimuli import (
    Approved,
    DemandReported,
    FactDeleted,
    FactObserved,
    HeartbeatHeard,
    OutcomeReported,
    PolicyAdopted,
    PolicyRefused,
    RecallRequested,
    Restored,
    SnapshotBegan,
    SnapshotEnded,
    Stimulus,
    StreamLagged,
    TermBegan,
    VerdictGiven,
)
from rebalancer.core.telemetry import Verdict
from rebalancer.core.units import Activity, Mode


def apply(state: State, stimulus: Stimulus, homes: Homes, now: datetime) -> Effect:
    """Change the state by one stimulus."""
    if isinstance(stimulus, FactObserved):
        return observing.observed(state, stimulus, homes)
    return _HANDLERS[type(stimulus)](state, stimulus, now)


def sync_pools(state: State) -> None:
    """Make sure every pool of the policy is watched; pools that left the policy are forgotten."""
    for name in state.policy.pools:
        if name not in state.watches:
            state.watches[name] = PoolWatch(state.policy, state.inventory.totals(name).owned)
    for name in [name for name in state.watches if name not in state.policy.pools]:
        del state.watches[name]


# -- telemetry and demand ------------------------------------------------------------------------------------


def _verdict(state: State, stimulus: VerdictGiven, now: datetime) -> Effect:
    del now
    verdict = stimulus.verdict
    before = state.verdicts.get(verdict.node)
    if before is not None and verdict.at < before.at:
        return (), []
    state.verdicts[verdict.node] = verdict
    state.heard(verdict.partition, verdict.at)
    node = state.inventory.nodes.get(verdict.node)
    if node is None:
        return (), []
    if verdict.activity is Activity.BUSY or (before is not None and before.activity is Activity.BUSY):
        state.usage.judged(node, verdict)
    if before is None or _verdict_says(before) != _verdict_says(verdict):
        state.inventory.candidate_changed(node)
    observing.count(state, node)
    return (node.pool,), []


def _verdict_says(verdict: Verdict) -> tuple[object, ...]:
    return (verdict.activity, verdict.since, verdict.unhealthy, verdict.partition)


def _heartbeat(state: State, stimulus: HeartbeatHeard, now: datetime) -> Effect:
    del now
    for partition in stimulus.heartbeat.partitions:
        state.heard(partition, stimulus.heartbeat.at)
    return (), []


def _demand(state: State, stimulus: DemandReported, now: datetime) -> Effect:
    del now
    watch = state.watches.get(stimulus.demand.pool)
    if watch is None or (watch.told is not None and watch.told.at > stimulus.demand.at):
        return (), []
    watch.told = stimulus.demand
    return (stimulus.demand.pool,), []


# -- decisions coming back -----------------------------------------------------------------------------------


def _outcome(state: State, stimulus: OutcomeReported, now: datetime) -> Effect:
    del now
    records = outcomes.take(state, stimulus.outcome)
    node = state.inventory.nodes.get(stimulus.outcome.target)
    if node is not None:
        observing.count(state, node)
    return (stimulus.outcome.pool,), records


def _approved(state: State, stimulus: Approved, now: datetime) -> Effect:
    del now
    published = ledger.approve(state, stimulus.plan)
    return {item.plan.pool for item in published}, [*published]


def _recall(state: State, stimulus: RecallRequested, now: datetime) -> Effect:
    del now
    because = Because(Reason.OPERATOR_RECALL, {"by": stimulus.by, "target": stimulus.target or "all"})
    for loan in state.open_loans():
        names = {"all": (stimulus.target,), "pool": (loan.lender,), "node": (loan.node_name, loan.node)}
        if stimulus.target in names[stimulus.scope]:
            state.recalls[loan.node] = because
    return None, []


# -- policy, terms, restoration ------------------------------------------------------------------------------


def _policy(state: State, stimulus: PolicyAdopted, now: datetime) -> Effect:
    del now
    before = state.policy
    state.policy, state.refused_policy = stimulus.policy, ""
    for watch in state.watches.values():
        watch.adopt(stimulus.policy, before)
    sync_pools(state)
    return None, []


def _policy_refused(state: State, stimulus: PolicyRefused, now: datetime) -> Effect:
    del now
    state.refused_policy = stimulus.why
    return None, []


def _term(state: State, stimulus: TermBegan, now: datetime) -> Effect:
    del now
    state.term = max(state.term, stimulus.term)
    return None, []


def _lag(state: State, stimulus: StreamLagged, now: datetime) -> Effect:
    del now
    changed = state.behind != stimulus.behind
    state.behind, state.lag_seconds = stimulus.behind, stimulus.lag_seconds
    return (None if changed else ()), []


def _restored(state: State, stimulus: Restored, now: datetime) -> Effect:
    """Rebuild memory: ledger, records, forecasts, then open plans with what came back of them."""
    for memory in stimulus.pools:
        state.usage.recall(memory.pool, memory.usage)
    for loan in stimulus.loans:
        ledger.keep(state, loan)
    for record in stimulus.workloads:
        state.workloads[record.workload] = record
        state.records += 1
        for moment in record.evictions:
            state.namespace_evictions.setdefault(record.namespace, deque(maxlen=10_000)).append(moment)
    for memory in stimulus.pools:
        _remember(state, memory)
    state.recall_alerts(stimulus.alerts, stimulus.cleared)
    _reopen_plans(state, stimulus, now)
    records = [record for told in stimulus.outcomes for record in outcomes.take(state, told)]
    if stimulus.synced:
        state.synced.update({"node": True, "pod": True})
    return None, records


def _remember(state: State, memory: PoolMemory) -> None:
    watch = state.watches.get(memory.pool)
    if watch is not None:
        watch.headroom = Headroom.from_memory(memory, watch.headroom)
        state.returns[memory.pool] = deque(memory.returns, maxlen=RETURNS_KEPT)
        state.learnt_until[memory.pool] = memory.made_at
        if memory.rising_since is not None:
            watch.rising_since, watch.rising_samples, watch.rising_at = memory.rising_since, 1, memory.made_at


def _reopen_plans(state: State, stimulus: Restored, now: datetime) -> None:
    cancelled = {plan.cancels for plan in stimulus.plans if plan.method is Method.CANCEL}
    for plan in sorted(stimulus.plans, key=lambda plan: plan.made_at):
        state.touch(plan)
        if plan.mode is Mode.ACT and plan.method is not Method.CANCEL and now <= plan.valid_until:
            ledger.adopt(state, plan, now)
            state.plans[plan.id].called_off = plan.id in cancelled


Handler = Callable[[State, Any, datetime], Effect]
_HANDLERS: dict[type, Handler] = {
    FactDeleted: observing.deleted,
    SnapshotBegan: observing.snapshot_began,
    SnapshotEnded: observing.snapshot_ended,
    VerdictGiven: _verdict,
    HeartbeatHeard: _heartbeat,
    DemandReported: _demand,
    OutcomeReported: _outcome,
    PolicyAdopted: _policy,
    PolicyRefused: _policy_refused,
    Approved: _approved,
    RecallRequested: _recall,
    Restored: _restored,
    TermBegan: _term,
    StreamLagged: _lag,
}
