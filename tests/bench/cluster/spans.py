"""What the lives of a gang's pods amount to: when it was whole, broken or in transit, and what was lost.

Pure. A pod holds its GPUs from being bound until it is gone; it works from being seen Running until it is told to go.
A gang is whole while all its members work, broken while some do, in transit while some hold and none works.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(slots=True)
class PodLife:
    """One pod; moments in seconds of one clock, None: not (yet)."""

    uid: str
    namespace: str
    app: str
    inference: bool
    gpus: int
    created: float
    node: str = ""
    bound: float | None = None
    ran: float | None = None
    told: float | None = None
    gone: float | None = None

    @property
    def left(self) -> float | None:
        """When it stopped working."""
        return self.gone if self.told is None else self.told

    def holds(self, at: float) -> bool:
        """Whether it holds GPUs."""
        return self.bound is not None and self.bound <= at and (self.gone is None or at < self.gone)

    def works(self, at: float) -> bool:
        """Whether it gets on."""
        return self.ran is not None and self.ran <= at and (self.left is None or at < self.left)


class State(StrEnum):
    """How a gang is."""

    WHOLE = "whole"
    BROKEN = "broken"
    TRANSIT = "transit"
    AWAY = "away"


class Span(NamedTuple):
    """A time in one state, and the GPUs held meanwhile."""

    state: State
    start: float
    end: float
    gpus: int

    @property
    def seconds(self) -> float:
        """How long."""
        return self.end - self.start

    def within(self, start: float, end: float) -> float:
        """GPU-seconds of it between two moments."""
        return self.gpus * max(0.0, min(self.end, end) - max(self.start, start))


def spans(pods: Sequence[PodLife], size: int, until: float) -> list[Span]:
    """All times of a gang until that moment, in order; neighbours differ in state or GPUs."""
    moments = {until, *(at for pod in pods for at in (pod.bound, pod.ran, pod.told, pod.gone) if at is not None)}
    ordered = sorted(at for at in moments if at <= until)
    found: list[Span] = []
    for start, end in itertools.pairwise(ordered):
        held = [pod for pod in pods if pod.holds(start)]
        span = Span(_state(held, size, start), start, end, sum(pod.gpus for pod in held))
        if found and (found[-1].state, found[-1].gpus) == (span.state, span.gpus):
            span = found.pop()._replace(end=end)
        found.append(span)
    return found


def _state(held: Sequence[PodLife], size: int, at: float) -> State:
    if not held:
        return State.AWAY
    working = sum(pod.works(at) for pod in held)
    if working == size:
        return State.WHOLE
    return State.BROKEN if working else State.TRANSIT


def whole(found: Iterable[Span]) -> list[Span]:
    """The times in which it worked as a whole, joined over changes of what it held beside (pods that drain)."""
    joined: list[Span] = []
    for span in found:
        if span.state is State.WHOLE:
            again = bool(joined) and joined[-1].end == span.start
            joined.append(joined.pop()._replace(end=span.end) if again else span)
    return joined


def progress(found: Sequence[Span], until: float, checkpoint: float) -> float:
    """Seconds of work that are saved or under way: a time that ended counts as far as its last checkpoint."""
    times = whole(found)
    return sum(span.seconds if span.end >= until else span.seconds // checkpoint * checkpoint for span in times)


def lost(found: Sequence[Span], size: int, until: float, checkpoint: float) -> float:
    """Pod-seconds of work since the last checkpoint, of all times that ended before the moment."""
    return size * sum(span.seconds % checkpoint for span in whole(found) if span.end < until)


def splits(found: Sequence[Span], longer: float) -> int:
    """How often it stayed broken for longer than that after it had been whole."""
    count, since = 0, None
    for before, span in itertools.pairwise(found):
        if span.state is State.BROKEN and before.state is State.WHOLE:
            since = span.start
        if since is not None and span.state is not State.BROKEN:
            count, since = count + (span.start - since > longer), None
    if since is not None and found:
        count += found[-1].end - since > longer
    return count
