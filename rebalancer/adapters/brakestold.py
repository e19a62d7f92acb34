"""The brakes of one cluster, as the records of `gpu.fact.control` tell them. Nothing is read or sent here."""

from __future__ import annotations

from rebalancer.core.facts import Control
from rebalancer.core.stimuli import FactObserved, SnapshotBegan, SnapshotEnded


class BrakesTold:
    """The brakes by what records tell, in their order: as they stand, or none any more once a full list has none.

    A control object that changes while a list is read is told as a change and left out of the list: such a list, with
    nothing in it, takes no brake off.
    """

    def __init__(self) -> None:
        self._since_began = False

    def read(self, content: object) -> Control | None:
        """The brakes that hold from this record on; None if it says nothing of them."""
        match content:
            case FactObserved(fact=Control() as control):
                self._since_began = True
                return control
            case SnapshotBegan(of="control"):
                self._since_began = False
            case SnapshotEnded(of="control", count=0) if not self._since_began:
                return Control()
        return None
