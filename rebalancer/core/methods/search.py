"""The search for borrowers, and what it rested on: one that found nobody is not repeated while nothing changed.

A search goes over every gang that waits and every node that may be lent; events come far more often than either
changes. Nothing here decides who borrows.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from rebalancer.core import borrowers
from rebalancer.core.facts import Node
from rebalancer.core.fit import Room
from rebalancer.core.gangs import Borrower
from rebalancer.core.look import Look
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.state import State
from rebalancer.core.supply import usable
from rebalancer.core.units import GangId, OwnerClass

SEARCH_AGAIN = timedelta(seconds=60)
"""A search that found none holds no longer than this, whatever did not change."""


class Search:
    """One search for borrowers; what it rested on, so that one that found none is not repeated for nothing."""

    def __init__(self, state: State, look: Look, left: tuple[int, float], now: datetime) -> None:
        """Begin with everything counted that the answer depends on, time apart; ``left``: nodes and GPUs to lend."""
        self.state, self.look, self.now = state, look, now
        self.until = now + SEARCH_AGAIN
        self.used_elsewhere = False
        inventory = state.inventory
        waits = tuple(inventory.waits[cls] for cls in look.policy.lends_to)
        seen = (waits, inventory.others, inventory.candidates.get(look.pool, 0), inventory.handovers)
        told = (state.revived, state.hands, state.records, state.changes)
        self._begun = (*seen, *told, state.policy, state.books(look.pool))
        self._left = left
        self._elsewhere = inventory.elsewhere
        self._answers = self._of_this_moment()

    def _of_this_moment(self) -> dict[GangId, Because | None]:
        """Answers that other pools' searches have had: why a gang may borrow nothing is the same for all."""
        state, inventory = self.state, self.state.inventory
        moment = (self.now, *inventory.waits.values(), inventory.others, state.hands, state.records, id(state.policy))
        if state.refusals[0] != moment:
            state.refusals = (moment, {})
        return state.refusals[1]

    def known_fruitless(self) -> bool:
        """Whether the last search began with the same, found nobody, and nothing has come of time since."""
        known = self.state.watches[self.look.pool].fruitless
        if known is None or self.now >= known[1]:
            return False
        begun, elsewhere = known[0][:-1], known[0][-1]
        same = begun[:-2] == self._begun[:-2] and begun[-2] is self._begun[-2] and begun[-1] is self._begun[-1]
        # Where more nodes and GPUs helped nobody, fewer do not: gangs take the first rooms that are large enough.
        same = same and self._left[0] <= known[2][0] and self._left[1] <= known[2][1]
        return same and elsewhere in (None, self._elsewhere)

    def remember(self) -> None:
        """This search found nobody. Room elsewhere matters only to gangs that would use it."""
        elsewhere = self._elsewhere if self.used_elsewhere else None
        self.state.watches[self.look.pool].fruitless = ((*self._begun, elsewhere), self.until, self._left)

    def refused(self, who: Borrower) -> Because | None:
        """Why a gang may borrow nothing, as :func:`borrowers.refused`; what time will change is remembered."""
        record = self.state.workloads.get(who.pods[0].workload)
        if record is not None:
            self.wake(record.cooldown_until)
            self.wake(record.protected_until)
        if who.gang not in self._answers:
            self._answers[who.gang] = borrowers.refused(self.state, who, self.now)
        because = self._answers[who.gang]
        if because is not None and because.reason is Reason.MIN_AGE:
            self.wake(borrowers.complete_at(self.state, who) + self.state.policy.borrowing.min_age)
        return because

    def wake(self, moment: datetime | None) -> None:
        """The answer may be another one from this moment."""
        if moment is not None and self.now < moment < self.until:
            self.until = moment


def elsewhere_of(state: State) -> list[Room]:
    """Free room that the scheduler can use without us: other classes' nodes, and lent nodes that stay open."""
    inventory = state.inventory
    counts = (inventory.elsewhere, state.hands)
    if state.elsewhere[0] != counts:
        state.elsewhere = (counts, tuple(node.uid for node in sorted(_open(state), key=lambda node: node.name)))
    nodes = (inventory.nodes[uid] for uid in state.elsewhere[1])
    return [Room(node, inventory.free(node), node.taints, list(inventory.guests(node.name))) for node in nodes]


def _open(state: State) -> Iterator[Node]:
    for node in state.inventory.nodes.values():
        if node.loan is None and node.owner is OwnerClass.INFERENCE:
            continue
        if usable(node) and node.uid not in state.busy_nodes and state.inventory.free(node) > 0:
            yield node
