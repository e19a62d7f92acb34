"""From the core's objects to records. Never checks what the core made; never reads a clock.

Keys of compacted topics are unique across clusters, since two clusters may share a partition: names that are
only unique inside a cluster (pool, workload, alert, worker, the control object) are prefixed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from rebalancer.adapters.translate.messages import Barrier, SnapshotRequested, TermRecord
from rebalancer.adapters.translate.plain import exact, internal, public, shallow
from rebalancer.adapters.translate.stimuli import stimulus_bytes
from rebalancer.core import instructions as ask
from rebalancer.core.charges import Charge, LoanUsage
from rebalancer.core.facts import Budget, Control, GangSpec, Namespace, Node, Pod
from rebalancer.core.loans import Loan
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.stimuli import (
    Approved,
    Fact,
    FactDeleted,
    FactKind,
    RecallRequested,
    SnapshotBegan,
    SnapshotEnded,
    Stimulus,
)
from rebalancer.core.telemetry import DemandSample, Heartbeat, NodeSample, Verdict
from rebalancer.wire import v1
from rebalancer.wire.envelope import BARRIER_KEY, SNAPSHOT_KEY, TYPE_PREFIX, Record, Said, seal

KIND_OF: dict[type, FactKind] = {
    Node: "node",
    Pod: "pod",
    Budget: "budget",
    GangSpec: "group",
    Namespace: "namespace",
    Control: "control",
}


def _seal(
    place: tuple[str, str, str], cluster: str, at: datetime, data: bytes | None, core: bytes | None = None
) -> Record:
    topic, key, name = place
    return seal(topic, key, f"{TYPE_PREFIX}{name}.v1", Said(cluster, at, data, core))


def _explain(place: tuple[str, str, str], cluster: str, at: datetime, value: Any) -> Record:
    """A record with sentences: its id rests on reasons and numbers alone."""
    return _seal(place, cluster, at, public(value), exact(value))


def fact_key(of: FactKind, uid: str, cluster: str) -> str:
    """Uids are unique everywhere; the control object's is only a word."""
    return f"{cluster}/{uid}" if of == "control" else uid


def encode_fact(fact: Fact, cluster: str, at: datetime) -> Record:
    """The latest digest of an object."""
    of = KIND_OF[type(fact)]
    return _seal((v1.FACT_TOPICS[of], fact_key(of, fact.uid, cluster), f"fact.{of}"), cluster, at, internal(fact))


def encode_deleted(gone: FactDeleted, cluster: str) -> Record:
    """The tombstone of an object; when it went is in the headers."""
    key = fact_key(gone.of, gone.uid, cluster)
    return _seal((v1.FACT_TOPICS[gone.of], key, f"fact.{gone.of}"), cluster, gone.at, None)


def encode_snapshot(mark: SnapshotBegan | SnapshotEnded, cluster: str) -> Record:
    """Begin or end of a full list, under a reserved key of its kind's topic."""
    end = isinstance(mark, SnapshotEnded)
    name = "snapshot.ended" if end else "snapshot.began"
    key = f"{SNAPSHOT_KEY}/{cluster}/{'ended' if end else 'began'}"
    return _seal((v1.FACT_TOPICS[mark.of], key, name), cluster, mark.at, shallow(mark, "at", "kind"))


def encode_request(request: Approved | RecallRequested | SnapshotRequested, cluster: str) -> Record:
    """A request on the control topic."""
    name = {Approved: "approve", RecallRequested: "recall", SnapshotRequested: "snapshot"}[type(request)]
    place = (v1.CONTROL, cluster, f"control.{name}")
    return _seal(place, cluster, request.at, shallow(request, "at", "kind"), exact(request))


def encode_sample(sample: NodeSample, cluster: str) -> Record:
    """One node's readings at one scrape."""
    key = f"{cluster}/{sample.node}"
    return _seal((v1.SAMPLE_DEVICE, key, "sample.device"), cluster, sample.at, internal(sample))


def encode_demand(demand: DemandSample, cluster: str) -> Record:
    """What a pool wants."""
    return _seal((v1.SAMPLE_DEMAND, demand.pool, "sample.demand"), cluster, demand.at, public(demand))


def encode_verdict(verdict: Verdict, cluster: str) -> Record:
    """What a node is doing."""
    return _seal((v1.STATE_NODE, verdict.node, "state.node"), cluster, verdict.at, public(verdict))


def encode_heartbeat(beat: Heartbeat, cluster: str) -> Record:
    """A telemetry worker's heartbeat, one for each cluster whose nodes it judges."""
    key = f"{cluster}/{beat.worker}"
    return _seal((v1.STATE_TELEMETRY, key, "state.telemetry"), cluster, beat.at, public(beat))


def encode_pool(state: ask.PoolState, cluster: str) -> Record:
    """The public picture of a pool."""
    return _seal((v1.STATE_POOL, f"{cluster}/{state.pool}", "state.pool"), cluster, state.at, public(state))


