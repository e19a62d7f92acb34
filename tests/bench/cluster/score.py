"""The measures of one night, from the lives of its pods alone, the same arithmetic for every rival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.bench.cluster.figures import spread
from tests.bench.cluster.night import CHECKPOINT, SPLIT, Gang
from tests.bench.cluster.spans import PodLife, Span, State, lost, spans, splits


class Seen(NamedTuple):
    """What there was, moments of one clock. ``start`` and ``due`` bound the night; until ``end`` we looked."""

    serving: tuple[PodLife, ...]
    gangs: Mapping[str, tuple[Gang, tuple[PodLife, ...]]]
    finished: Mapping[str, float]
    inference_nodes: frozenset[str]
    start: float
    due: float
    end: float


def measures(seen: Seen) -> dict[str, Any]:
    """All figures of the table; GPU-seconds are those between start and due time."""
    waits = spread(list(_waits(seen)))
    times = {name: _spans(seen, name) for name in seen.gangs}
    every = [span for found in times.values() for span in found]
    deleted = {name: _deleted(seen, name) for name in seen.gangs}
    return {
        "inference_waits": waits["count"],
        **{f"inference_wait_{name}_s": waits[name] for name in ("p50", "p99", "max")},
        **{f"{state}_gpu_s": _gpu_seconds(seen, every, state) for state in (State.WHOLE, State.BROKEN, State.TRANSIT)},
        "gangs_finished": sum(seen.start <= at <= seen.due for at in seen.finished.values()),
        "members_deleted": sum(deleted.values()),
        "gangs_split": sum(splits(found, SPLIT) for found in times.values()),
        "below_budget": sum(deleted[name] for name, (gang, _) in seen.gangs.items() if gang.guarded),
        "lost_gpu_s": round(sum(_lost(seen, name, found) for name, found in times.items())),
        "left_at_due": sum(_left(seen, name) for name in seen.gangs),
    }


def _waits(seen: Seen) -> Iterable[float]:
    """From being asked for to Running (or to its end, or to ours) of every replica that the night asked for."""
    for pod in seen.serving:
        if seen.start <= pod.created <= seen.due:
            yield min(at for at in (pod.ran, pod.left, seen.end) if at is not None) - pod.created


def _spans(seen: Seen, name: str) -> list[Span]:
    gang, pods = seen.gangs[name]
    return spans(pods, gang.size, seen.finished.get(name, seen.end))


def _gpu_seconds(seen: Seen, every: Iterable[Span], state: State) -> int:
    return round(sum(span.within(seen.start, seen.due) for span in every if span.state is state))


def _lost(seen: Seen, name: str, found: list[Span]) -> float:
    """Of times that ended within the night and until we stopped looking, but not by being done."""
    gang, pods = seen.gangs[name]
    gpus = pods[0].gpus if pods else 0
    until = seen.finished.get(name, seen.end)
    return gpus * lost([span for span in found if span.end >= seen.start], gang.size, until, CHECKPOINT)


def _deleted(seen: Seen, name: str) -> int:
    """Members that were told to go although their work was not done."""
    done = seen.finished.get(name, seen.end)
    return sum(
        pod.bound is not None and pod.left is not None and seen.start <= pod.left < done for pod in seen.gangs[name][1]
    )


def _left(seen: Seen, name: str) -> int:
    if seen.finished.get(name, seen.end) <= seen.due:
        return 0
    return sum(pod.holds(seen.due) and pod.node in seen.inference_nodes for pod in seen.gangs[name][1])
