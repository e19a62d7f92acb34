"""Outcomes of one plan: every step is over at most once, and blocked at most once per reason.

The rules of telling live here so that no run can break them; when to tell is the runs' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from rebalancer.core.plan import FINAL, EvictGang, Outcome, Plan, Result
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import Number

RESULTS: Mapping[Reason, Result] = {
    Reason.STALE_EPOCH: Result.STALE,
    Reason.STALE_TERM: Result.STALE,
    Reason.SUPERSEDED: Result.STALE,
    Reason.PLAN_EXPIRED: Result.EXPIRED,
}
"""How a step ends for a reason that is not simply a refusal."""
Numbers: TypeAlias = Mapping[str, Number]


class Telling:
    """What has been told of a plan's steps; ``told`` holds what has not been taken yet."""

    def __init__(self, plan: Plan, epoch: int, earlier: Iterable[Outcome] = ()) -> None:
        self.plan = plan
        self.told: list[Outcome] = []
        self._epoch = epoch
        self._ids: set[str] = set()
        self._ends: dict[int, Outcome] = {}
        self._started: set[int] = set()
        self._begun: set[int] = set()
        for outcome in earlier:
            self._note(outcome)

    @property
    def complete(self) -> bool:
        """Whether every step has its final outcome."""
        return all(index in self._ends for index in range(len(self.plan.steps)))

    def ended(self, index: int) -> bool:
        """Whether the step has its final outcome."""
        return index in self._ends

    def end(self, index: int) -> Outcome | None:
        """The step's final outcome."""
        return self._ends.get(index)

    def started(self, index: int) -> bool:
        """Whether anything was ever told of the step."""
        return index in self._started

    def begun(self, index: int) -> bool:
        """Whether it was told that the step has begun: something may have been written for it."""
        return index in self._begun

    def tell(self, index: int, result: Result, because: Because, now: datetime, numbers: Numbers | None = None) -> None:
        """Tell how a step stands, unless it is over or was told so already."""
        if index in self._ends:
            return
        step = self.plan.steps[index]
        target, loan = (step.gang, "") if isinstance(step, EvictGang) else (step.node, step.loan)
        outcome = Outcome(
            plan=self.plan.id, pool=self.plan.pool, step=index, kind=step.kind, target=target, result=result,
            because=because, at=now, loan=loan, epoch=self._epoch, numbers=numbers or {},
        )  # fmt: skip
        if outcome.id not in self._ids:
            self._note(outcome)
            self.told.append(outcome)

    def start(self, index: int, now: datetime) -> None:
        """Tell that a step has begun."""
        if index not in self._begun:
            self.tell(index, Result.STARTED, self.plan.because, now)

    def block(self, index: int, because: Because, now: datetime) -> None:
        """Tell that a step is still tried, and what holds it."""
        self.tell(index, Result.BLOCKED, because, now)

    def done(self, index: int, now: datetime, numbers: Numbers | None = None) -> None:
        """Tell that a step is done."""
        self.tell(index, Result.DONE, Because(Reason.CONFIRMED), now, numbers)

    def refuse(self, index: int, because: Because, now: datetime, result: Result | None = None) -> None:
        """Tell that a step is not done, by the result its reason stands for unless one is given."""
        self.tell(index, result or RESULTS.get(because.reason, Result.REFUSED), because, now)

    def refuse_all(self, because: Because, now: datetime, result: Result | None = None) -> None:
        """Tell that none of the steps that are left is done."""
        for index in range(len(self.plan.steps)):
            self.refuse(index, because, now, result)

    def take(self) -> list[Outcome]:
        """What was told since the last call."""
        taken, self.told = self.told, []
        return taken

    def _note(self, outcome: Outcome) -> None:
        self._ids.add(outcome.id)
        self._started.add(outcome.step)
        if outcome.result is Result.STARTED:
            self._begun.add(outcome.step)
        if outcome.result in FINAL:
            self._ends.setdefault(outcome.step, outcome)