def encode_forecast(memory: ask.PoolMemory, cluster: str) -> Record:
    """What headroom has learnt about a pool; gaps of the history are null."""
    key = f"{cluster}/{memory.pool}"
    return _seal((v1.FORECAST_POOL, key, "forecast.pool"), cluster, memory.made_at, public(memory))


def encode_usage(charge: Charge, cluster: str) -> Record:
    """What a pool or a loan used in an hour, as of its end."""
    if isinstance(charge, LoanUsage):
        return _seal((v1.USAGE_LOAN, charge.loan, "usage.loan"), cluster, charge.until, public(charge))
    return _seal((v1.USAGE_LOAN, f"{cluster}/{charge.pool}", "usage.pool"), cluster, charge.until, public(charge))


def encode_loan(loan: Loan, cluster: str, at: datetime) -> Record:
    """The loan's latest state for the ledger."""
    return _explain((v1.STATE_LOAN, loan.id, "state.loan"), cluster, at, loan)


def encode_workload(record: ask.WorkloadRecord, cluster: str, at: datetime) -> Record:
    """A workload's record."""
    return _seal((v1.STATE_WORKLOAD, f"{cluster}/{record.workload}", "state.workload"), cluster, at, public(record))


def encode_plan(plan: Plan, cluster: str) -> Record:
    """A plan, each because with its sentence."""
    return _explain((v1.PLAN, plan.pool, "decision.plan"), cluster, plan.made_at, plan)


def encode_term(term: TermRecord, cluster: str) -> Record:
    """A decider's beginning; the offset it gets is its term."""
    return _seal((v1.PLAN, cluster, "decision.term"), cluster, term.at, shallow(term, "at"))


def encode_outcome(outcome: Outcome, cluster: str) -> Record:
    """What became of a step."""
    return _explain((v1.OUTCOME, outcome.pool, "decision.outcome"), cluster, outcome.at, outcome)


def encode_alert(alert: ask.RaiseAlert | ask.ClearAlert, cluster: str) -> Record:
    """An alert raised or cleared."""
    key = f"{cluster}/{alert.id}"
    if isinstance(alert, ask.RaiseAlert):
        return _explain((v1.ALERT, key, "alert.raised"), cluster, alert.since, alert)
    return _seal((v1.ALERT, key, "alert.cleared"), cluster, alert.at, shallow(alert, "at"))


def encode_journal(stimulus: Stimulus, now: datetime, cluster: str, session: int = 0, number: int = 0) -> Record:
    """A stimulus as it was handled at ``now``, and its place in the session."""
    told = {"now": now, "stimulus": orjson.Fragment(stimulus_bytes(stimulus)), "session": session, "number": number}
    data = orjson.dumps(told, option=orjson.OPT_UTC_Z)
    return _seal((v1.JOURNAL, cluster, "journal"), cluster, now, data)


def encode_barrier(topic: str, barrier: Barrier, cluster: str) -> Record:
    """A lockstep barrier; with a ``source`` the key carries it, so that compaction keeps one for each."""
    key = f"{BARRIER_KEY}/{barrier.source}" if barrier.source else BARRIER_KEY
    return _seal((topic, key, "barrier"), cluster, barrier.now, public(barrier))


def encode_tombstone(of: Record, at: datetime, cluster: str) -> Record:
    """What deletes the key of an earlier record (a closed loan after its keeping time, a cleared alert)."""
    kind = next(found.name for found in v1.kinds_on(of.topic))
    return _seal((of.topic, of.key.decode(), kind), cluster, at, None)


_OF_INSTRUCTION: dict[type, Callable[[Any, str, datetime], Record]] = {
    ask.PublishPlan: lambda told, cluster, _: encode_plan(told.plan, cluster),
    ask.RecordLoan: lambda told, cluster, at: encode_loan(told.loan, cluster, at),
    ask.RecordWorkload: lambda told, cluster, at: encode_workload(told.record, cluster, at),
    ask.RecordPool: lambda told, cluster, _: encode_pool(told.state, cluster),
    ask.RecordForecast: lambda told, cluster, _: encode_forecast(told.memory, cluster),
    ask.RecordUsage: lambda told, cluster, _: encode_usage(told.charge, cluster),
    ask.RaiseAlert: lambda told, cluster, _: encode_alert(told, cluster),
    ask.ClearAlert: lambda told, cluster, _: encode_alert(told, cluster),
    ask.ForgetLoan: lambda told, cluster, at: _seal((v1.STATE_LOAN, told.loan, "state.loan"), cluster, at, None),
    ask.ForgetAlert: lambda told, cluster, at: _seal(
        (v1.ALERT, f"{cluster}/{told.id}", "alert.raised"), cluster, at, None
    ),
    ask.AskSnapshot: lambda told, cluster, at: encode_request(SnapshotRequested(told.of, told.because, at), cluster),
}


def encode_instruction(instruction: ask.Instruction, cluster: str, at: datetime) -> Record:
    """The record that an instruction of the engine asks for; ``at`` is the time it was handled."""
    return _OF_INSTRUCTION[type(instruction)](instruction, cluster, at)
