"""What an engine table leaves behind: all that became visible, with its time, and what the topics would still hold.

It only listens; what is told to the engine is the stage's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from rebalancer.core.instructions import (
    ClearAlert,
    Instruction,
    PublishPlan,
    RaiseAlert,
    RecordForecast,
    RecordLoan,
    RecordPool,
    RecordWorkload,
)
from rebalancer.core.plan import Outcome, Plan
from rebalancer.core.stimuli import OutcomeReported, Stimulus
from tests.core.build import Rig
from tests.scenarios import terms
from tests.scenarios.terms import Plain, Words


@dataclass(slots=True)
class Played:
    """All that became visible, with the moment at which it did."""

    words: Words
    plans: list[tuple[datetime, Plan]] = field(default_factory=list)
    outcomes: list[tuple[datetime, Outcome]] = field(default_factory=list)
    alerts: list[tuple[datetime, RaiseAlert]] = field(default_factory=list)
    cleared: dict[str, datetime] = field(default_factory=dict)
    pools: dict[str, RecordPool] = field(default_factory=dict)
    flaws: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Kept:
    """What the topics would hold of our own records: enough to start again."""

    loans: dict[str, RecordLoan] = field(default_factory=dict)
    workloads: dict[str, RecordWorkload] = field(default_factory=dict)
    pools: dict[str, RecordForecast] = field(default_factory=dict)


class Memory(Rig):
    """A rig that also keeps what it heard and said."""

    def __init__(self, words: Words, table: Plain) -> None:
        self.played = Played(words)
        self.kept = Kept()
        chosen = terms.policy(words, table["pools"], table["policy"])
        super().__init__(chosen, now=words.start, term=table.get("term", 1))

    def tell(self, *stimuli: Stimulus) -> list[Instruction]:
        """As a rig, remembering."""
        for stimulus in stimuli:
            if isinstance(stimulus, OutcomeReported):
                self.played.outcomes.append((self.now, stimulus.outcome))
        answers = super().tell(*stimuli)
        for item in answers:
            self._note(item)
        return answers

    def _note(self, item: Instruction) -> None:
        if isinstance(item, PublishPlan):
            self.played.plans.append((self.now, item.plan))
        elif isinstance(item, RaiseAlert):
            self.played.alerts.append((self.now, item))
        elif isinstance(item, ClearAlert):
            self.played.cleared[item.id] = self.now
        elif isinstance(item, RecordPool):
            self.played.pools[item.state.pool] = item
        elif isinstance(item, RecordLoan):
            self.kept.loans[item.loan.id] = item
        elif isinstance(item, RecordWorkload):
            self.kept.workloads[item.record.workload] = item
        elif isinstance(item, RecordForecast):
            self.kept.pools[item.memory.pool] = item
