"""The engine's own memory of what it was told and what it asked for, by the names a person would use.

Entries are bounded and derived; decisions never read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rebalancer.core.instructions import Instruction, PublishPlan, RaiseAlert, RecordLoan
from rebalancer.core.plan import Plan, Step
from rebalancer.core.reasons import Because, sentence
from rebalancer.core.state import State
from rebalancer.core.stimuli import OutcomeReported, Stimulus


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened: when, to whom (ids and names), and the sentence."""

    at: datetime
    what: str
    keys: frozenset[str]
    because: Because

    @property
    def sentence(self) -> str:
        """The because in words."""
        return sentence(self.because)


def told(stimulus: Stimulus, instructions: Sequence[Instruction], now: datetime) -> Iterator[Entry]:
    """Entries for a stimulus and for what followed from it."""
    if isinstance(stimulus, OutcomeReported):
        outcome = stimulus.outcome
        keys = frozenset({outcome.plan, outcome.target, outcome.loan} - {""})
        yield Entry(now, f"{outcome.kind} {outcome.result}", keys, outcome.because)
    for item in instructions:
        if isinstance(item, PublishPlan):
            yield Entry(now, f"plan {item.plan.method}", plan_keys(item.plan), item.plan.because)
        elif isinstance(item, RecordLoan):
            loan = item.loan
            keys = frozenset({loan.id, loan.node, loan.node_name, loan.gang, loan.plan})
            yield Entry(now, f"loan {loan.phase}", keys, loan.because)
        elif isinstance(item, RaiseAlert):
            yield Entry(now, "alert", frozenset({item.id, item.target}), item.because)


def plan_keys(plan: Plan) -> frozenset[str]:
    """Every name under which a plan may be asked for: its own, and those of its steps."""
    return frozenset({plan.id, plan.cancels, *(key for step in plan.steps for key in step_keys(step))} - {""})


def step_keys(step: Step) -> Iterator[str]:
    """Names of one step: loan and node, or gang, workload and pods."""
    if step.kind == "evict":
        yield from (step.gang, step.workload)
        for member in step.members:
            yield from (member.uid, f"{member.namespace}/{member.name}", member.name)
        return
    yield from (step.loan, step.node, step.node_name)
    if step.kind == "lend":
        yield step.gang


def keys_of(state: State, key: str) -> frozenset[str]:
    """A name and its synonyms: a node's uid and name, a pod's uid, name and gang."""
    node = state.inventory.nodes.get(key) or state.inventory.node_named(key)
    if node is not None:
        return frozenset({key, node.uid, node.name})
    pod = state.inventory.pods.get(key)
    if pod is not None:
        return frozenset({key, pod.uid, f"{pod.namespace}/{pod.name}", pod.gang})
    return frozenset({key})
