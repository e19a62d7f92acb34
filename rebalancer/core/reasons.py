"""The closed set of reasons, and the one renderer that turns a reason and its numbers into a sentence.

Topics, events, logs, the page, alerts and the command line all use :func:`sentence`, so that they can never
disagree. A reason without a sentence fails the tests. Nothing else about wording lives anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rebalancer.core.units import Number


class Reason(StrEnum):
    """Why something was done, not done, or refused. Values are stable: subscribers match on them."""

    # why plans are made
    IDLE_PROVEN = "idle-proven"
    INFERENCE_PENDING = "inference-pending"
    INFERENCE_RISING = "inference-rising"
    LOAN_DUE = "loan-due"
    LOAN_RENEWED = "loan-renewed"
    OPERATOR_RECALL = "operator-recall"
    DEMAND_GONE = "demand-gone"
    RETIRING = "retiring"
    # why a node is not lent
    WINDOW_CLOSED = "window-closed"
    WINDOW_CLOSING = "window-closing"
    TELEMETRY_UNKNOWN = "telemetry-unknown"
    NOT_IDLE_LONG_ENOUGH = "not-idle-long-enough"
    BUSY = "busy"
    HELD = "held"
    FLOOR = "floor"
    HEADROOM = "headroom"
    CAP = "cap"
    CIRCUIT_OPEN = "circuit-open"
    PAUSED = "paused"
    OPTED_OUT = "opted-out"
    NO_ELIGIBLE_BORROWER = "no-eligible-borrower"
    BORROWER_NOT_EVICTABLE = "borrower-not-evictable"
    NODE_NOT_USABLE = "node-not-usable"
    LABEL_CONFLICT = "label-conflict"
    RESTING = "resting"
    CATCHING_UP = "catching-up"
    NOT_LENDING_POOL = "not-lending-pool"
    IN_TRANSIT = "in-transit"
    NOMINATED = "nominated"
    # why a gang cannot borrow, or is not chosen
    MIN_AGE = "min-age"
    MODEL_MISMATCH = "model-mismatch"
    SELECTOR_MISMATCH = "selector-mismatch"
    NETWORK_MISMATCH = "network-mismatch"
    NOT_TOLERATED = "not-tolerated"
    NOT_RECLAIMABLE = "not-reclaimable"
    TOO_LARGE = "too-large"
    GRACE_TOO_LONG = "grace-too-long"
    COOLDOWN = "cooldown"
    PREEMPTED_TOO_OFTEN = "preempted-too-often"
    NAMESPACE_CAP = "namespace-cap"
    BUDGET_NEVER_ALLOWS = "budget-never-allows"
    BUDGET_BLOCKED = "budget-blocked"
    PROTECTED = "protected"
    COSTS_MORE = "costs-more"
    CHECKPOINTING = "checkpointing"
    FINISHING = "finishing"
    MIN_RUNTIME = "min-runtime"
    GPU_COUNT_UNKNOWN = "gpu-count-unknown"
    NOT_NEEDED = "not-needed"
    CANNOT_SATISFY = "cannot-satisfy"
    SQUATTER = "squatter"
    # what act answers
    CONFIRMED = "confirmed"
    STALE_TERM = "stale-term"
    STALE_EPOCH = "stale-epoch"
    PLAN_EXPIRED = "plan-expired"
    SUPERSEDED = "superseded"
    NODE_TAKEN = "node-taken"
    NODE_CHANGED = "node-changed"
    NODE_GONE = "node-gone"
    TWO_BUDGETS = "two-budgets"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    CONTENDED = "contended"
    STUCK = "stuck"
    GANG_SPLIT = "gang-split"
    OVERDUE = "overdue"
    LOAN_LOST = "loan-lost"
    NODE_QUARANTINED = "node-quarantined"
    AWAITS_APPROVAL = "awaits-approval"
    OPT_IN_MISSING = "opt-in-missing"
    INVALID_POLICY = "invalid-policy"
    TELEMETRY_SILENT = "telemetry-silent"


@dataclass(frozen=True, slots=True)
class Because:
    """A reason with the numbers that a person needs to believe it."""

    reason: Reason
    numbers: Mapping[str, Number] = field(default_factory=dict)


SENTENCES: Mapping[Reason, str] = {
    Reason.IDLE_PROVEN: "{node} idle for {idle_minutes} min, {spare_nodes} nodes to spare: lent to {gang} until {due}",
    Reason.INFERENCE_PENDING: "{pods} inference pods of {pool} wait for {needed_gpus} GPUs, {ready_gpus} stand ready",
    Reason.INFERENCE_RISING: "{pool} wants {demand_gpus} GPUs and maybe {headroom_gpus} more, {ready_gpus} are ready",
    Reason.LOAN_DUE: "the loan of {node} is due at {due} and its return takes up to {return_seconds} s",
    Reason.LOAN_RENEWED: "the loan of {node} goes on until {due}: nobody waits and {spare_gpus} more GPUs are to spare",
    Reason.OPERATOR_RECALL: "{by} recalled {target}",
    Reason.DEMAND_GONE: "the demand of {pool} went away before the first eviction",
    Reason.RETIRING: "the rebalancer is being retired",
    Reason.WINDOW_CLOSED: "no lending window of {pool} is open",
    Reason.WINDOW_CLOSING: "{remaining_minutes} min remain, less than the minimum run time and the return",
    Reason.TELEMETRY_UNKNOWN: "utilisation of {node} is unknown: {why}",
    Reason.NOT_IDLE_LONG_ENOUGH: "idle for {idle_minutes} min of the {dwell_minutes} min asked for",
    Reason.BUSY: "GPUs are busy",
    Reason.HELD: "{held_gpus} GPUs are held by pods",
    Reason.FLOOR: "{pool} keeps {floor_nodes} nodes at home",
    Reason.HEADROOM: "{pool} keeps {headroom_gpus} GPUs for a rise within the return time",
    Reason.CAP: "the cap of {cap} on {what} is reached",
    Reason.CIRCUIT_OPEN: "the plan touches {share_percent} % of {pool}, more than {limit_percent} %",
    Reason.PAUSED: "lending is paused by {by}",
    Reason.OPTED_OUT: "{target} opted out",
    Reason.NO_ELIGIBLE_BORROWER: "no waiting gang may run there: {why}",
    Reason.BORROWER_NOT_EVICTABLE: "{gang} could not be taken back: {why}",
    Reason.NODE_NOT_USABLE: "{node} is not usable: {why}",
    Reason.LABEL_CONFLICT: "labels of {node} contradict each other: {why}",
    Reason.RESTING: "{node} came home {minutes} min ago and stays for {dwell_minutes} min",
    Reason.CATCHING_UP: "the streams are behind by {lag_seconds} s or not yet complete",
    Reason.NOT_LENDING_POOL: "{pool} does not lend",
    Reason.IN_TRANSIT: "{node} is changing hands",
    Reason.NOMINATED: "GPUs of {node} are promised to a waiting pod",
    Reason.MODEL_MISMATCH: "{gang} does not declare {model}",
    Reason.SELECTOR_MISMATCH: "{gang} selects other nodes",
    Reason.NETWORK_MISMATCH: "{gang} needs another network than {network}",
    Reason.NOT_TOLERATED: "{gang} does not tolerate the on-loan taint",
    Reason.NOT_RECLAIMABLE: "{gang} is not labelled reclaimable",
    Reason.TOO_LARGE: "{gang} needs {needed_nodes} nodes, {spare_nodes} are to spare",
    Reason.GRACE_TOO_LONG: "{gang} needs {needed_seconds} s to leave, {lead_seconds} s are allowed",
    Reason.COOLDOWN: "{workload} was evicted and may borrow again at {until}",
    Reason.PREEMPTED_TOO_OFTEN: "{workload} was preempted {preemptions} times in a day and may borrow again at {until}",
    Reason.NAMESPACE_CAP: "namespace {namespace} had {preemptions} preemptions today",
    Reason.BUDGET_NEVER_ALLOWS: "budget {budget} can allow {ceiling} of the {members} members of {gang}",
    Reason.BUDGET_BLOCKED: "budget {budget} allows {allowed} of the {members} members of {gang} now",
    Reason.PROTECTED: "{target} is protected: {why}",
    Reason.COSTS_MORE: "evicting {gang} would lose {lost_gpu_seconds} GPU-seconds",
    Reason.CHECKPOINTING: "{gang} is writing a checkpoint",
    Reason.FINISHING: "{gang} ends by itself in {left_seconds} s",
    Reason.MIN_AGE: "{gang} has been complete for {age_seconds} s of the {min_seconds} s that its budgets have to come",
    Reason.MIN_RUNTIME: "{gang} has run for {run_seconds} s of its minimum {min_seconds} s",
    Reason.GPU_COUNT_UNKNOWN: "how many GPUs {pod} holds is unknown",
    Reason.NOT_NEEDED: "not needed",
    Reason.CANNOT_SATISFY: "no set of loans would make room for {target}",
    Reason.SQUATTER: "{pod} runs on lent {node} without having opted in",
    Reason.CONFIRMED: "confirmed",
    Reason.STALE_TERM: "made in term {term}, the term is {current}",
    Reason.STALE_EPOCH: "written in epoch {epoch}, the epoch is {current}",
    Reason.PLAN_EXPIRED: "valid until {valid_until}",
    Reason.SUPERSEDED: "superseded by {plan}",
    Reason.NODE_TAKEN: "{pod} is on {node}, which has to be empty",
    Reason.NODE_CHANGED: "{node} is not as planned: {why}",
    Reason.NODE_GONE: "{node} is gone",
    Reason.TWO_BUDGETS: "{pod} is covered by two budgets and can never be evicted",
    Reason.FORBIDDEN: "not permitted: {why}",
    Reason.THROTTLED: "the API server asks to slow down",
    Reason.TIMED_OUT: "no answer within {seconds} s",
    Reason.UNREACHABLE: "the API server cannot be reached: {why}",
    Reason.CONTENDED: "someone else keeps changing {node}: {why}",
    Reason.STUCK: "{pod} is still there {seconds} s after its grace period",
    Reason.GANG_SPLIT: "{gone} of {members} members of {gang} are gone, the rest is held by {why}",
    Reason.OVERDUE: "{node} is {overdue_seconds} s past its due time",
    Reason.LOAN_LOST: "the node carries no mark of the loan",
    Reason.NODE_QUARANTINED: "{node} bears our taint, but {why}",
    Reason.AWAITS_APPROVAL: "waits for approval",
    Reason.OPT_IN_MISSING: "{pod} did not opt in",
    Reason.INVALID_POLICY: "the policy was refused: {why}",
    Reason.TELEMETRY_SILENT: "no sample of {node} for {seconds} s",
}


class _Lenient(dict[str, Number]):
    """Missing numbers render as a question mark: a sentence never fails, the tests see to the numbers."""

    def __missing__(self, key: str) -> str:
        return "?"


_UTC_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\+00:00")


def _plain(value: Number) -> Number:
    """Numbers without needless digits, and moments as people write them; records keep the exact ones."""
    if isinstance(value, float):
        return int(value) if value == int(value) else round(value, 2)
    return _UTC_MINUTE.sub(r"\1 \2Z", value) if isinstance(value, str) else value


def sentence(because: Because) -> str:
    """One sentence, without a full stop, for any because."""
    numbers = _Lenient({key: _plain(value) for key, value in because.numbers.items()})
    return SENTENCES[because.reason].format_map(numbers)
