"""Plans on their way: drafts that methods propose, and published plans with what has come back of them.

Who keeps them, and what follows from an outcome, is the state's and the ledger's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rebalancer.core.plan import FINAL, Alternative, EvictGang, Method, Plan, Result, Step
from rebalancer.core.reasons import Because
from rebalancer.core.units import PlanId, PoolName


@dataclass(frozen=True, slots=True)
class Draft:
    """What a method proposes; the engine gives it an id, a validity and a term."""

    pool: PoolName
    method: Method
    because: Because
    steps: tuple[Step, ...]
    alternatives: tuple[Alternative, ...] = ()
    pressing: bool = False
    awaits_approval: bool = False
    cancels: PlanId = ""


@dataclass(slots=True)
class OpenPlan:
    """A published plan and what has come back of it, by step index."""

    plan: Plan
    results: dict[int, Result] = field(default_factory=dict)
    called_off: bool = False

    @property
    def finished(self) -> bool:
        """Whether every step has ended."""
        return all(self.results.get(index) in FINAL for index in range(len(self.plan.steps)))

    @property
    def evicting(self) -> bool:
        """Whether an eviction of it has begun or ended well: from then on it cannot be called off."""
        live = (Result.STARTED, Result.DONE, Result.BLOCKED)
        steps = enumerate(self.plan.steps)
        return any(isinstance(step, EvictGang) and self.results.get(index) in live for index, step in steps)

    def pending_steps(self) -> list[Step]:
        """Steps that have not ended."""
        return [step for index, step in enumerate(self.plan.steps) if self.results.get(index) not in FINAL]
