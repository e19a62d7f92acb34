"""A loan over time: when its node changed hands, when it was lent, and when it was home again.

Its record tells most of that; that a recall was called off it tells no longer, so that is remembered here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from rebalancer.core.charges import LoanMove
from rebalancer.core.loans import Loan, LoanPhase
from rebalancer.core.meters import moment_of, ms_of

Word: TypeAlias = Literal["moving", "lent", ""]
"""Changing hands, on loan, or home."""


class Course:
    """Moments (ms) and the word that holds from each on. ``called_off``: the record alone would not do."""

    def __init__(self, loan: Loan) -> None:
        """Nothing has happened to the loan yet."""
        self.loan = loan
        self.moves: list[tuple[int, Word]] = []
        self.called_off = False

    def follow(self, loan: Loan, at: int) -> bool:
        """Take the loan's latest form in, that came of something at ``at``; whether it went back on something."""
        before, self.loan = self.loan, loan
        unmarked = loan.phase is LoanPhase.RECALLING and loan.closing_at is None
        words: list[tuple[datetime | None, Word]] = [
            (loan.opened_at, "moving"),
            (loan.lent_at, "moving" if unmarked else "lent"),
            (loan.closing_at, "moving"),
            (loan.closed_at, ""),
        ]
        for moment, word in words:
            if moment is not None:
                self._add(ms_of(moment), word)
        pairs = ((before.closing_at, loan.closing_at), (before.closed_at, loan.closed_at))
        back = any(known is not None and now is None for known, now in pairs) and loan.open
        if back:
            self.called_off = True
            self._add(at, "lent")
        return back

    def at(self, moment: int) -> Word:
        """How it was then."""
        place = bisect_right(self.moves, moment, key=lambda move: move[0])
        return self.moves[place - 1][1] if place else ""

    def memory(self) -> list[LoanMove]:
        """All its moments, for a restart."""
        return [LoanMove(self.loan.id, moment_of(at), word) for at, word in self.moves]

    def recall(self, moves: Iterable[LoanMove]) -> None:
        """Its moments as an earlier engine knew them."""
        for move in moves:
            self.called_off = True
            word: Word = "moving" if move.word == "moving" else "lent" if move.word == "lent" else ""
            self._add(ms_of(move.at), word)

    def _add(self, at: int, word: Word) -> None:
        if (at, word) not in self.moves:
            self.moves.append((at, word))
            self.moves.sort(key=lambda move: move[0])
