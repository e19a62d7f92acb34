"""The simulated cluster of a story, remembering what was done to it."""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from rebalancer.core.protocol.calls import Answer, AnswerKind, Call, EvictPod, PatchNode
from rebalancer.simulate.cluster import SimulatedCluster
from rebalancer.simulate.scenario import Scenario

HERE = Path(__file__).parent
State = tuple[str, tuple[str, ...], int]
"""What a node was made: its name, the keys of its taints, the epoch that its loan's mark names (0: no loan)."""


class Touch(NamedTuple):
    """A call that would change something, and how it was answered."""

    at: datetime
    call: PatchNode | EvictPod
    answer: AnswerKind


class Watched(SimulatedCluster):
    """As the cluster is; whatever would change it is remembered."""

    def __init__(self, scenario: Scenario) -> None:
        self.touches: list[Touch] = []
        super().__init__(scenario)

    def answer(self, call: Call) -> Answer:
        """Carry it out, and remember it if it was no mere look."""
        answer = super().answer(call)
        if isinstance(call, PatchNode) or (isinstance(call, EvictPod) and not call.dry_run):
            self.touches.append(Touch(self.moment, call, answer.kind))
        return answer

    def evicted(self) -> Counter[str]:
        """How often each pod was told to go, by uid."""
        return Counter(one.call.member.uid for one in self.touches if isinstance(one.call, EvictPod))

    def patched(self) -> Counter[State]:
        """How often each node was put into each state."""
        done = [one.call for one in self.touches if one.answer is AnswerKind.OK and isinstance(one.call, PatchNode)]
        epochs = [one.loan.epoch if one.loan is not None else 0 for one in done]
        taints = [tuple(sorted(taint.key for taint in one.taints)) for one in done]
        return Counter(zip((one.node_name for one in done), taints, epochs, strict=True))
